"""The counts of `recount_counts` for many rows at once: the same formulas on numpy arrays, nothing of the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from recount_counts import CENTRES, CLIP, EDGES

__all__ = ["count_rows", "row_columns_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _atanh_series(z: Floats) -> Floats:
    z2 = z * z
    value = 1 / 13 + z2 * (1 / 15)
    for odd in (11, 9, 7, 5, 3):
        value = 1 / odd + z2 * value
    result: Floats = z * (1 + z2 * value)
    return result


def row_columns_of(p: Floats, y: Ints) -> tuple[Ints, Ints]:
    """Bin and the nine columns of every row, shapes (n,) and (n, 9)."""
    bins = np.searchsorted(np.array(EDGES), p.astype(np.float32).astype(np.float64), side="left")
    c = np.array(CENTRES)[bins]
    q = np.clip(p, CLIP, 1 - CLIP)
    h = 2 * _atanh_series((q - c) / (q + c - 2 * q * c))
    loss = -2 * _atanh_series(np.where(y == 1, (q - c) / (q + c), (c - q) / ((1 - q) + (1 - c))))
    dp, dx = np.rint((p - c) * 2.0**38), np.rint(h * 2.0**32)
    squares = np.rint((p - c) * (p - c) * 2.0**44), np.rint(h * h * 2.0**31)
    columns = [np.ones(len(p)), y, dp, y * dp, squares[0], dx, squares[1], y * dx, np.rint(loss * 2.0**36)]
    return bins, np.stack(columns, axis=1).astype(np.int64)


def count_rows(p: Floats, y: Ints, groups: Mapping[str, Sequence[str]]) -> dict[str, dict[int, list[int]]]:
    """Bins with rows per segment; `groups` maps each cut to the segment key of every row."""
    bins, columns = row_columns_of(p, y)
    found: dict[str, dict[int, list[int]]] = {}
    for keys in groups.values():
        names, place = np.unique(np.array(keys), return_inverse=True)
        sums = np.zeros((len(names), len(EDGES) + 1, columns.shape[1]), dtype=np.int64)
        np.add.at(sums, (place, bins), columns)
        for name, held in zip(names.tolist(), sums, strict=True):
            found[name] = {int(b): held[b].tolist() for b in np.flatnonzero(held[:, 0])}
    return found
