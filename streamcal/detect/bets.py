"""Fourteen bets against a calibrated score, and what a pane of binned outcomes pays on each.

A bet names the log-odds q would have if the score x = logit(p) had a fault: all too low or too high by a fixed
amount, or stretched or compressed about the pivot m, the mean logit (weights p (1 - p)) of past panes. Rows whose
scores are right pay on average nothing: the likelihood ratio of q against p has expectation 1.

Batches of a bin stay valid
---------------------------
A bin holds n rows with P positives and mean score p. With h the null's probability at p and q the bet's,
both functions of the scores alone, the pane pays ``log e = P log(q / h) + (n - P) log((1 - q) / (1 - h))``.
A row whose true rate is r multiplies the expectation by 1 + (r - h)(q - h) / (h (1 - h)), which is linear in r.
The logarithm is concave, so over the bin's rows the product is at most n times the logarithm at the mean rate: at
most 1 as long as mean(r) - h and q - h do not have the same sign. At h = p that is calibration itself; within a
bin only the mean score counts. It needs outcomes that are independent given their scores.

Tolerance
---------
With a band of `tolerance` logits, a stream is in order when every rate lies between sigmoid(x - tolerance) and
sigmoid(x + tolerance). A bet beyond the upper edge is played against the upper edge, below the lower edge against
the lower one, inside the band not at all. The edges are taken at the bin's mean score, which is valid too: the
upper edge is a concave function of p (its value at the mean is at least the mean of its values), the lower convex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.counts import SCALE, Column
from streamcal.stats.layout import CENTRES, SCORE_CLIP

__all__ = [
    "FAULTS",
    "LEVEL_BETS",
    "SLOPE_BETS",
    "BetSet",
    "PaneCells",
    "bet_set",
    "log_payoff",
    "log_payoffs",
    "pane_cells",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]
Integers = NDArray[np.integer]

FAULTS: Final = ("scores_too_high", "scores_too_low", "over_confident", "under_confident")
"""What can be wrong with a score; a fault's code is its index here."""

LEVEL_BETS: Final = (-0.8, -0.4, -0.2, -0.1, 0.1, 0.2, 0.4, 0.8)
"""Logits added to the score. Twofold steps: a fault between two bets is met at 8/9 of the best rate or better."""

SLOPE_BETS: Final = (0.6, 0.8, 0.9, 1.1, 1.25, 1.6)
"""Slopes about the pivot: below 1 the scores are over-confident, above 1 under-confident."""


_TOGETHER: Final = 4096
"""Cells whose payoffs are computed at a time, so that what is in between stays in the cache."""


@dataclass(frozen=True, slots=True)
class BetSet:
    """The bets that a tolerance leaves.

    Attributes
    ----------
    levels : float64[L]
        Logit shifts beyond the band.
    slopes : float64[B]
        Slopes about the pivot.
    fault : int8[L + B]
        What each bet says is wrong, an index into `FAULTS`.
    tolerance : float
        Half-width of the band in logits.
    """

    levels: Floats
    slopes: Floats
    fault: NDArray[np.int8]
    tolerance: float

    def __len__(self) -> int:
        return len(self.fault)


def bet_set(tolerance: float) -> BetSet:
    """The bets for a tolerance band of `tolerance` logits.

    A level bet inside the band could never pay; it is left out, so that the others share its weight and no alarm
    comes from the mere passing of time.

    Raises
    ------
    ValueError
        If `tolerance` is negative or leaves no level bet.

    Examples
    --------
    >>> bet_set(0.1).levels.tolist()
    [-0.8, -0.4, -0.2, 0.2, 0.4, 0.8]
    """
    if not 0 <= tolerance < max(LEVEL_BETS):
        raise ValueError(f"a tolerance of {tolerance} logits is not in [0, {max(LEVEL_BETS)}): no bet lies beyond it")
    levels = np.array([shift for shift in LEVEL_BETS if abs(shift) > tolerance])
    slopes = np.array(SLOPE_BETS)
    fault = np.concatenate([np.where(levels < 0, 0, 1), np.where(slopes < 1, 2, 3)]).astype(np.int8)
    return BetSet(levels, slopes, fault, tolerance)


@dataclass(frozen=True, slots=True)
class PaneCells:
    """The bins of a pane that hold rows, series after series.

    Attributes
    ----------
    starts, sizes : intp[S]
        Where the cells of each series lie; every series has at least one.
    n, y : float64[M]
        Rows and positive rows.
    p : float64[M]
        Mean score, kept `SCORE_CLIP` away from 0 and 1.
    x : float64[M]
        Logit of `p`.
    moved : int8[M]
        -1 where the mean score was below the clip, 1 where it was above, else 0.
    """

    starts: Indices
    sizes: Indices
    n: Floats
    y: Floats
    p: Floats
    x: Floats
    moved: NDArray[np.int8]

    def total(self, values: Floats) -> Floats:
        """Sum over the cells of each series: float64[..., M] to float64[..., S]."""
        sums: Floats = np.add.reduceat(values, self.starts, axis=-1)
        return sums

    def spread(self, values: Floats) -> Floats:
        """Value of each cell's series: float64[S] to float64[M]."""
        return values.repeat(self.sizes)

    def cut(self, part: slice) -> PaneCells:
        """Some cells, whose series do not matter."""
        if part.start == 0 and part.stop >= len(self.n):
            return self
        n, y, p, x, moved = self.n[part], self.y[part], self.p[part], self.x[part], self.moved[part]
        return PaneCells(np.zeros(1, dtype=np.intp), np.array([len(n)]), n, y, p, x, moved)

    def take(self, keep: NDArray[np.bool_]) -> PaneCells:
        """The series marked in `keep`, bool[S]."""
        cell = np.repeat(keep, self.sizes)
        sizes = self.sizes[keep]
        n, y, p, x = self.n[cell], self.y[cell], self.p[cell], self.x[cell]
        return PaneCells(np.cumsum(sizes) - sizes, sizes, n, y, p, x, self.moved[cell])


