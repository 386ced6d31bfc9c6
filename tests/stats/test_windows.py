"""Moving totals: always the sum of the panes they cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.errors import StateLimitError
from streamcal.stats.cells import CODES_PER_SERIES, Cells, PaneStore
from streamcal.stats.windows import WindowTotal, add_to_dense, alive_series

Rows = list[tuple[int, int, int]]
ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([0, 3, 700, 1500]), st.integers(-3, 3)), min_size=1, max_size=8
)
MOVES = st.tuples(st.integers(0, 6), st.integers(0, 60))


def add(store: PaneStore, window: WindowTotal, rows: Rows) -> None:
    table = np.array(rows, dtype=np.int64)
    window.add(*store.add(table[:, 0], table[:, 1], table[:, 2:]))


@given(st.lists(st.one_of(ROWS, MOVES), max_size=20))
def test_the_total_is_the_sum_of_the_panes_covered_after_every_step(steps: list[Rows | tuple[int, int]]) -> None:
    store, held, stop, start = PaneStore(), [], 0, 0
    window = WindowTotal(store, 1)
    moved = False
    for step in steps:
        if isinstance(step, list):
            add(store, window, step)
            held += step
        else:
            length, to = step
            stop = max(stop, to) if moved else to
            start = min(max(start, to - length), stop) if moved else to - length
            window.move(to - length, to)
            moved = True
            store.drop_before(start)
            held = [row for row in held if row[0] >= start]
        total = np.zeros(len(window.values), dtype=np.int64)
        for pane, code, n in held:
            if moved and start <= pane < stop and n:
                total[code] += n
        assert window.values[:, 0].tolist() == total.tolist()


def test_a_window_left_by_its_rows_is_exactly_zero_and_no_series_is_alive() -> None:
    store = PaneStore()
    window = WindowTotal(store, 1)
    window.move(0, 10)
    add(store, window, [(3, 5, 1), (9, 5, 7), (9, 2 * CODES_PER_SERIES, 1)])
    assert window.alive().tolist() == [True, False, True]
    window.move(1_000_000, 1_000_010)
    assert not window.values.any()
    assert not window.alive().any()


def test_tables_grow_by_whole_series() -> None:
    values = np.zeros((0, 2), dtype=np.int64)
    for code in (0, 567, 568, 5000):
        values = add_to_dense(values, Cells(np.array([code]), np.array([[1, 1]])))
        assert len(values) % CODES_PER_SERIES == 0
    assert alive_series(values)[[0, 1, 8]].tolist() == [True, True, True]
    assert alive_series(values).sum() == 3
    assert alive_series(np.zeros((0, 9), dtype=np.int64)).tolist() == []


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_the_range_is_refused_and_leaves_the_table_as_it_was(sign: int) -> None:
    values = add_to_dense(np.zeros((0, 1), dtype=np.int64), Cells(np.array([3, 4]), np.array([[sign << 62], [1]])))
    with pytest.raises(StateLimitError, match="beyond 2\\^62"):
        add_to_dense(values, Cells(np.array([3, 4]), np.array([[1], [1]])), sign)
    assert values[[3, 4], 0].tolist() == [sign << 62, 1]
