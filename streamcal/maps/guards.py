"""What keeps a map from traffic although it gained: guards that look at the map itself and at the newest labels."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Identity, Map
from streamcal.maps.fit import fit_platt
from streamcal.maps.fit_bins import FitBins, fit_bins
from streamcal.maps.link import clip, logit
from streamcal.stats.counts import Column
from streamcal.stats.fit_panes import FitPanes

__all__ = ["LARGEST_STEP", "dispersion", "largest_step", "mean_is_off", "newest_start", "scarcer"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST_STEP: Final = 1.5
"""Logits: odds times 4.5. More is rarely a correction and often a broken join or a changed score."""

TAIL: Final = 0.01
"""Left out on either side when the step is measured: the outermost scores of a stream are a few rows."""

MEAN_SIGMAS: Final = 4.0
PHI_BLOCKS: Final = 20
_MIN_INFORMATION: Final = 1.0
_MAD: Final = 1.4826
"""Standard deviation of a normal variable over its median absolute deviation."""


def scarcer(counts: Ints) -> int:
    """Rows of the class that has fewer; counts of shape (284, K)."""
    n, positives = int(counts[:, Column.N].sum()), int(counts[:, Column.Y].sum())
    return min(positives, n - positives)


def largest_step(counts: Ints, old: Map, new: Map) -> float:
    """Most that the served logit moves anywhere on the central 98 % of the scores.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores of the fit window.
    old, new : Map
    """
    bins = fit_bins(counts)
    if not len(bins.index):
        return 0.0
    below = np.cumsum(bins.rows) / bins.rows.sum()
    low, high = np.searchsorted(below, [TAIL, 1.0 - TAIL])
    score = clip(bins.score[low : high + 1])
    return float(np.abs(logit(new.apply(score)) - logit(old.apply(score))).max())


def newest_start(rows: Ints, least: int) -> int:
    """First pane of the newest ones that hold `least` rows of either class; the oldest where all hold too few.

    Parameters
    ----------
    rows : int64[m, 3]
        Pane, rows, positive rows; ascending, at least one.
    least : int

    Examples
    --------
    >>> newest_start(np.array([[3, 9, 3], [4, 9, 1], [7, 9, 2], [9, 9, 2]]), 4)
    7
    """
    n, positives = rows[::-1, 1], rows[::-1, 2]
    fewer = np.minimum(np.cumsum(positives), np.cumsum(n - positives))
    place = min(int(np.searchsorted(fewer, least)), len(rows) - 1)
    return int(rows[len(rows) - 1 - place, 0])


def mean_is_off(fits: FitPanes, map_: Map, least: int) -> bool:
    """Whether the newest labels contradict the mean of what `map_` would have served.

    By more than 4 standard errors, scaled by the over-dispersion of the window. The newest labels are those of the
    fewest newest panes with `least` of either class.
    """
    newest = fit_bins(fits.split(newest_start(fits.rows, least))[1])
    residual, information = _residual(newest, map_)
    return abs(residual) > MEAN_SIGMAS * math.sqrt(dispersion(fits) * information)


def _residual(bins: FitBins, map_: Map) -> tuple[float, float]:
    """Summed label less served score, and its variance under the map."""
    served = map_.apply(bins.score)
    residual = float((bins.positive - bins.weight * served).sum())
    return residual, float((bins.weight * served * (1.0 - served)).sum())


def dispersion(fits: FitPanes) -> float:
    """Over-dispersion phi of the fit window: how much more its labels vary together than independence allows.

    Residuals are about the line fitted to the window, in 20 blocks; their spread is the median absolute deviation, so
    that a burst which spoils a few blocks adds nothing. 1 with less than ten blocks that hold information.
    """
    line = fit_platt(fits.whole(), Identity())
    map_ = Identity() if isinstance(line, str) else line
    lowest = int(fits.rows[0, 0])
    edges = np.linspace(lowest, fits.stop, PHI_BLOCKS + 1).round().astype(int).tolist()
    found = [_residual(fit_bins(fits.between(*edges[i : i + 2])), map_) for i in range(PHI_BLOCKS)]
    told = np.array([pair for pair in found if pair[1] >= _MIN_INFORMATION])
    if len(told) < PHI_BLOCKS // 2:
        return 1.0
    residual, information = told.T
    level = np.median(residual / information)
    z = (residual - level * information) / np.sqrt(information)
    return max(float(_MAD * np.median(np.abs(z - np.median(z)))) ** 2, 1.0)