def pane_cells(series_of: Ints, bins: Integers, values: Ints) -> tuple[Ints, PaneCells]:
    """Cells from sparse counts.

    Parameters
    ----------
    series_of : integer[M]
        Series of each cell, ascending.
    bins : integer[M]
        Its layout bin.
    values : int64[M, K]
        Its counts; weights are ignored. Cells without rows are dropped.

    Returns
    -------
    series : integer[S]
        The series that have rows.
    cells : PaneCells
    """
    held = values[:, Column.N] > 0
    if not held.all():
        series_of, bins, values = series_of[held], bins[held], values[held]
    n, y = values[:, Column.N].astype(np.float64), values[:, Column.Y].astype(np.float64)
    mean = CENTRES[bins] + values[:, Column.DP] / (SCALE[Column.DP] * n)
    p = np.minimum(np.maximum(mean, SCORE_CLIP), 1.0 - SCORE_CLIP)
    bounds = np.empty(len(n) + 1, dtype=np.bool_)
    bounds[0] = bounds[-1] = len(n) > 0
    np.not_equal(series_of[1:], series_of[:-1], out=bounds[1:-1])
    bound = bounds.nonzero()[0]
    first, sizes = bound[:-1], bound[1:] - bound[:-1]
    return series_of[first], PaneCells(first, sizes, n, y, p, np.log(p / (1.0 - p)), np.sign(mean - p).astype(np.int8))


def log_payoffs(cells: PaneCells, bets: BetSet, pivot: Floats) -> Floats:
    """What the pane pays on each bet, in nats.

    Parameters
    ----------
    cells : PaneCells
    bets : BetSet
    pivot : float64[S]
        Logit about which slope bets turn, known before the pane's outcomes; NaN: slope bets are not played.

    Returns
    -------
    float64[K, S]
        log e of each bet and series; on calibrated rows exp of it has expectation at most 1.
    """
    pays = np.empty((len(bets), len(cells.n)))
    away = cells.x - cells.spread(pivot)
    away[np.isnan(away)] = 0.0
    for start in range(0, len(cells.n), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        some = cells.cut(part)
        pays[: len(bets.levels), part] = _level_payoffs(some, bets)
        pays[len(bets.levels) :, part] = log_payoff(some, (bets.slopes[:, None] - 1.0) * away[part], bets.tolerance)
    return cells.total(pays)


def _level_payoffs(cells: PaneCells, bets: BetSet) -> Floats:
    """What each cell pays on each level bet, float64[L, M]: `log_payoff` with most of its exponentials left out."""
    odds = cells.p / (1.0 - cells.p)
    edge = np.sign(bets.levels) * bets.tolerance
    near = np.log(1.0 + np.exp(edge[[0, -1], None]) * odds)  # bets ascend: the lower edge, the upper
    miss = np.log(1.0 + np.exp(bets.levels)[:, None] * odds) - near[(bets.levels > 0).astype(np.intp)]
    pays: Floats = cells.y * (bets.levels - edge)[:, None] - cells.n * miss
    if cells.moved.any():
        pays[bets.levels[:, None] * cells.moved > 0] = 0.0
    return pays


def log_payoff(cells: PaneCells, shift: Floats, tolerance: float = 0.0) -> Floats:
    """What each cell pays, float64[..., M] log e, on the bet that its logit is x + `shift` (float64[..., M]).

    A score below the clip is tested as if it were the clip, so bets further down are not played there (the
    null would be above the true mean score), and likewise at the top.

    Examples
    --------
    One row of score .5 that came true, and the bet that its odds are 3 to 1: ln(.75 / .5).

    >>> one, zero = np.ones(1), np.zeros(1)
    >>> row = PaneCells(np.array([0]), np.array([1]), n=one, y=one, p=one / 2, x=zero, moved=np.zeros(1, np.int8))
    >>> log_payoff(row, np.log([3.0])).round(4).tolist()
    [0.4055]
    """
    odds = cells.p / (1.0 - cells.p)
    upward = shift > 0.0
    edge = np.where(upward, tolerance, -tolerance)
    near = np.where(upward, 1.0 + odds * np.exp(tolerance), 1.0 + odds * np.exp(-tolerance))
    # log((1 - q) / (1 - h)): one logarithm; its absolute error of 1e-16 a row is harmless beside what n rows pay.
    pays = cells.y * (shift - edge) - cells.n * np.log((1.0 + odds * np.exp(shift)) / near)
    pays[np.abs(shift) <= tolerance] = 0.0
    if cells.moved.any():
        pays[shift * cells.moved > 0] = 0.0
    return np.asarray(pays)
