"""Calibration figures of many series from their counts.

Each figure is one function over the sums of a block of series, entered in `FIGURES` under its report key; a new
figure is one more entry. NaN means absent: the figure cannot be known from these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.layout import coarse_starts
from streamcal.stats.logits import LogitSums, logit_sums
from streamcal.stats.platt import OffsetFit, PlattFit, offset_of, platt_of
from streamcal.stats.sums import ScoreSums, score_sums

__all__ = ["FIGURES", "Block", "figures"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK: Final = 64
"""Series worked on at once: their arrays fit the cache; 4,000 series in one go take three times as long."""


@dataclass(frozen=True)
class Block:
    """Some series and what several figures share; every attribute is computed on first use.

    Attributes
    ----------
    counts : int64[S, 284, K]
    starts : intp[k]
        First layout bin of each equal-width bin.
    min_count : int
        Rows of either class that a slope or an intercept needs.
    """

    counts: Ints
    starts: NDArray[np.intp]
    min_count: int

    @cached_property
    def sums(self) -> ScoreSums:
        """Sums per layout bin."""
        return score_sums(self.counts)

    @cached_property
    def weight(self) -> Floats:
        """Sum of weights per series."""
        return _total(self.sums.weight)

    @cached_property
    def coarse_gaps(self) -> Floats:
        """|sum w (y - p)| of each equal-width bin: float64[S, k]."""
        return np.abs(np.add.reduceat(self.sums.gap, self.starts, axis=1))

    @cached_property
    def ecce(self) -> Floats:
        """Range of the summed gap in score order, starting at 0; scores of one layout bin move together."""
        walk = np.cumsum(self.sums.gap, axis=1)
        span = np.maximum(walk.max(axis=1), 0.0) - np.minimum(walk.min(axis=1), 0.0)
        return _quotient(span, self.weight)

    @cached_property
    def null_sd(self) -> Floats:
        """Standard deviation of the mean gap if every score were right; absent where it is none.

        A stream of exact zeros and ones has no variance, but the rounding of its counts has.
        """
        variance = _total(self.sums.null_variance)
        real = variance > _total(self.sums.rows) * self.sums.resolution
        return _quotient(np.sqrt(np.where(real, variance, np.nan)), self.weight)

    @cached_property
    def _fitted(self) -> tuple[NDArray[np.bool_], LogitSums]:
        """Series with enough rows of either class, and their logit sums."""
        positives = _total(self.sums.row_positives)
        negatives = _total(self.sums.rows) - positives
        enough = np.minimum(positives, negatives) >= max(self.min_count, 1)
        return enough, logit_sums(self.counts if enough.all() else self.counts[enough])

    @cached_property
    def platt(self) -> PlattFit:
        """Maximum-likelihood slope and intercept of the series with enough rows."""
        return platt_of(self._fitted[1])

    @cached_property
    def offset(self) -> OffsetFit:
        """Intercept at slope 1 of the series with enough rows."""
        return offset_of(self._fitted[1])

    def where_fitted(self, values: Floats) -> Floats:
        """Values of the fitted series among all of the block's."""
        result = np.full(len(self.counts), np.nan)
        result[self._fitted[0]] = values
        return result


def _total(values: Floats) -> Floats:
    return np.asarray(values.sum(axis=-1))


def _quotient(numerator: Floats, denominator: Floats) -> Floats:
    """Numerator / denominator; NaN unless the denominator is positive."""
    return np.divide(numerator, denominator, out=np.full_like(denominator, np.nan), where=denominator > 0)


def _mean(block: Block, values: Floats) -> Floats:
    return _quotient(_total(values), block.weight)


def _mce(block: Block) -> Floats:
    """Largest |observed - mean score| of an equal-width bin that holds rows."""
    weight = np.add.reduceat(block.sums.weight, block.starts, axis=1)
    gap = np.max(np.nan_to_num(_quotient(block.coarse_gaps, weight), nan=0.0), axis=1)
    return np.where(block.weight > 0, gap, np.nan)


def _effective_n(block: Block) -> Floats:
    """Kish: (sum w)^2 / sum w^2; the number of rows when all weights are equal."""
    return _quotient(block.weight**2, _total(block.sums.square_weight))


FIGURES: Final[Mapping[str, Callable[[Block], Floats]]] = {
    "n": lambda block: _total(block.sums.rows),
    "positives": lambda block: _total(block.sums.row_positives),
    "mean_score": lambda block: _mean(block, block.sums.score),
    "base_rate": lambda block: _mean(block, block.sums.positive),
    "ece": lambda block: _mean(block, block.coarse_gaps),
    "ecce": lambda block: block.ecce,
    "ecce_sigma": lambda block: block.ecce / block.null_sd,
    "mce": _mce,
    "platt_slope": lambda block: block.where_fitted(block.platt.slope),
    "platt_slope_se": lambda block: block.where_fitted(block.platt.slope_se),
    "platt_intercept": lambda block: block.where_fitted(block.platt.intercept),
    "platt_intercept_se": lambda block: block.where_fitted(block.platt.intercept_se),
    "offset_intercept": lambda block: block.where_fitted(block.offset.intercept),
    "ratio": lambda block: _quotient(_total(block.sums.score), _total(block.sums.positive)),
    "brier": lambda block: _mean(block, block.sums.squared_error),
    "log_loss": lambda block: _mean(block, block.sums.log_loss),
    "effective_n": _effective_n,
}
"""Report key to figure, in the report's order.

`ratio` is sum of scores / sum of labels: above 1 the scores are too high. `ecce` and `ecce_sigma`: Tygert (JMLR
2022), Kuiper form; under perfect calibration `ecce_sigma` averages 1.6 and passes 2.5 in 5 % of windows.
"""


def figures(counts: Ints, *, ece_bins: int = 10, min_count: int = 20) -> dict[str, Floats]:
    """Compute every figure of every series.

    Parameters
    ----------
    counts : int64[S, 284, 9] or int64[S, 284, 23]
        With weights, point figures are those of rows repeated that many times; `n` and `positives` count rows.
    ece_bins : int
        Equal-width bins of `ece` and `mce`.
    min_count : int
        Rows of either class without which slopes and intercepts are absent.

    Returns
    -------
    dict of float64[S]
        NaN is absent. A series' figures do not depend on the series beside it.

    Raises
    ------
    ValueError
        If `ece_bins` does not fit the layout, or `counts` has another shape.
    """
    starts = coarse_starts(ece_bins)
    result = {name: np.empty(len(counts)) for name in FIGURES}
    for first in range(0, len(counts), BLOCK):
        rows = slice(first, first + BLOCK)
        block = Block(counts[rows], starts, min_count)
        for name, figure in FIGURES.items():
            result[name][rows] = figure(block)
    return result
