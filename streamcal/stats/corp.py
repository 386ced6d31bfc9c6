"""Decomposition of the Brier score: reliability, resolution, uncertainty.

The recalibrated rate of each bin comes from isotonic regression instead of from chosen groups (CORP: Dimitriadis,
Gneiting and Jordan, PNAS 2021). With B the Brier score of the bin means and B_iso that of the recalibrated rates,
reliability is B - B_iso, never negative. Uncertainty is r (1 - r) at base rate r. Resolution is what closes the sum
brier = reliability - resolution + uncertainty, and so also holds what scores tell apart inside a bin (Stephenson,
Coelho and Jolliffe 2008). From rows the reliability is larger, for isotonic regression overfits single rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

__all__ = ["excess_over_isotonic"]

Floats = NDArray[np.float64]


def excess_over_isotonic(weight: Floats, positive: Floats, score: Floats) -> Floats:
    """Squared error of the bin means above that of the best non-decreasing rates, summed over rows.

    Parameters
    ----------
    weight, positive, score : float64[S, B]
        sum w, sum w y and sum w p per bin, in score order.

    Returns
    -------
    float64[S]
        At least 0.
    """
    return np.array([_excess(*series) for series in zip(weight, positive, score, strict=True)])


def _excess(weight: Floats, positive: Floats, score: Floats) -> float:
    held = weight > 0
    if not held.any():
        return 0.0
    w = weight[held]
    rate, mean = positive[held] / w, score[held] / w
    best = isotonic_regression(rate, weights=w).x
    # (mean - rate)^2 - (best - rate)^2, without the difference of two large squares
    return max(float(w @ ((mean - best) * (mean + best - 2.0 * rate))), 0.0)
