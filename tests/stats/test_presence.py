"""Since when a segment is there: by its own panes, not by how event time came along."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.stats.cells import CODES_PER_SERIES, PaneStore
from streamcal.stats.presence import Presence
from streamcal.stats.series import SeriesTable
from streamcal.stats.windows import WindowTotal
from streamcal.stream.events import Names

SPAN = 10


class Held:
    """Panes, the longest window over them, and who is present: as the aggregate keeps them."""

    def __init__(self) -> None:
        names = Names(("country",))
        self.series = SeriesTable(names, ((), ("country",)), 100)
        profile = np.array([names.profile((c,)) for c in "ab"], dtype=np.int32)
        self.a, self.b = self.series.of_rows(np.zeros(2, dtype=np.int32), profile)[1].tolist()
        self.store = PaneStore()
        self.window = WindowTotal(self.store, 1)
        self.presence = Presence(self.series, self.store, self.window, SPAN)

    def add(self, series: int, panes: list[int]) -> None:
        pane = np.array(panes, dtype=np.int64)
        code = np.full(len(panes), series * CODES_PER_SERIES)
        cells = self.store.add(pane, code, np.ones((len(panes), 1), dtype=np.int64))
        self.window.add(*cells)
        self.presence.enter(cells[1])
        self.presence.note(np.full(len(panes), series), pane)

    def move(self, stop: int) -> list[int]:
        self.window.move(stop - SPAN, stop)
        dropped = self.store.drop_before(stop - SPAN)
        return [] if dropped is None else self.presence.leave(*dropped).tolist()


@given(
    panes=st.lists(st.integers(0, 80), min_size=1, max_size=12),
    stops=st.lists(st.integers(1, 90), max_size=12).map(sorted),
)
def test_a_run_goes_back_to_the_last_gap_of_a_whole_window(panes: list[int], stops: list[int]) -> None:
    held = Held()
    held.add(held.a, panes)
    held.add(held.b, list(range(100)))
    gone = False
    for stop in stops:
        gone |= held.a in held.move(stop)
        kept = sorted({pane for pane in panes if pane >= stop - SPAN})
        assert gone == (not kept)
        if gone:
            return
        run = kept[0]
        for pane in sorted(set(panes), reverse=True):
            if pane < run:
                if run - pane > SPAN:
                    break
                run = pane
        assert held.series.first_pane[held.a] == run


def test_a_series_is_gone_with_its_last_row_even_where_cells_of_zero_stay() -> None:
    held = Held()
    held.add(held.a, [1, 5])
    pane, code = np.array([5]), np.array([held.a * CODES_PER_SERIES])
    cells = held.store.add(pane, code, np.array([[-1]]))
    held.presence.enter(cells[1])
    assert held.move(SPAN + 2) == [held.a]
