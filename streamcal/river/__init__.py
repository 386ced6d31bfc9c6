"""Calibration metrics with the interface of river's, from the same counts as the live figures.

An extra: nothing else in streamcal imports this package.

`ECE`, `PlattSlope` and `PredictedToObservedRatio` take ``update(y_true, y_pred)``, give ``get()``, and take rows back
exactly with ``revert``, so that `river.utils.Rolling` and `TimeRolling` make them sliding windows of any length. What
each figure means is in docs/figures.md.
"""

from __future__ import annotations

from streamcal.river.counts import CalibrationCounts
from streamcal.river.metrics import ECE, PlattSlope, PredictedToObservedRatio

__all__ = ["ECE", "CalibrationCounts", "PlattSlope", "PredictedToObservedRatio"]
