"""Rows of equal code counted, fast where codes are few and small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["tallied"]

_SMALL = 1 << 20
"""Codes below it are counted by place (8 MB at most), others sorted."""

Ints = NDArray[np.int64]


def tallied(code: Ints, *weights: NDArray[np.float64]) -> tuple[Ints, list[Ints]]:
    """Distinct codes, ascending, and per code the rows and the sum of each of `weights`.

    Parameters
    ----------
    code : int64[n]
        At least 0.
    weights : float64[n]
        Whole numbers; sums are exact up to 2^53.

    >>> [part.tolist() for part in tallied(np.array([7, 2, 7]), np.array([1.0, 5.0, 10.0]))[1]]
    [[1, 2], [5, 11]]
    """
    if not len(code):
        return code, [code for _ in range(1 + len(weights))]
    if int(code.max()) < max(_SMALL, 4 * len(code)):
        rows = np.bincount(code)
        distinct = np.flatnonzero(rows)
        sums = [np.bincount(code, weight)[distinct] for weight in weights]
        return distinct, [rows[distinct], *(np.rint(total).astype(np.int64) for total in sums)]
    distinct, place, count = np.unique(code, return_inverse=True, return_counts=True)
    sums = [np.bincount(place, weight) for weight in weights]
    return distinct, [count, *(np.rint(total).astype(np.int64) for total in sums)]
