"""How far scores have moved from a reference, before any label: the population stability index.

The groups have about equal mass in the reference. A layout bin goes whole, by the middle of its mass, so a score that
very many rows share is a group of its own and what lies beyond the reference is told apart from it.

With K groups, n rows and m rows of the reference, and r, a the shares of a group (half a row added to each group, so an
empty one costs a finite amount): ``sum (a - r) ln (a / r)``. Without a shift it is about (1/n + 1/m) times a chi-square
variable with K - 1 degrees of freedom (Yurdakul, Western Michigan University 2018): the *noise floor* is its mean.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["GROUPS", "MIN_ROWS", "population_stability"]

GROUPS: Final = 10
MIN_ROWS: Final = 200
"""With fewer rows the floor alone, 9/n, nears .05, and the index is read against .1."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def population_stability(current: Ints, reference: Ints) -> tuple[Floats, Floats]:
    """Index and noise floor of each series; NaN where either side has fewer than `MIN_ROWS` rows.

    Parameters
    ----------
    current, reference : int64[S, B]
        Rows per bin, in score order.

    Returns
    -------
    float64[S], float64[S]
    """
    n, m = current.sum(axis=1), reference.sum(axis=1)
    enough = (n >= MIN_ROWS) & (m >= MIN_ROWS)
    index, floor = np.full(len(n), np.nan), np.full(len(n), np.nan)
    if enough.any():
        groups = _groups(reference[enough])
        index[enough], floor[enough] = _index(_by_group(current[enough], groups), _by_group(reference[enough], groups))
    return index, floor


def _groups(reference: Ints) -> Ints:
    """Group of every bin, by the middle of its mass; in whole numbers, so that no rounding moves a bin."""
    total = reference.sum(axis=1, keepdims=True)
    middle = 2 * np.cumsum(reference, axis=1) - reference
    group: Ints = np.minimum(middle * GROUPS // (2 * total), GROUPS - 1)
    return group


def _by_group(counts: Ints, groups: Ints) -> Floats:
    place = (np.arange(len(counts))[:, None] * GROUPS + groups).ravel()
    summed = np.bincount(place, counts.ravel(), len(counts) * GROUPS)
    return summed.astype(np.float64).reshape(len(counts), GROUPS)


def _index(current: Floats, reference: Floats) -> tuple[Floats, Floats]:
    held = (current + reference) > 0
    number = held.sum(axis=1)
    n, m = current.sum(axis=1), reference.sum(axis=1)
    share = np.where(held, (current + 0.5) / (n + 0.5 * number)[:, None], 1.0)
    before = np.where(held, (reference + 0.5) / (m + 0.5 * number)[:, None], 1.0)
    index = np.sum((share - before) * np.log(share / before), axis=1)
    return index, (number - 1) * (1 / n + 1 / m)
