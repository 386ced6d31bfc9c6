"""What fits of one model read: raw scores in the frozen parts of panes, in a window that moves with its attempts.

Two stores hold the same rows. *store* sums them by bin and keeps them for the fit window: fits read it. *entering* also
tells them apart by when they were predicted, in steps of a quarter of an hour, and keeps a pane only until an attempt
has read it: whoever judges a map by what it said when the prediction was made needs to know when that was.

Bound of *entering*: no more cells than rows, and no more than bins x steps of the horizon in each pane between two
attempts (284 x 96 x 60 for hourly attempts, panes of a minute and a horizon of a day; a stream of 10,000 rows an hour
fills 10,000 cells, 0.8 MB).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.state.trees import recorded
from streamcal.stats.cells import Cells, PaneStore, reduce_cells
from streamcal.stats.counts import Column
from streamcal.stats.layout import N_BINS
from streamcal.stats.windows import WindowTotal

__all__ = ["STEP_MS", "Entered", "FitPanes", "step_codes", "step_length"]

Ints = NDArray[np.int64]

STEP_MS: Final = 900_000
"""Longest step of prediction time: what the tracking filter moves in, four to an hourly attempt."""

_DAY_MS: Final = 86_400_000


def step_length(pane_ms: int, every_ms: int) -> int:
    """Length of a step of prediction time: whole panes, parts of a day, no longer than `every_ms` where panes allow.

    >>> step_length(60_000, 3_600_000), step_length(600_000, 3_600_000), step_length(1000, 10_000)
    (900000, 600000, 10000)
    """
    if pane_ms >= STEP_MS or _DAY_MS % pane_ms:
        return pane_ms
    panes = _DAY_MS // pane_ms
    most = max(min(every_ms, STEP_MS) // pane_ms, 1)
    return pane_ms * max(count for count in range(1, most + 1) if panes % count == 0)


def step_codes(predicted_ms: Ints, bins: NDArray[np.intp], step_ms: int) -> Ints:
    """Codes of rows by step of prediction and bin: ``step * 284 + bin``; int64 (n,).

    Summing cells over steps (code modulo 284) gives what fits read, so one kind of cell serves both stores.
    """
    return predicted_ms // step_ms * N_BINS + bins


@recorded
@dataclass(frozen=True, slots=True)
class Entered:
    """Rows of the panes that an attempt reads for the first time: one cell per pane, step of prediction and bin.

    Attributes
    ----------
    pane, step, bins : int64[M]
        Ascending by pane, then step, then bin.
    values : int64[M, 9] or int64[M, 23]
    """

    pane: Ints
    step: Ints
    bins: Ints
    values: Ints

    def __len__(self) -> int:
        return len(self.pane)


class FitPanes:
    """Frozen parts of panes by bin, and their total over the fit window.

    Invariant: a pane that an attempt has read never changes. What a source brings for it later (one that joined while
    it was behind the others) corrects the windows, never the evidence.

    Attributes
    ----------
    store : PaneStore
        Code: bin.
    entering : PaneStore
        Code: `step_codes`. Panes not read yet.
    step_ms : int
        Length of its steps; to be set before the first row.
    rows : int64 array, shape (m, 3)
        Panes of the fit window that have rows: pane, rows, positive rows; ascending.
    """

    STATE = ("store", "entering", "rows", "_window", "_width", "_read_until")

    def __init__(self, width: int, step_ms: int = STEP_MS) -> None:
        self.store = PaneStore()
        self.entering = PaneStore()
        self.step_ms = step_ms
        self._window = WindowTotal(self.store, width)
        self._width = width
        self._read_until: int | None = None
        self._entered: list[Entered] = []
        self.rows: Ints = np.empty((0, 3), dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of panes and total."""
        return self.store.nbytes + self.entering.nbytes + self._window.values.nbytes + self.rows.nbytes

    @property
    def stop(self) -> int:
        """The fit window ends before this pane."""
        return self._window.stop

    def add(self, pane: Ints, bins: NDArray[np.intp], values: Ints, predicted_ms: Ints) -> None:
        """Count rows, shape (n,), (n,), (n, width) and (n,), as far as their panes have not been read."""
        self.add_cells(pane, step_codes(predicted_ms, bins, self.step_ms), values)

    def add_cells(self, pane: Ints, code: Ints, values: Ints) -> None:
        """The same from cells by `step_codes`, which need not be reduced."""
        if self._read_until is not None and (pane < self._read_until).any():
            unread = pane >= self._read_until
            pane, code, values = pane[unread], code[unread], values[unread]
        self.store.add(pane, code % N_BINS, values)
        self.entering.add(pane, code, values)

    def move(self, start: int, stop: int) -> bool:
        """Let the fit window cover panes start <= pane < stop, read for good; whether any that came in has rows."""
        first = start if self._read_until is None else max(start, self._read_until)
        self._read_until = max(stop, first)
        self._window.move(start, stop)
        found = [(pane, *_rows_of(cells)) for pane, cells in self.store.each(first, stop)]
        # A pane that corrections have emptied is as one that never was: another reader may not have seen it.
        entering = np.array([entry for entry in found if entry[1]], dtype=np.int64).reshape(-1, 3)
        kept = self.rows[np.searchsorted(self.rows[:, 0], start) :]
        self.rows = np.concatenate([kept, entering])
        self.store.drop_before(start)
        self._entered = _entered(self.entering.drop_before(self._read_until), first)
        return bool(len(entering))

    def take_entered(self) -> Entered:
        """Rows of the panes that came in with the last `move`; they are given once."""
        empty = np.empty(0, dtype=np.int64)
        taken = self._entered or [Entered(empty, empty, empty, np.empty((0, self._width), dtype=np.int64))]
        self._entered = []
        return taken[0]

    def whole(self) -> Ints:
        """Counts of the window; shape (284, width)."""
        whole = np.zeros((N_BINS, self._width), dtype=np.int64)
        held = self._window.values[:N_BINS]
        whole[: len(held)] = held
        return whole

    def split(self, first_newer: int) -> tuple[Ints, Ints]:
        """Counts of the window's panes before `first_newer`, and from it on; shape (284, width) each."""
        newer = self.between(first_newer, self._window.stop)
        return self.whole() - newer, newer

    def between(self, first: int, stop: int) -> Ints:
        """Counts of the panes first <= pane < stop; shape (284, width)."""
        found = np.zeros((N_BINS, self._width), dtype=np.int64)
        cells = self.store.between(first, stop)
        if cells is not None:
            reduced = reduce_cells(cells.code, cells.values)
            found[reduced.code] = reduced.values
        return found

    def promote(self, promote: Callable[[Ints], Ints], width: int) -> None:
        """Widen when the stream becomes weighted."""
        self.store.promote(promote)
        self.entering.promote(promote)
        self._window.promote(promote)
        self._width = width

    def panes(self) -> list[int]:
        """Pane numbers held, ascending."""
        return self.store.panes()

    def of_pane(self, pane: int) -> Cells:
        """The cells of one pane, one per bin."""
        return self.store.of_pane(pane)


def _rows_of(cells: Cells) -> tuple[int, int]:
    n, positives = cells.values[:, [Column.N, Column.Y]].sum(axis=0).tolist()
    return n, positives


def _entered(dropped: tuple[Ints, Cells] | None, first: int) -> list[Entered]:
    """Cells of the panes from `first` on, one per pane and code, those that a correction emptied left out."""
    if dropped is None:
        return []
    pane, cells = dropped
    order = np.lexsort((cells.code, pane))
    order = order[pane[order] >= first]
    if not len(order):
        return []
    pane, code = pane[order], cells.code[order]
    starts = np.flatnonzero(np.concatenate([[True], (pane[1:] != pane[:-1]) | (code[1:] != code[:-1])]))
    values = np.add.reduceat(cells.values[order], starts, axis=0)
    held = values[:, Column.N] != 0
    pane, code = pane[starts][held], code[starts][held]
    return [Entered(pane, code // N_BINS, code % N_BINS, values[held])]
