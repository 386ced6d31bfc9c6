"""Logistic regression on functions of the logit, from bins, at the mode of the posterior.

Families that are curves in the logit x differ only in their features: 1 (intercept), x (slope), ln p and -ln(1 - p)
(beta). With eta(x) the sum of the features times their parameters, a row adds y eta - ln(1 + exp(eta)); over the rows
of a bin of mean x and variance v this is expanded to second order about x::

    sum y eta              ~ eta P + eta' sum y (x - mean) + eta'' P v / 2
    sum ln(1 + exp eta)    ~ n (g + v g'' / 2),   g'' = s' eta'^2 + s eta''

with s = sigmoid(eta). The first order alone errs by up to 3e-4 in a slope. The gradient is exact for this objective;
Newton steps use the first-order information, which is within a thousandth of the second, and are halved while they
lose ground. A normal prior on every parameter makes the mode exist whatever the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from streamcal.maps.fit_bins import FitBins

__all__ = ["Feature", "Normal", "constant", "fit_logistic", "line", "log_rest", "log_score"]

Floats = NDArray[np.float64]

_MAX_STEPS: Final = 100
"""Ordinary counts need 5 to 10."""
_TOLERANCE: Final = 1e-14
"""Stop at a Newton decrement this small: 1e-7 standard errors."""
_ROUNDING: Final = 1e-13
"""A loss of this share of the objective is rounding, not a step too far."""


class Normal(NamedTuple):
    """Prior of one parameter; with an `sd` of 0 the parameter is held at its mean."""

    mean: float
    sd: float


class Feature(NamedTuple):
    """A feature and its first two derivatives in x, float64[M] each."""

    value: Floats
    first: Floats
    second: Floats


def constant(x: Floats) -> Feature:
    """Intercept: 1."""
    return Feature(np.ones_like(x), np.zeros_like(x), np.zeros_like(x))


def line(x: Floats) -> Feature:
    """Slope: the logit itself."""
    return Feature(x, np.ones_like(x), np.zeros_like(x))


def log_score(x: Floats) -> Feature:
    """ln p."""  # noqa: D403 -- a formula
    p = expit(x)
    return Feature(-np.logaddexp(0.0, -x), 1.0 - p, -p * (1.0 - p))


def log_rest(x: Floats) -> Feature:
    """-ln(1 - p)."""
    p = expit(x)
    return Feature(np.logaddexp(0.0, x), p, p * (1.0 - p))


def fit_logistic(bins: FitBins, terms: Sequence[tuple[Callable[[Floats], Feature], Normal]]) -> Floats | None:
    """Parameters at the mode of the posterior, float64[K]; None where the iteration does not settle.

    Parameters
    ----------
    bins : FitBins
    terms : sequence of (feature, prior)
        A prior of standard deviation 0 holds its parameter.
    """
    problem = _Problem(bins, terms)
    at: Floats = problem.mean.copy()
    height = problem.objective(at)
    for _ in range(_MAX_STEPS):
        step, decrement = problem.newton(at)
        if decrement < _TOLERANCE:
            return at
        lowest_gain = -_ROUNDING * abs(height)
        share = 1.0
        while not (reached := problem.objective(at + share * step)) - height >= lowest_gain:
            share *= 0.5
            if share < 1e-9:
                return None
        at, height = at + share * step, reached
    return None


class _Problem:
    """The objective, its gradient and its information; the module has the formulas."""

    def __init__(self, bins: FitBins, terms: Sequence[tuple[Callable[[Floats], Feature], Normal]]) -> None:
        features = [feature(bins.x) for feature, _ in terms]
        self.f, self.f1, self.f2 = (np.array(column).reshape(len(terms), -1) for column in zip(*features, strict=True))
        self.mean: Floats
        self.mean, sd = np.array([prior for _, prior in terms]).T
        self.free = sd > 0.0
        self.precision = np.where(self.free, 1.0, 0.0) / np.where(self.free, sd, 1.0) ** 2
        self.n, self.half_v = bins.weight, 0.5 * bins.v
        self.target: Floats = (
            self.f @ bins.positive + self.f1 @ bins.x_positive + self.f2 @ (bins.positive * self.half_v)
        )

    def objective(self, at: Floats) -> float:
        eta, eta1, eta2 = at @ self.f, at @ self.f1, at @ self.f2
        s = expit(eta)
        expected = np.logaddexp(0.0, eta) + self.half_v * (s * (1.0 - s) * eta1 * eta1 + s * eta2)
        away = at - self.mean
        return float(at @ self.target - self.n @ expected - 0.5 * (self.precision * away) @ away)

    def newton(self, at: Floats) -> tuple[Floats, float]:
        """The step to the maximum, and its decrement."""
        eta, eta1, eta2 = at @ self.f, at @ self.f1, at @ self.f2
        s = expit(eta)
        s1 = s * (1.0 - s)
        s2 = s1 * (1.0 - 2.0 * s)
        on_f = s + self.half_v * (s2 * eta1 * eta1 + s1 * eta2)
        on_f1 = self.half_v * 2.0 * s1 * eta1
        on_f2 = self.half_v * s
        expected = self.f @ (self.n * on_f) + self.f1 @ (self.n * on_f1) + self.f2 @ (self.n * on_f2)
        gradient = (self.target - expected - self.precision * (at - self.mean))[self.free]
        f = self.f[self.free]
        information = (f * (self.n * s1)) @ f.T + np.diag(self.precision[self.free])
        step = np.zeros_like(at)
        step[self.free] = np.linalg.solve(information, gradient)
        return step, float(gradient @ step[self.free])
