"""What a change of maps would do to the scores of a stream: where they move, and how many pass a cut-off.

Theory of operation. Counts are by bin of the raw score, so where a score lies within its bin is not known. The rows of
a bin are taken to be spread evenly about their mean with the variance they have (both are in the counts), no further
than the bin reaches: a bin of one score alone stays that score. A map never decreases, so the rows at or above a
cut-off are those at or above one raw score, which lies in one bin; all others are counted exactly. The mean of a map
over a bin is taken at one standard deviation on either side of the mean, exact for a map that is a parabola there.

What comes out are shares of the counts given, without intervals: nothing is inferred about labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Map
from streamcal.maps.link import clip, logit
from streamcal.stats.counts import SCALE, Column
from streamcal.stats.layout import CENTRES, EDGES

__all__ = ["GRID", "POINTS", "CutOff", "Mass", "Preview", "Row", "mass_of_bins", "mass_of_counts", "preview"]

Floats = NDArray[np.float64]

POINTS: Final = (0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
"""Shares of the predictions below the raw scores that a preview shows: deciles, and the ends that guards look at."""

GRID: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
"""Raw scores shown where no counts are known."""

_SAME: Final = 1e-6
"""Spread of one score alone: its square is stored in units of 2^-44."""
_ROUNDING: Final = 2.0**-38
"""Unit of the sums that means come from."""
_HALVINGS: Final = 60
"""Of a bin, to find a cut-off in it: beyond the last bit of a float64."""


@dataclass(frozen=True, slots=True)
class Mass:
    """Rows by raw score: pieces that do not overlap, ascending; float64[M] each.

    Attributes
    ----------
    rows : above 0.
    low, high : ends of the piece over which the rows are spread evenly; equal where they have one score.
    """

    rows: Floats
    low: Floats
    high: Floats

    @property
    def n(self) -> float:
        """All rows."""
        return float(self.rows.sum())

    def quantile(self, share: Sequence[float]) -> Floats:
        """Raw scores below which these shares of the rows lie."""
        reached = np.cumsum(self.rows) / self.rows.sum()
        ends = np.column_stack([np.concatenate([[0.0], reached[:-1]]), reached]).ravel()
        return np.interp(share, ends, np.column_stack([self.low, self.high]).ravel())


@dataclass(frozen=True, slots=True)
class Row:
    """One raw score and both outputs.

    Attributes
    ----------
    below : float or None
        Share of the predictions with lower raw scores; None without counts.
    moved : float
        Change of the logit.
    """

    below: float | None
    raw: float
    before: float
    after: float
    moved: float


@dataclass(frozen=True, slots=True)
class CutOff:
    """Share of the predictions served at or above `at`."""

    at: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Preview:
    """What a change does.

    Attributes
    ----------
    rows : sequence of Row
        Ascending by raw score.
    n : float
        Predictions looked at; 0 where no counts are known: then means are None and there are no cut-offs.
    mean_before, mean_after : float or None
        Mean served score.
    cut_offs : sequence of CutOff
    """

    rows: Sequence[Row]
    n: float
    mean_before: float | None
    mean_after: float | None
    cut_offs: Sequence[CutOff]


def mass_of_counts(counts: NDArray[np.int64]) -> Mass | None:
    """Where the rows of raw counts lie; None where there are none.

    Parameters
    ----------
    counts : int64[284, 9] or int64[284, 23]
        Rows count once, whatever they weigh.
    """
    index = np.flatnonzero(counts[:, Column.N] > 0)
    n, away, square = (counts[index, column] / SCALE[column] for column in (Column.N, Column.DP, Column.DP2))
    mean = CENTRES[index] + away / n
    variance = np.maximum(square / n - (away / n) ** 2, 0.0)
    edges = np.concatenate([[0.0], EDGES.astype(np.float64), [1.0]])
    return _pieces(n, mean, np.sqrt(3.0 * variance), edges[index], edges[index + 1])


def mass_of_bins(n: Floats, mean: Floats, low: Floats, high: Floats) -> Mass | None:
    """The same from a reliability table, bins ascending; shape (k,) each. Coarse: spread as wide as the bin allows."""
    held = n > 0
    n, mean, low, high = n[held], mean[held], low[held], high[held]
    return _pieces(n, mean, np.minimum(mean - low, high - mean), low, high)


def _pieces(n: Floats, mean: Floats, reach: Floats, low: Floats, high: Floats) -> Mass | None:
    if not len(n):
        return None
    # An even spread about the mean has a standard deviation of its reach over the root of 3; it ends with its bin.
    reach = np.where(reach < _SAME, 0.0, np.minimum(reach, np.maximum(np.minimum(mean - low, high - mean), 0.0)))
    return Mass(n, mean - reach, mean + reach)


def preview(mass: Mass | None, before: Map, after: Map, cut_offs: Sequence[float] = ()) -> Preview:
    """Compare two maps on the same raw scores.

    Parameters
    ----------
    mass : Mass or None
        None: no counts are known.
    before, after : Map
    cut_offs : sequence of float
        Served scores, each above 0 and below 1.

    Examples
    --------
    >>> from streamcal.maps.families import Identity, Platt
    >>> mass = mass_of_bins(*np.array([[60.0, 40.0], [0.2, 0.7], [0.0, 0.5], [0.5, 1.0]]))
    >>> told = preview(mass, Identity(), Platt(1.0, -1.0), [0.5])
    >>> round(told.mean_before, 3), told.n
    (0.4, 100.0)
    """
    raw = np.array(GRID) if mass is None else mass.quantile(POINTS)
    below: Sequence[float | None] = [None] * len(raw) if mass is None else POINTS
    old, new = before.apply(raw), after.apply(raw)
    moved = logit(clip(new)) - logit(clip(old))
    columns = (each.tolist() for each in (raw, old, new, moved))
    rows = [Row(share, *values) for share, *values in zip(below, *columns, strict=True)]
    if mass is None:
        return Preview(rows, 0.0, None, None, ())
    shares = [CutOff(at, _share(mass, before, at), _share(mass, after, at)) for at in sorted(cut_offs)]
    return Preview(rows, mass.n, _mean(mass, before), _mean(mass, after), shares)


def _mean(mass: Mass, map_: Map) -> float:
    middle, deviation = (mass.low + mass.high) / 2.0, (mass.high - mass.low) / np.sqrt(12.0)
    served = map_.apply(middle - deviation) + map_.apply(middle + deviation)
    return float((mass.rows * served).sum() / (2.0 * mass.n))


def _share(mass: Mass, map_: Map, at: float) -> float:
    """Share of the rows served at or above `at`."""
    # The mean of equal scores is a rounding off them; one that lies on the cut-off is at it.
    alone = np.where(mass.low == mass.high, _ROUNDING, 0.0)
    low, high = map_.apply(mass.low + alone) >= at, map_.apply(mass.high + alone) >= at
    passing = np.where(low, 1.0, 0.0)
    (split,) = np.nonzero(high & ~low)  # one at most, as pieces ascend; a rounding apart two
    start, end = mass.low[split], mass.high[split]
    for _ in range(_HALVINGS):
        middle = (start + end) / 2.0
        above = map_.apply(middle) >= at
        start, end = np.where(above, start, middle), np.where(above, middle, end)
    passing[split] = (mass.high[split] - end) / (mass.high[split] - mass.low[split])
    return float((mass.rows * passing).sum() / mass.n)
