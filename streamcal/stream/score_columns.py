"""Columns of decoded scores, map versions and weights as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.events import NO_VERSION

__all__ = ["clip", "raw_scores", "versions", "weights"]


def clip(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Scores in [0, 1] and how many were not; NaN stays."""
    outside = int(((scores < 0.0) | (scores > 1.0)).sum())
    return (np.clip(scores, 0.0, 1.0) if outside else scores), outside


def versions(column: Sequence[Any] | None, count: int) -> NDArray[np.int64]:
    """Map versions; `NO_VERSION` where there is none."""
    if column is None or column.count(None) == count:
        return np.full(count, NO_VERSION, dtype=np.int64)
    return np.array([NO_VERSION if v is None else v for v in column], dtype=np.int64)


def raw_scores(
    column: Sequence[Any] | None, served: NDArray[np.float64], version: NDArray[np.int64]
) -> tuple[NDArray[np.float64], int]:
    """Raw scores and how many were clipped: as given, else the served one, else (under a map) unknown."""
    own = np.where(version == NO_VERSION, served, np.nan)
    if column is None or column.count(None) == len(column):
        return own, 0
    given = np.array(column, dtype=np.float64)  # None becomes NaN
    raw, clipped = clip(given)
    return np.where(np.isnan(given), own, raw), clipped


def weights(column: Sequence[Any] | None) -> NDArray[np.float64] | None:
    """Weights; None when all are 1."""
    if column is None or column.count(None) == len(column):
        return None
    given = np.array(column, dtype=np.float64)
    given[np.isnan(given)] = 1.0
    return None if (given == 1.0).all() else given
