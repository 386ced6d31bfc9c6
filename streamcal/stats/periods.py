"""UTC calendar periods of the prediction's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Period", "period_ends", "period_index", "period_starts"]

Ints = NDArray[np.int64]
Period = Literal["day", "month"]


def period_index(time_ms: Ints, period: Period) -> Ints:
    """Number of the period of each time, counted from 1970.

    >>> period_index(np.array([0, 86_400_000, 31 * 86_400_000]), "month").tolist()
    [0, 0, 1]
    """
    index: Ints = _periods(time_ms, period).astype(np.int64)
    return index


def period_starts(index: Sequence[int], period: Period) -> list[int]:
    """Start (ms) of periods by number.

    >>> period_starts([1], "month") == [31 * 86_400_000]
    True
    """
    unit: NDArray[np.datetime64] = np.array(index, dtype=np.int64).view(_dtype(period))
    return _as_ms(unit)


def period_ends(starts_ms: Sequence[int], period: Period) -> list[int]:
    """End (ms) of the periods that start at `starts_ms`."""
    return _as_ms(_periods(np.array(starts_ms, dtype=np.int64), period) + 1)


def _dtype(period: Period) -> np.dtype[np.datetime64]:
    return np.dtype("datetime64[D]" if period == "day" else "datetime64[M]")


def _periods(time_ms: Ints, period: Period) -> NDArray[np.datetime64]:
    return time_ms.astype("datetime64[ms]").astype(_dtype(period))


def _as_ms(times: NDArray[np.datetime64]) -> list[int]:
    found: list[int] = times.astype("datetime64[ms]").astype(np.int64).tolist()
    return found
