"""A block of series and what several of their figures share, each part computed once and on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.corp import excess_over_isotonic
from streamcal.stats.grouping import debiased_square
from streamcal.stats.logits import LogitSums, logit_sums
from streamcal.stats.noise import weighted_deviation
from streamcal.stats.platt import OffsetFit, PlattFit, offset_of, platt_of
from streamcal.stats.sums import ScoreSums, score_sums
from streamcal.stats.walk import hidden_excess, span

__all__ = ["Block", "quotient", "total"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def total(values: Floats) -> Floats:
    """Sum over bins."""
    return np.asarray(values.sum(axis=-1))


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """Numerator / denominator; NaN unless the denominator is positive."""
    return np.divide(numerator, denominator, out=np.full_like(denominator, np.nan), where=denominator > 0)


@dataclass(frozen=True)
class Block:
    """Some series; every attribute that is not given is float64[S] unless it says otherwise, NaN where unknown.

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
        """Sum of weights."""
        return total(self.sums.weight)

    @cached_property
    def rate(self) -> Floats:
        """Share of positive outcomes."""
        return self.mean(self.sums.positive)

    @cached_property
    def brier(self) -> Floats:
        """Mean squared error."""
        return self.mean(self.sums.squared_error)

    @cached_property
    def log_loss(self) -> Floats:
        """Mean log loss."""
        return self.mean(self.sums.log_loss)

    def mean(self, values: Floats) -> Floats:
        """Sum over bins by sum of weights."""
        return quotient(total(values), self.weight)

    def coarse(self, values: Floats) -> Floats:
        """Sums over equal-width bins: float64[S, k]."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=1))

    @cached_property
    def coarse_gaps(self) -> Floats:
        """|sum w (y - p)| of each equal-width bin: float64[S, k]."""
        return np.abs(self.coarse(self.sums.gap))

    @cached_property
    def ece(self) -> Floats:
        """Expected calibration error over equal-width bins."""
        return self.mean(self.coarse_gaps)

    @cached_property
    def _noise(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the summed equal-width gaps if every score were right."""
        sums = self.sums
        variance = self.coarse(sums.null_variance)
        variance = np.where(variance > self.coarse(sums.rows) * sums.resolution, variance, 0.0)
        score, square_score = self.coarse(sums.score), self.coarse(sums.square_score)
        rest = self.coarse(sums.weight) - score
        square_rest = self.coarse(sums.square_weight) - square_score
        deviation = weighted_deviation(score, rest, square_score, square_rest, variance)
        # A sum that is always as far from its mean (one row of .5) deviates, but does not vary.
        spread = total(variance - deviation * deviation)
        spread = np.where(spread > 1e-9 * total(variance), spread, 0.0)
        return total(deviation), np.sqrt(spread)

    @cached_property
    def noise_floor(self) -> Floats:
        """Expected ECE if every score were right."""
        # The squares of tiny weights can round to nothing; the noise is then unknown, not none.
        return quotient(np.where(total(self.sums.square_weight) > 0, self._noise[0], np.nan), self.weight)

    @cached_property
    def noise_sd(self) -> Floats:
        """Standard deviation of the ECE if every score were right; absent where it is 0."""
        return quotient(np.where(self._noise[1] > 0, self._noise[1], np.nan), self.weight)

    @cached_property
    def square_error(self) -> Floats:
        """Debiased mean squared calibration error over equal-width bins."""
        sums = self.sums
        parts = (self.coarse(part) for part in (sums.weight, sums.square_weight, sums.positive, sums.gap))
        return quotient(debiased_square(*parts), self.weight)

    @cached_property
    def ecce(self) -> Floats:
        """Range of the summed gap at bin ends, in score order."""
        return quotient(span(self.sums.gap), self.weight)

    @cached_property
    def ecce_sigma(self) -> Floats:
        """Range of the summed gap, with what bins are expected to hide, by its standard deviation."""
        sums = self.sums
        mixed = (sums.row_positives > 0) & (sums.row_positives < sums.rows) & sums.many_scores
        hidden = hidden_excess(sums.gap, np.where(mixed, sums.null_variance, 0.0), sums.rows)
        return (self.ecce + quotient(hidden, self.weight)) / self.null_sd

    @cached_property
    def null_sd(self) -> Floats:
        """Standard deviation of the mean gap if every score were right; absent where it is none.

        A stream of exact zeros and ones has no variance, but the rounding of its counts has.
        """
        return quotient(np.sqrt(self._real(self.sums.null_variance)), self.weight)

    @cached_property
    def spiegelhalter_z(self) -> Floats:
        """Excess of the Brier score over its mean for right scores, in its standard deviation."""
        return total(self.sums.tilted_gap) / np.sqrt(self._real(self.sums.tilted_variance))

    def _real(self, variance: Floats) -> Floats:
        """Sum over bins; NaN where it is within the rounding of the counts."""
        summed = total(variance)
        return np.where(summed > total(self.sums.rows) * self.sums.resolution, summed, np.nan)

    @cached_property
    def reliability(self) -> Floats:
        """Part of the Brier score that recalibration would remove."""
        sums = self.sums
        return quotient(excess_over_isotonic(sums.weight, sums.positive, sums.score), self.weight)

    @cached_property
    def _fitted(self) -> tuple[NDArray[np.bool_], LogitSums]:
        """Series with enough rows of either class, and their logit sums."""
        positives = total(self.sums.row_positives)
        negatives = total(self.sums.rows) - positives
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
