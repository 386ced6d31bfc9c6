"""Dense totals over a moving run of panes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.cells import CODES_PER_SERIES, Cells, PaneStore, reduce_cells
from streamcal.stats.counts import check_range

__all__ = ["WindowTotal", "add_to_dense", "alive_series"]

Ints = NDArray[np.int64]


class WindowTotal:
    """Sum of the cells of panes start <= pane < stop, dense over codes.

    Guarantee: `values` equals the sum over the store's panes in the range, at all times; integers make
    subtraction exact, so an emptied window is zero. The range moves only forward.

    Parameters
    ----------
    store : PaneStore
        Where panes entering and leaving are read from.
    width : int
        Columns per cell.
    per_series : int
        Codes of one series; the table grows by whole series.
    """

    STATE = ("values", "start", "stop", "_placed")
    """The store has its own."""

    def __init__(self, store: PaneStore, width: int, per_series: int = CODES_PER_SERIES) -> None:
        self._store = store
        self._per_series = per_series
        self.values: Ints = np.zeros((0, width), dtype=np.int64)
        self.start = self.stop = 0
        self._placed = False

    def move(self, start: int, stop: int) -> None:
        """Let the window cover panes start <= pane < stop."""
        if not self._placed:
            self._placed = True
            self.start = self.stop = start
        stop = max(stop, self.stop)
        start = min(max(start, self.start), stop)
        self._add_panes(max(self.stop, start), stop, 1)
        self._add_panes(self.start, min(start, self.stop), -1)
        self.start, self.stop = start, stop

    def add(self, panes: Ints, cells: Cells) -> None:
        """Count cells just added to the store, as far as their panes are inside."""
        inside = (panes >= self.start) & (panes < self.stop)
        if inside.all():
            self._add_cells(cells, 1)
        elif inside.any():
            self._add_cells(Cells(cells.code[inside], cells.values[inside]), 1)

    def alive(self) -> NDArray[np.bool_]:
        """Whether each series has a row in the window."""
        return alive_series(self.values)

    def promote(self, promote: Callable[[Ints], Ints]) -> None:
        """Widen when the stream becomes weighted."""
        self.values = promote(self.values)

    def _add_panes(self, start: int, stop: int, sign: int) -> None:
        for _, cells in self._store.each(start, stop):  # one by one: all at once is megabytes to sort
            self._add_cells(cells, sign)

    def _add_cells(self, cells: Cells, sign: int) -> None:
        if len(cells.code):
            self.values = add_to_dense(self.values, cells, sign, self._per_series)


def add_to_dense(values: Ints, cells: Cells, sign: int = 1, per_series: int = CODES_PER_SERIES) -> Ints:
    """Add (or take away) cells to a dense table by code, growing it where needed, by whole series; returns the table.

    Raises
    ------
    StateLimitError
        A sum would pass 2^62.
    """
    highest = int(cells.code.max())
    if highest >= len(values):
        series = max(highest // per_series + 1, len(values) * 5 // 4 // per_series)
        grown = np.zeros((series * per_series, values.shape[1]), dtype=np.int64)
        grown[: len(values)] = values
        values = grown
    reduced = reduce_cells(cells.code, cells.values)
    summed = values[reduced.code] + sign * reduced.values
    check_range(summed)
    values[reduced.code] = summed
    return values


def alive_series(values: Ints) -> NDArray[np.bool_]:
    """Whether each series of a dense table by code has a row."""
    rows = values[:, 0].reshape(-1, CODES_PER_SERIES)
    alive: NDArray[np.bool_] = np.logical_or.reduce(rows != 0, axis=1)
    return alive
