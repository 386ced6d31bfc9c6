"""Rows waiting for a watermark to pass their due time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["DueQueue"]

Part = TypeVar("Part", NDArray[np.int64], NDArray[np.int32])

_MOST_ALIKE = 8
"""Runs of about one size that may wait side by side; one more and they are merged into one."""
_LONG = 4096
"""Rows from which on a run is left alone: the run itself costs nothing beside them, while merging long runs leaves
holes in the memory (12 bytes per row, measured on a million)."""


class _Run(NamedTuple):
    """Rows sorted by due time; runs compare by their earliest."""

    earliest: int
    tie: int
    due: NDArray[np.int64]
    rows: NDArray[np.int32]

    @property
    def size_class(self) -> int:
        """Equal for runs whose lengths differ by less than a factor of four or so."""
        return (len(self.due).bit_length() + 1) // 2


class DueQueue:
    """A queue of rows by due time (ms), filled and emptied in batches.

    Each push is kept as one sorted run; a heap orders the runs by their next due time. Event time is
    nearly ordered, so a pop touches few runs. Runs of one size are merged when there are many, so that pushing row by
    row costs a logarithm per row and no memory but the rows'.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._tie = count()
        self._alike: dict[int, int] = {}

    def dump_state(self) -> dict[str, Any]:
        """All rows with their due times, sorted."""
        due = np.concatenate([run.due for run in self._runs] or [np.empty(0, dtype=np.int64)])
        rows = np.concatenate([run.rows for run in self._runs] or [np.empty(0, dtype=np.int32)])
        order = np.lexsort((rows, due))
        return {"due": due[order], "rows": rows[order]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        self._runs, self._alike = [], {}
        self.push(state["due"], state["rows"])

    def __len__(self) -> int:
        return sum(len(run.due) for run in self._runs)

    def push(self, due: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        """Add `rows` with their due times, shape (n,) each."""
        if not len(due):
            return
        order = np.argsort(due, kind="stable")
        run = self._keep(due[order], rows[order])
        while len(run.due) < _LONG and self._alike[run.size_class] > _MOST_ALIKE:
            run = self._merge(run.size_class)

    def pop(self, watermark_ms: int) -> NDArray[np.int32]:
        """Take the rows whose due time the watermark has passed (watermark > due)."""
        taken = []
        while self._runs and self._runs[0].earliest < watermark_ms:
            run = heapq.heappop(self._runs)
            self._alike[run.size_class] -= 1
            cut = int(np.searchsorted(run.due, watermark_ms, side="left"))
            taken.append(run.rows[:cut])
            if cut < len(run.due):
                self._keep(_let_go(run.due[cut:]), _let_go(run.rows[cut:]))
        return np.concatenate(taken) if taken else np.empty(0, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of the runs."""
        return sum(_held(run.due) + _held(run.rows) for run in self._runs)

    def _keep(self, due: NDArray[np.int64], rows: NDArray[np.int32]) -> _Run:
        run = _Run(int(due[0]), next(self._tie), due, rows)
        heapq.heappush(self._runs, run)
        self._alike[run.size_class] = self._alike.get(run.size_class, 0) + 1
        return run

    def _merge(self, size_class: int) -> _Run:
        """Make one run of all runs of a size."""
        alike = [run for run in self._runs if run.size_class == size_class]
        self._runs = [run for run in self._runs if run.size_class != size_class]
        heapq.heapify(self._runs)
        self._alike[size_class] = 0
        due, rows = np.concatenate([run.due for run in alike]), np.concatenate([run.rows for run in alike])
        order = np.argsort(due, kind="stable")
        return self._keep(due[order], rows[order])


def _held(part: NDArray[Any]) -> int:
    """Bytes kept alive by a run's array, the entries before it included."""
    return part.nbytes if part.base is None else np.asarray(part.base).nbytes


def _let_go(rest: Part) -> Part:
    """What is left of a run; on its own once half of the array behind it is of no more use."""
    return rest.copy() if 2 * rest.nbytes <= _held(rest) else rest
