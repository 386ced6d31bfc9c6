"""Calibration errors of grouped layout bins: equal mass, and the debiased square."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["debiased_square", "equal_mass_gap"]

Floats = NDArray[np.float64]

_LEAST_SPREAD: Final = 1e-6
"""Share of (sum w)^2 that must not be one row's: less is within the rounding of sum w^2."""


def equal_mass_gap(weight: Floats, gap: Floats, groups: int) -> Floats:
    """Sum of |sum w (y - p)| over `groups` groups of about equal weight.

    A group ends at the bin end nearest to its share of the weight, so scores of one bin, ties above all, stay
    together; a bin heavier than a group leaves fewer groups.

    Parameters
    ----------
    weight, gap : float64[S, B]
        sum w and sum w (y - p) per bin, in score order.
    groups : int

    Returns
    -------
    float64[S]
    """
    every = np.arange(len(weight))
    zero = np.zeros((len(weight), 1))
    mass = np.concatenate([zero, np.cumsum(weight, axis=1)], axis=1)
    walk = np.concatenate([zero, np.cumsum(gap, axis=1)], axis=1)
    total = np.zeros(len(weight))
    last = walk[:, 0]
    for k in range(1, groups):
        share = mass[:, -1] * (k / groups)
        upper = np.maximum(np.sum(mass < share[:, None], axis=1), 1)
        nearer = mass[every, upper] - share <= share - mass[every, upper - 1]
        at = walk[every, np.where(nearer, upper, upper - 1)]
        total += np.abs(at - last)
        last = at
    return np.asarray(total + np.abs(walk[:, -1] - last))


def debiased_square(weight: Floats, square_weight: Floats, positive: Floats, gap: Floats) -> Floats:
    """Unbiased estimate of sum w d^2 over groups, d the difference of true rate and mean score of a group.

    A group's squared difference exceeds the true one by the variance of its observed rate, which is subtracted:
    rate (1 - rate) / (n - 1) (Kumar, Liang and Ma 2019), n being (sum w)^2 / sum w^2 where rows carry weights. A
    group of one row tells nothing and adds nothing.

    Parameters
    ----------
    weight, square_weight, positive, gap : float64[S, k]
        sum w, sum w^2, sum w y and sum w (y - p) per group.

    Returns
    -------
    float64[S]
        Can be negative, as an unbiased estimate of a small square must be.
    """
    spread = weight * weight - square_weight
    enough = spread > _LEAST_SPREAD * weight * weight
    held = np.where(enough, weight, 1.0)
    noise = positive * (held - positive) / held * square_weight / np.where(enough, spread, 1.0)
    return np.asarray(np.where(enough, gap * gap / held - noise, 0.0).sum(axis=1))
