"""Isotonic fits from bins: plain (isotonic) and smoothed centred (cir).

Pool adjacent violators: the non-decreasing rates closest to the observed ones in weighted square error are means over
blocks of neighbouring bins, so their weighted mean is the observed one. From bins the fit is coarser than from rows,
which overfits single rows: out of sample it is as good or better.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from streamcal.maps.families import Cir, Isotonic, Map
from streamcal.maps.fit_bins import FitBins, fit_bins
from streamcal.maps.link import HIGHEST, LOWEST, logit

__all__ = ["CIR_STRENGTH", "MIN_SCARCER", "RATE_CLIP", "fit_cir", "fit_isotonic", "pool", "smoothed"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Blocks = NDArray[np.intp]

RATE_CLIP: Final = 1e-6
"""An empty block says 0 and a full one 1; one label against either would cost infinitely much. So it costs 14 nats."""

CIR_STRENGTH: Final = 2.0
"""Expected rows of the scarcer class that the prior map is worth in each bin. Excess log loss at 300 positives where
the truth is a line, the score itself, a wave (`benchmarks/maps.py`): at 1 .32, .39, .39 %; at 2 .29, .35, .43; at 4
.27, .31, .50."""

MIN_SCARCER: Final = 20
"""Rows of the scarcer class below which a shape cannot be told from noise."""


def pool(rates: Floats, weights: Floats) -> tuple[Floats, Blocks]:
    """Non-decreasing rates, and where their blocks of equal values start.

    Parameters
    ----------
    rates, weights : float64[M]
        In the order of the scores, weights above 0.

    Returns
    -------
    fitted : float64[M]
    starts : intp[B + 1]
        First member of each block, and M.

    Examples
    --------
    >>> fitted, starts = pool(np.array([0.0, 1.0, 0.5]), np.array([1.0, 1.0, 1.0]))
    >>> fitted.tolist(), starts.tolist()
    ([0.0, 0.75, 0.75], [0, 1, 3])
    """
    result = isotonic_regression(rates, weights=weights)
    return result.x, result.blocks


def smoothed(bins: FitBins, toward: Floats, strength: float) -> tuple[Floats, Floats]:
    """Rates drawn towards a prior map, and the weights they then have; float64[M] each.

    A bin gets m rows of the rate the prior map gives it, of which `strength` are expected in the scarcer class, but
    never more than it holds itself::

        rate = (P + m q) / (n + m),   m = min(n, strength / min(q, 1 - q))
    """
    extra = np.minimum(bins.weight, strength / np.minimum(toward, 1.0 - toward))
    weight = bins.weight + extra
    return (bins.positive + extra * toward) / weight, weight


def fit_isotonic(counts: Ints, prior_map: Map) -> Isotonic | str:  # noqa: ARG001 -- one signature for all families
    """Plain isotonic regression of the bins' rates on their mean scores.

    Knots are the ends of the blocks, as in scikit-learn's `IsotonicRegression`; rates are kept within
    [1e-6, 1 - 1e-6]. Needs a few thousand rows, and overfits with fewer: prefer `fit_cir`.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores.
    prior_map : Map
        Not used.

    Returns
    -------
    Isotonic or str
        The reason where there is none: ``too_few_labels``, or ``slope_not_positive`` where rates do not rise.
    """
    bins = fit_bins(counts)
    if bins.scarcer < MIN_SCARCER:
        return "too_few_labels"
    fitted, starts = pool(bins.positive / bins.weight, bins.weight)
    values = np.clip(fitted, RATE_CLIP, 1.0 - RATE_CLIP)
    score = np.clip(bins.score, LOWEST, HIGHEST)
    ends = np.union1d(starts[:-1], starts[1:] - 1)
    knots = ends[_ascending(score[ends])]
    if not values[knots[0]] < values[knots[-1]]:
        return "slope_not_positive"
    return Isotonic(score[knots].tolist(), values[knots].tolist())


def fit_cir(counts: Ints, prior_map: Map) -> Cir | str:
    """Smoothed centred isotonic regression.

    Rates are drawn towards `prior_map` (`smoothed`), pooled, and each block becomes one knot at its weighted mean
    logit; the curve runs straight from logit to logit between them.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores.
    prior_map : Map
        What is believed where there are few labels: Platt on the same counts, or the global map for a segment.

    Returns
    -------
    Cir or str
        The reason where there is none: ``too_few_labels``, or ``slope_not_positive`` where rates do not rise.

    References
    ----------
    Oron and Flournoy 2017, "Centered isotonic regression".
    """
    bins = fit_bins(counts)
    if bins.scarcer < MIN_SCARCER:
        return "too_few_labels"
    rates, weights = smoothed(bins, prior_map.apply(bins.score), CIR_STRENGTH)
    fitted, starts = pool(rates, weights)
    if len(starts) <= 2:
        return "slope_not_positive"
    x = np.add.reduceat(weights * bins.x, starts[:-1]) / np.add.reduceat(weights, starts[:-1])
    served = logit(np.clip(fitted[starts[:-1]], RATE_CLIP, 1.0 - RATE_CLIP))
    kept = _ascending(x)
    kept = kept[_ascending(served[kept])]
    if len(kept) < 2:
        return "slope_not_positive"
    return Cir(x[kept].tolist(), served[kept].tolist())


def _ascending(values: Floats) -> Blocks:
    """Indices that leave out what is not above the value before it: knots that rounding has made one."""
    rises = [later > earlier for earlier, later in pairwise(values.tolist())]
    return np.flatnonzero([True, *rises])
