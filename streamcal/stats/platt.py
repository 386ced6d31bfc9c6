"""Platt slope and intercept from binned counts, for many series at once.

The model is p' = sigmoid(slope * logit(p) + intercept); slope < 1 means over-confident scores. One Newton
iteration serves the figures (maximum likelihood), the maps (maximum a posteriori, centred on the identity) and
the offset-only intercept (slope held at 1).

A step is shortened so that no logit moves by more than a radius. At radius 1 it always ascends (a logistic
likelihood's third derivative is bounded by its second times the logit's move: Bach 2010, self-concordant
analysis). The radius doubles while steps fall short of the maximum along their direction, which is ascent too,
the likelihood being concave; each overshoot halves it, down to 1, and ends the doubling. So no objective is ever
evaluated. What has no answer is reported as such: separated classes, a single score value, no convergence. No
iterate at which the loop gave up ever leaves this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.logits import Information, LogitSums, logit_sums
from streamcal.stats.sums import MIN_VARIANCE

__all__ = ["OffsetFit", "PlattFit", "Prior", "fit_offset", "fit_platt", "offset_of", "platt_of"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MAX_STEPS: Final = 300
"""Ordinary data need 5 to 10 and all but a few of 3,000 odd and separated sets 30. At radius 1 a score at the clip
(logit 16) lets the slope move by 1/16 a step, so the way to `SLOPE_LIMIT` can take 240."""

TOLERANCE: Final = 1e-14
"""Stop at a Newton decrement (score times step) this small: a step of 1e-7 standard errors, after which the
quadratic convergence leaves nothing. In standard errors, so that rounding over 1e9 rows does not keep it going."""

SLOPE_LIMIT: Final = 16.0
"""1 / (half a bin's width): beyond it the expansion inside a bin means nothing."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Independent normal priors; the defaults are the identity map, worth a handful of positives."""

    slope_mean: float = 1.0
    slope_sd: float = 0.5
    intercept_mean: float = 0.0
    intercept_sd: float = 1.0


@dataclass(frozen=True, slots=True)
class PlattFit:
    """One fit per series; numbers are float64[S], NaN where `converged` (bool[S]) is false."""

    slope: Floats
    intercept: Floats
    slope_se: Floats
    intercept_se: Floats
    converged: Bools


@dataclass(frozen=True, slots=True)
class OffsetFit:
    """Intercept at slope 1, per series; float64[S], NaN where `converged` (bool[S]) is false."""

    intercept: Floats
    intercept_se: Floats
    converged: Bools


def fit_platt(counts: NDArray[np.int64], *, prior: Prior | None = None) -> PlattFit:
    """Fit slope and intercept of every series.

    Parameters
    ----------
    counts : int64[S, 284, 9] or int64[S, 284, 23]
    prior : Prior, optional
        None: maximum likelihood, absent where it does not exist. With a prior separated rows have an answer too
        (unless millions of them push the slope beyond 16), and a series without rows gets the prior itself.

    Returns
    -------
    PlattFit
        Standard errors come from the inverse information (with a prior: of the posterior); in weighted
        streams from the sandwich with sum w^2, so that they do not shrink when all weights double.
    """
    return platt_of(logit_sums(counts), prior=prior)


def fit_offset(counts: NDArray[np.int64]) -> OffsetFit:
    """Fit the intercept of every series with the slope held at 1, by maximum likelihood.

    Parameters
    ----------
    counts : int64[S, 284, 9] or int64[S, 284, 23]

    Returns
    -------
    OffsetFit
        Absent where only one class is present.
    """
    return offset_of(logit_sums(counts))


def platt_of(sums: LogitSums, *, prior: Prior | None = None) -> PlattFit:
    """`fit_platt` on sums already collected."""
    if prior is None:
        empty = np.full((4, sums.n_series), np.nan)
        knowable = np.zeros(len(sums.series), dtype=np.bool_)
        if len(sums.series):
            knowable = sums.spans_overlap() & (sums.variance() > MIN_VARIANCE)
        part = sums.take(knowable)
    else:
        start = [prior.intercept_mean, prior.slope_mean, prior.intercept_sd, prior.slope_sd]
        empty = np.repeat(np.array(start)[:, None], sums.n_series, axis=1)
        part = sums
    converged = np.full(sums.n_series, prior is not None)
    converged[sums.series] = False
    solution = _solve(part, prior, slope_free=True)
    empty[:, sums.series] = np.nan
    empty[:, part.series] = solution.values
    converged[part.series] = solution.converged
    intercept, slope, intercept_se, slope_se = empty
    return PlattFit(slope, intercept, slope_se, intercept_se, converged)


def offset_of(sums: LogitSums) -> OffsetFit:
    """`fit_offset` on sums already collected."""
    part = sums
    if len(sums.series):
        negative = np.add.reduceat(sums.negative_weight, sums.starts)
        part = sums.take((sums.positive > 0) & (negative > 0))
    solution = _solve(part, None, slope_free=False)
    values = np.full((4, sums.n_series), np.nan)
    converged = np.zeros(sums.n_series, dtype=np.bool_)
    values[:, part.series] = solution.values
    converged[part.series] = solution.converged
    return OffsetFit(values[0], values[2], converged)


@dataclass(frozen=True, slots=True)
class _Solution:
    """`values` float64[4, A]: intercept, slope and their standard errors; NaN where not converged."""

    values: Floats
    converged: Bools


@dataclass(slots=True)
class _Iterates:
    """Where each series stands (float64[A]): parameters, the step that led there, and the radius of the next."""

    a: Floats
    b: Floats
    last_a: Floats
    last_b: Floats
    radius: Floats
    growing: Bools

    @classmethod
    def start(cls, size: int) -> _Iterates:
        """The identity map; the first `resize`, after no step at all, doubles the radius to 1."""
        zeros = np.zeros(size)
        return cls(zeros, np.ones(size), zeros, zeros, np.full(size, 0.5), np.ones(size, dtype=np.bool_))

    def resize(self, slope_a: Floats, slope_b: Floats) -> None:
        """Choose the radius by the score at the point reached: against the last step, that step overshot."""
        overshot = slope_a * self.last_a + slope_b * self.last_b < 0
        self.growing = self.growing & ~overshot
        factor = np.where(overshot, 0.5, np.where(self.growing, 2.0, 1.0))
        self.radius = np.maximum(self.radius * factor, 1.0)

    def move(self, step_a: Floats, step_b: Floats, lo: Floats, hi: Floats) -> None:
        """Take the step, shortened so that no logit from `lo` to `hi` (nor the slope) moves beyond the radius."""
        ends = np.maximum(np.abs(step_a + step_b * lo), np.abs(step_a + step_b * hi))
        share = self.radius / np.maximum(np.maximum(ends, np.abs(step_b)), self.radius)
        self.last_a, self.last_b = share * step_a, share * step_b
        self.a, self.b = self.a + self.last_a, self.b + self.last_b

    def take(self, keep: Bools) -> _Iterates:
        """The series marked in `keep`."""
        a, b, last_a, last_b = self.a[keep], self.b[keep], self.last_a[keep], self.last_b[keep]
        return _Iterates(a, b, last_a, last_b, self.radius[keep], self.growing[keep])


def _solve(sums: LogitSums, prior: Prior | None, *, slope_free: bool) -> _Solution:
    """Newton over all series of `sums`; each leaves as soon as it has converged or failed."""
    total = len(sums.series)
    values = np.full((4, total), np.nan)
    converged = np.zeros(total, dtype=np.bool_)
    where, part, at = np.arange(total), sums, _Iterates.start(total)
    for _ in range(MAX_STEPS):
        if not len(where):
            break
        score_a, score_b, information = _posterior(part, at.a, at.b, prior, slope_free=slope_free)
        at.resize(score_a, score_b)
        inverse = _inverse_determinant(information)
        step_a = (information.bb * score_a - information.ab * score_b) * inverse
        step_b = (information.aa * score_b - information.ab * score_a) * inverse
        at.move(step_a, step_b, *part.reach())
        failed = ~(information.determinant() > 0) | (np.abs(at.b) > SLOPE_LIMIT)
        done = ~failed & (score_a * step_a + score_b * step_b < TOLERANCE)
        if done.any():
            errors = _standard_errors(part, at.a, at.b, information, prior, slope_free=slope_free)
            values[:, where[done]] = np.stack([at.a, at.b, *errors])[:, done]
            converged[where[done]] = True
        if (done | failed).any():
            going = ~(done | failed)
            where, part, at = where[going], part.take(going), at.take(going)
    return _Solution(values, converged)


def _posterior(
    sums: LogitSums, a: Floats, b: Floats, prior: Prior | None, *, slope_free: bool
) -> tuple[Floats, Floats, Information]:
    """Score by intercept and slope, and the information, at (a, b); of the likelihood alone without a prior."""
    expected, x_expected, information = sums.cells.evaluate(a, b, sums.starts, sums.sizes)
    score_a, score_b = sums.positive - expected, sums.x_positive - x_expected
    if prior is not None:
        precision_a, precision_b = prior.intercept_sd**-2, prior.slope_sd**-2
        score_a -= precision_a * (a - prior.intercept_mean)
        score_b -= precision_b * (b - prior.slope_mean)
        information = information.plus(precision_a, precision_b)
    if not slope_free:
        information = _without_slope(information)
        score_b = np.zeros_like(score_b)
    return score_a, score_b, information


def _inverse_determinant(information: Information) -> Floats:
    """1 for a singular matrix: the caller drops such a series, whatever its step."""
    determinant = information.determinant()
    return 1.0 / np.where(determinant > 0, determinant, 1.0)


def _without_slope(information: Information) -> Information:
    return Information(information.aa, np.zeros_like(information.ab), np.ones_like(information.bb))


def _standard_errors(
    sums: LogitSums, a: Floats, b: Floats, information: Information, prior: Prior | None, *, slope_free: bool
) -> tuple[Floats, Floats]:
    """Of intercept and slope: root of the diagonal of A^-1 B A^-1, where B = A unless rows carry weights."""
    bread = information
    if sums.square_cells is None:
        meat = bread
    else:
        _, _, meat = sums.square_cells.evaluate(a, b, sums.starts, sums.sizes)
        if prior is not None:
            meat = meat.plus(prior.intercept_sd**-2, prior.slope_sd**-2)
        if not slope_free:
            meat = _without_slope(meat)
    inverse = _inverse_determinant(bread)
    aa, ab, bb = bread.bb * inverse, -bread.ab * inverse, bread.aa * inverse
    variance_a = aa * aa * meat.aa + 2 * aa * ab * meat.ab + ab * ab * meat.bb
    variance_b = ab * ab * meat.aa + 2 * ab * bb * meat.ab + bb * bb * meat.bb
    return np.sqrt(np.maximum(variance_a, 0.0)), np.sqrt(np.maximum(variance_b, 0.0))
