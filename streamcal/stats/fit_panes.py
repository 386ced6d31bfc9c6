"""What fits of one model read: raw scores in the frozen parts of panes, in a window that moves with its attempts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.cells import Cells, PaneStore, reduce_cells
from streamcal.stats.counts import Column
from streamcal.stats.layout import N_BINS
from streamcal.stats.windows import WindowTotal

__all__ = ["FitPanes"]

Ints = NDArray[np.int64]


class FitPanes:
    """Frozen parts of panes by bin, and their total over the fit window.

    Invariant: a pane that an attempt has read never changes. What a source brings for it later (one that joined while
    it was behind the others) corrects the windows, never the evidence.

    Attributes
    ----------
    store : PaneStore
        Code: bin.
    rows : int64 array, shape (m, 3)
        Panes of the fit window that have rows: pane, rows, positive rows; ascending.
    """

    STATE = ("store", "rows", "_window", "_width", "_read_until")

    def __init__(self, width: int) -> None:
        self.store = PaneStore()
        self._window = WindowTotal(self.store, width)
        self._width = width
        self._read_until: int | None = None
        self.rows: Ints = np.empty((0, 3), dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of panes and total."""
        return self.store.nbytes + self._window.values.nbytes + self.rows.nbytes

    def add(self, pane: Ints, bins: NDArray[np.intp], values: Ints) -> None:
        """Count rows, shape (n,), (n,) and (n, width), as far as their panes have not been read."""
        if self._read_until is not None and (pane < self._read_until).any():
            unread = pane >= self._read_until
            pane, bins, values = pane[unread], bins[unread], values[unread]
        self.store.add(pane, bins.astype(np.int64), values)

    def move(self, start: int, stop: int) -> bool:
        """Let the fit window cover panes start <= pane < stop, read for good; whether any that came in has rows."""
        first = start if self._read_until is None else max(start, self._read_until)
        self._read_until = max(stop, first)
        self._window.move(start, stop)
        found = [(pane, *_rows_of(cells)) for pane, cells in self.store.each(first, stop)]
        entering = np.array(found, dtype=np.int64).reshape(-1, 3)
        kept = self.rows[np.searchsorted(self.rows[:, 0], start) :]
        self.rows = np.concatenate([kept, entering])
        self.store.drop_before(start)
        return bool(len(entering))

    def split(self, first_newer: int) -> tuple[Ints, Ints]:
        """Counts of the window's panes before `first_newer`, and from it on; shape (284, width) each."""
        whole = np.zeros((N_BINS, self._width), dtype=np.int64)
        held = self._window.values[:N_BINS]
        whole[: len(held)] = held
        newer = np.zeros_like(whole)
        cells = self.store.between(first_newer, self._window.stop)
        if cells is not None:
            reduced = reduce_cells(cells.code, cells.values)
            newer[reduced.code] = reduced.values
        return whole - newer, newer

    def promote(self, promote: Callable[[Ints], Ints], width: int) -> None:
        """Widen when the stream becomes weighted."""
        self.store.promote(promote)
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
