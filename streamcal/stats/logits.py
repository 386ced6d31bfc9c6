"""The logistic likelihood of logit P(y = 1) = intercept + slope * logit(p), from binned counts.

A bin is known by its weight n, the mean x and the variance v of its logits, and sum x y over the series is
exact. The likelihood's terms are expanded to second order about x, which is what makes 284 bins as good as rows:
at bin width 1/8 the first order alone errs up to 3e-4 in the slope, the second 2e-7. With s = sigmoid(a + b x)
and its derivatives s', s'', s''' in its argument, the sums over the rows of a bin are::

    sum sigma            ~ n (s + b^2 v s'' / 2)
    sum x sigma          ~ x sum sigma + n b v s'
    sum sigma'           ~ n (s' + b^2 v s''' / 2)
    sum x sigma'         ~ x sum sigma' + n b v s''
    sum x^2 sigma'       ~ x^2 sum sigma' + 2 x n b v s'' + n v s'

The first two give the score, the others (exactly its derivatives) the information.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from streamcal.stats.counts import PLAIN, SCALE, Column
from streamcal.stats.layout import LOGIT_CENTRES

__all__ = ["Information", "LogitCells", "LogitSums", "logit_sums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]


class Information(NamedTuple):
    """A symmetric 2 x 2 matrix per series, over (intercept, slope)."""

    aa: Floats
    ab: Floats
    bb: Floats

    def plus(self, aa: float, bb: float) -> Information:
        """With `aa` and `bb` added to the diagonal."""
        return Information(self.aa + aa, self.ab, self.bb + bb)

    def determinant(self) -> Floats:
        """Determinant per series."""
        return self.aa * self.bb - self.ab * self.ab


@dataclass(frozen=True, slots=True)
class LogitCells:
    """The bins of each series that hold weight, one after another.

    Attributes
    ----------
    n, x, v : float64[M]
        Weight, mean logit and variance of the logits of a cell.
    """

    n: Floats
    x: Floats
    v: Floats

    def take(self, keep: NDArray[np.bool_]) -> LogitCells:
        """The cells marked in `keep`."""
        return LogitCells(self.n[keep], self.x[keep], self.v[keep])

    def evaluate(self, a: Floats, b: Floats, starts: Indices, sizes: Indices) -> tuple[Floats, Floats, Information]:
        """Sum sigma, sum x sigma and the information of each series at intercept `a` and slope `b`."""
        n, x = self.n, self.x
        b_cell = np.repeat(b, sizes)
        bv = b_cell * self.v
        half_b2v = 0.5 * b_cell * bv
        s = expit(np.repeat(a, sizes) + b_cell * x)
        s1 = s * (1.0 - s)
        s2 = s1 * (1.0 - 2.0 * s)
        s3 = s1 * (1.0 - 6.0 * s1)
        ns1, nbv = n * s1, n * bv
        e0 = n * (s + half_b2v * s2)
        e1 = x * e0 + bv * ns1
        i0 = ns1 + half_b2v * n * s3
        cross = nbv * s2
        i1 = x * i0 + cross
        i2 = x * (i1 + cross) + self.v * ns1
        total = np.add.reduceat
        information = Information(total(i0, starts), total(i1, starts), total(i2, starts))
        return total(e0, starts), total(e1, starts), information


@dataclass(frozen=True, slots=True)
class LogitSums:
    """What a fit reads of the A series that hold any weight.

    Attributes
    ----------
    series : intp[A]
        Index of each among all `n_series`.
    starts, sizes : intp[A]
        Where its cells lie.
    bins : intp[M]
        Layout bin of each cell.
    cells : LogitCells
        Moments by weight.
    square_cells : LogitCells or None
        Moments by squared weight; None when every weight is 1.
    positive_weight, negative_weight : float64[M]
        Weight of either class.
    positive, x_positive : float64[A]
        Sum w y and sum w y x.
    """

    n_series: int
    series: Indices
    starts: Indices
    sizes: Indices
    bins: Indices
    cells: LogitCells
    square_cells: LogitCells | None
    positive_weight: Floats
    negative_weight: Floats
    positive: Floats
    x_positive: Floats

    def take(self, keep: NDArray[np.bool_]) -> LogitSums:
        """The series marked in `keep` (bool[A])."""
        if keep.all():
            return self
        cell = np.repeat(keep, self.sizes)
        sizes = self.sizes[keep]
        return replace(
            self,
            series=self.series[keep],
            starts=_starts(sizes),
            sizes=sizes,
            bins=self.bins[cell],
            cells=self.cells.take(cell),
            square_cells=None if self.square_cells is None else self.square_cells.take(cell),
            positive_weight=self.positive_weight[cell],
            negative_weight=self.negative_weight[cell],
            positive=self.positive[keep],
            x_positive=self.x_positive[keep],
        )

    def reach(self) -> tuple[Floats, Floats]:
        """Lowest and highest logit of each series; cells are in bin order."""
        return self.cells.x[self.starts], self.cells.x[self.starts + self.sizes - 1]

    def spans_overlap(self) -> NDArray[np.bool_]:
        """Whether the classes overlap in both directions by more than one shared bin.

        Otherwise they are separated, or touch in one bin: the maximum-likelihood slope is infinite, or decided
        by what a bin does not hold.
        """
        lo_pos, hi_pos = self._span(self.positive_weight > 0)
        lo_neg, hi_neg = self._span(self.negative_weight > 0)
        return (hi_neg > lo_pos) & (hi_pos > lo_neg)

    def _span(self, present: NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """Lowest and highest bin with `present`; where there is none, neither overlaps anything."""
        lowest = np.where(present, self.bins, np.iinfo(np.intp).max)
        highest = np.where(present, self.bins, -1)
        return np.minimum.reduceat(lowest, self.starts), np.maximum.reduceat(highest, self.starts)

    def variance(self) -> Floats:
        """Variance of the logits of each series, within and between bins."""
        n, x = self.cells.n, self.cells.x
        weight = np.add.reduceat(n, self.starts)
        away = x - np.repeat(np.add.reduceat(n * x, self.starts) / weight, self.sizes)
        return np.asarray(np.add.reduceat(n * (away * away + self.cells.v), self.starts) / weight)


def logit_sums(counts: Ints) -> LogitSums:
    """Collect the cells with weight.

    Parameters
    ----------
    counts : int64[S, 284, 9] or int64[S, 284, 23]
    """
    weighted = counts.shape[-1] > PLAIN
    weight_column = Column.W if weighted else Column.N
    series_of, bins = np.nonzero(counts[:, :, weight_column] > 0)
    columns: Floats = np.ascontiguousarray(counts[series_of, bins].T).astype(np.float64)
    columns /= SCALE[: len(columns), None]
    w, wy, _, _, _, dx, dx2, ydx = columns[weight_column : weight_column + 8]
    series, sizes = np.unique(series_of, return_counts=True)
    starts = _starts(sizes)
    centre = LOGIT_CENTRES[bins]
    return LogitSums(
        n_series=len(counts),
        series=series,
        starts=starts,
        sizes=sizes,
        bins=bins,
        cells=_cells(centre, w, dx, dx2),
        square_cells=_square_cells(centre, columns) if weighted else None,
        positive_weight=wy,
        negative_weight=w - wy,
        positive=_total(wy, starts),
        x_positive=_total(centre * wy + ydx, starts),
    )


def _starts(sizes: Indices) -> Indices:
    return np.cumsum(sizes) - sizes


def _total(values: Floats, starts: Indices) -> Floats:
    # reduceat refuses an empty list of starts only on an empty array.
    return np.add.reduceat(values, starts) if len(starts) else np.empty(0)


def _cells(centre: Floats, n: Floats, dx: Floats, dx2: Floats) -> LogitCells:
    """Cells from sums of n, n (x - centre) and n (x - centre)^2; a cell of no weight weighs nothing."""
    weight = np.where(n > 0, n, 1.0)
    mean = dx / weight
    return LogitCells(n, centre + mean, np.maximum(dx2 / weight - mean * mean, 0.0))


def _square_cells(centre: Floats, columns: Floats) -> LogitCells:
    """Moments by squared weight; the columns hold their excess over weight 1."""
    dx = columns[Column.DX] + columns[Column.W2DX]
    dx2 = columns[Column.DX2] + columns[Column.W2DX2]
    return _cells(centre, columns[Column.W2], dx, dx2)
