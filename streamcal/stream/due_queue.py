"""Rows waiting for a watermark to pass their due time."""

from __future__ import annotations

import heapq
from itertools import count

import numpy as np
from numpy.typing import NDArray

__all__ = ["DueQueue"]


class DueQueue:
    """A queue of rows by due time (ms), filled and emptied in batches.

    Each push is kept as one sorted run; a heap orders the runs by their next due time. Event time is
    nearly ordered, so a pop touches few runs.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, NDArray[np.int64], NDArray[np.int32]]] = []
        self._tie = count()

    def push(self, due: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add `rows` with their due times, shape (n,) each."""
        if not len(due):
            return
        order = np.argsort(due, kind="stable")
        self._keep(due[order], rows[order])

    def pop(self, watermark_ms: int) -> NDArray[np.int32]:
        """Take the rows whose due time the watermark has passed (watermark > due)."""
        taken = []
        while self._runs and self._runs[0][0] < watermark_ms:
            _, _, due, rows = heapq.heappop(self._runs)
            cut = int(np.searchsorted(due, watermark_ms, side="left"))
            taken.append(rows[:cut])
            if cut < len(due):
                self._keep(due[cut:], rows[cut:])
        return np.concatenate(taken) if taken else np.empty(0, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of the runs."""
        return sum(due.nbytes + rows.nbytes for _, _, due, rows in self._runs)

    def _keep(self, due: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        heapq.heappush(self._runs, (int(due[0]), next(self._tie), due, rows))
