"""Laplace's approximation of a logistic likelihood under a normal prior, for several priors side by side.

A step of Newton's is shortened so that no logit moves by more than 1, where it always ascends: the likelihood's third
derivative is bounded by its second times the logit's move (self-concordance, Bach 2010). So no objective is evaluated
and a first pane of a million rows, far from its prior, is as safe as the thousandth.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = ["Posterior", "Rows", "laplace"]

Floats = NDArray[np.float64]

MAX_STEPS: Final = 60
"""A usual pane takes two or three; 16 logits of distance take 20."""

TOLERANCE: Final = 1e-12
"""Stop at a Newton decrement this small: a step of 1e-6 standard errors."""


class Rows(NamedTuple):
    """Labelled rows merged by bin; every array is float64[M].

    Attributes
    ----------
    weight, positive : sum of weights, all and positive ones.
    logit : mean raw logit.
    """

    weight: Floats
    positive: Floats
    logit: Floats

    def log_loss(self, z: Floats) -> Floats:
        """Summed log loss, in nats, at served logits `z` (float64[K, M]); float64[K]."""
        return np.asarray((self.weight * np.logaddexp(0.0, z) - self.positive * z).sum(axis=-1))


class Posterior(NamedTuple):
    """`mean` float64[K, d] and `covariance` float64[K, d, d]."""

    mean: Floats
    covariance: Floats


def laplace(rows: Rows, design: Floats, free: Floats, offset: Floats, mean: Floats, covariance: Floats) -> Posterior:
    """Mode and inverse curvature of each posterior.

    Parameters
    ----------
    rows : Rows
    design : float64[M, d]
        Served logit = offset + design @ parameters.
    free : float64[K, d]
        1 where a parameter of a prior is fitted, 0 where it has no part (it keeps its prior, which must not be
        correlated with the others).
    offset : float64[K, M]
    mean, covariance : float64[K, d], float64[K, d, d]
        Priors.
    """
    precision = np.linalg.inv(covariance)
    at = mean.copy()
    information = precision
    for _ in range(MAX_STEPS):
        served = expit(offset + at @ design.T)
        score = free * ((rows.positive - rows.weight * served) @ design)
        score -= np.einsum("kij,kj->ki", precision, at - mean)
        curvature = _curvature(rows.weight * served * (1.0 - served), design)
        information = precision + curvature * free[:, :, None] * free[:, None, :]
        step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
        moved = np.abs((step * free) @ design.T).max(axis=1)
        at = at + step / np.maximum(moved, 1.0)[:, None]
        if ((score * step).sum(axis=1) < TOLERANCE).all():
            break
    return Posterior(at, np.linalg.inv(information))


def _curvature(weight: Floats, design: Floats) -> Floats:
    """Sum of weight * d d' over the rows, for each of K weightings; one matrix product."""
    width = design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).reshape(-1, width * width)
    return np.asarray((weight @ products).reshape(-1, width, width))
