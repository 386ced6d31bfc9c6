"""Which series have rows in the panes held, and since when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.cells import Cells, PaneStore, series_of
from streamcal.stats.series import SeriesTable
from streamcal.stats.windows import WindowTotal

__all__ = ["Presence"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Presence:
    """Keeps `SeriesTable.first_pane`: where the present run of each series began.

    A run ends where no pane of a whole window has rows. Gaps are judged between panes that have rows, not by where
    event time happened to stop, so that a run does not depend on how far event time moved at once.

    Parameters
    ----------
    series : SeriesTable
    store : PaneStore
        The panes held.
    longest : WindowTotal
        The longest window over them.
    span : int
        Its panes.
    """

    STATE = ("_rows",)
    """The panes, the window and the table of series have their own."""

    def __init__(self, series: SeriesTable, store: PaneStore, longest: WindowTotal, span: int) -> None:
        self._series = series
        self._store = store
        self._longest = longest
        self._span = span
        self._rows: Ints = np.zeros(0, dtype=np.int64)

    def note(self, series: Ints, pane: Ints) -> None:
        """Rows of these series were added to these panes, shape (n,) each."""
        np.minimum.at(self._series.first_pane, series, pane)

    def enter(self, cells: Cells) -> None:
        """Count what is held from now on."""
        self._add(series_of(cells.code), cells.values[:, 0])

    def leave(self, pane: Ints, cells: Cells) -> Ints:
        """Let go of dropped cells, `pane[i]` that of cell i; return the series that have no row left."""
        series = series_of(cells.code)
        self._add(series, -cells.values[:, 0])
        if int(pane.max()) - int(pane.min()) > self._span:
            self._look_for_gaps(series, pane)
        touched, last = _last_panes(series, pane)
        quiet = self._rows[touched] == 0
        # With a row in the window that begins right behind the last pane the run goes on.
        sure = self._in_window(touched) & (self._longest.stop <= last + self._span + 1)
        unsure = ~quiet & ~sure
        if unsure.any():
            self._begin_again(dict(zip(touched[unsure].tolist(), last[unsure].tolist(), strict=True)))
        gone: Ints = touched[quiet]
        return gone

    def _add(self, series: Ints, rows: Ints) -> None:
        if len(self._rows) < len(self._series):
            room = max(len(self._series), 2 * len(self._rows)) - len(self._rows)
            self._rows = np.concatenate([self._rows, np.zeros(room, dtype=np.int64)])
        np.add.at(self._rows, series, rows)

    def _in_window(self, series: Ints) -> Bools:
        alive = self._longest.alive()
        inside = series < len(alive)
        inside[inside] = alive[series[inside]]
        return inside

    def _look_for_gaps(self, series: Ints, pane: Ints) -> None:
        """Set the first pane of series with a gap among the dropped panes to that behind the last gap."""
        order = np.lexsort((pane, series))
        series, pane = series[order], pane[order]
        behind = np.append(False, (series[1:] == series[:-1]) & (pane[1:] - pane[:-1] > self._span))
        # Of several gaps of a series the last is written last.
        self._series.first_pane[series[behind]] = pane[behind]

    def _begin_again(self, last: dict[int, int]) -> None:
        """Set the first pane of series whose next row lies beyond a whole window from their last."""
        for pane in self._store.panes():
            if not last:
                return
            cells = self._store.of_pane(pane)
            here = set(series_of(cells.code[cells.values[:, 0] != 0]).tolist())
            for series in here.intersection(last):
                if pane - last.pop(series) > self._span:
                    self._series.first_pane[series] = pane


def _last_panes(series: Ints, pane: Ints) -> tuple[Ints, Ints]:
    """The distinct series, and the highest pane of each."""
    touched, place = np.unique(series, return_inverse=True)
    last = np.full(len(touched), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(last, place, pane)
    return touched, last
