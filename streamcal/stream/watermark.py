"""The event-time clock of one partition of one topic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["BEGINNING", "END", "Watermark"]

BEGINNING = -(1 << 61)
"""Stands for minus infinity; far enough from the int64 border to add horizons to."""
END = 1 << 61


class Watermark:
    """Largest event time seen, less the allowed disorder; moves only forward.

    Parameters
    ----------
    out_of_order_ms : int
        Disorder allowed within the partition.

    Attributes
    ----------
    value : int
        Milliseconds, `BEGINNING` before the first event. "The watermark passes x" means value > x.
    """

    __slots__ = ("_out_of_order_ms", "value")
    STATE = ("value",)

    def __init__(self, out_of_order_ms: int) -> None:
        self._out_of_order_ms = out_of_order_ms
        self.value = BEGINNING

    def after(self, clock_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Watermark just after each of these events, were they read next; shape (n,), non-decreasing."""
        reached: NDArray[np.int64] = np.maximum.accumulate(clock_ms) - self._out_of_order_ms
        return np.maximum(reached, self.value)

    def before(self, clock_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Watermark just before each of these events, were they read next; shape (n,)."""
        shifted = np.empty(len(clock_ms), dtype=np.int64)
        if len(clock_ms):
            shifted[0] = self.value
            shifted[1:] = self.after(clock_ms[:-1])
        return shifted

    def advance(self, to_ms: int) -> None:
        """Move to `to_ms` if that is ahead."""
        self.value = max(self.value, to_ms)
