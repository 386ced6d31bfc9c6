"""Calibrated classifiers for scikit-learn, from the same maps that are applied to live scores.

An extra: ``pip install 'streamcal-monitor[sklearn]'``. Nothing else in streamcal imports this package.

- `PriorCalibratedClassifier` undoes class weights and random resampling by an exact formula, without further data.
- `GIRBCalibrator` learns a grouped isotonic map from rows the model was not fitted on.

Both hand over what they know as a map document, so that a model's live scores are right from the first event.
"""

from __future__ import annotations

try:
    import sklearn as _sklearn  # noqa: F401 -- asked for first, so that its absence has one clear message
except ModuleNotFoundError as cause:
    if cause.name != "sklearn":
        raise
    message = "streamcal.sklearn needs scikit-learn: pip install 'streamcal-monitor[sklearn]'"
    raise ModuleNotFoundError(message, name="sklearn") from cause

from streamcal.sklearn.girb import GIRBCalibrator
from streamcal.sklearn.prior import PriorCalibratedClassifier
from streamcal.sklearn.weights import UnknownWeightError

__all__ = ["GIRBCalibrator", "PriorCalibratedClassifier", "UnknownWeightError"]
