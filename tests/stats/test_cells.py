"""Sparse counts by pane, against plain dicts."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.stats.cells import CODES_PER_SERIES, RAW, SERVED, Cells, PaneStore, cell_code, reduce_cells, series_of

Row = tuple[int, int, int]
ROWS = st.lists(st.tuples(st.integers(-3, 6), st.integers(0, 5), st.integers(-4, 4)), max_size=12)


def add(store: PaneStore, rows: list[Row]) -> tuple[np.ndarray, Cells]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return store.add(table[:, 0], table[:, 1], np.stack([table[:, 2], 10 * table[:, 2]], axis=1))


def summed(cells: Cells | None) -> Counter[int]:
    found: Counter[int] = Counter()
    if cells is not None:
        for code, value in zip(cells.code.tolist(), cells.values.tolist(), strict=True):
            assert value[1] == 10 * value[0]
            found[code] += value[0]
    return Counter({code: n for code, n in found.items() if n})


@given(batches=st.lists(ROWS, max_size=25), start=st.integers(-4, 7), stop=st.integers(-4, 7), drop=st.integers(-4, 8))
def test_panes_hold_the_sum_of_their_rows(batches: list[list[Row]], start: int, stop: int, drop: int) -> None:
    store = PaneStore()
    truth: dict[int, Counter[int]] = defaultdict(Counter)
    for rows in batches:
        panes, cells = add(store, rows)
        keys = list(zip(panes.tolist(), cells.code.tolist(), strict=True))
        assert len(set(keys)) == len(keys)
        for pane, code, n in rows:
            truth[pane][code] += n
    nonzero = {pane: Counter({c: n for c, n in held.items() if n}) for pane, held in truth.items()}
    assert store.panes() == sorted(truth)
    total: Counter[int] = Counter()
    for pane, held in truth.items():
        if start <= pane < stop:
            total.update(held)
    assert summed(store.between(start, stop)) == Counter({c: n for c, n in total.items() if n})
    each = list(store.each(start, stop))
    assert [pane for pane, _ in each] == [pane for pane in sorted(truth) if start <= pane < stop]
    for pane, cells in each:
        assert len(set(cells.code.tolist())) == len(cells.code)
        assert summed(cells) == nonzero[pane]
    dropped = store.drop_before(drop)
    by_pane: dict[int, Counter[int]] = defaultdict(Counter)
    if dropped is not None:
        for pane, code, n in zip(
            dropped[0].tolist(), dropped[1].code.tolist(), dropped[1].values[:, 0].tolist(), strict=True
        ):
            by_pane[pane][code] += n
    assert by_pane.keys() == {pane for pane in truth if pane < drop}
    assert all(Counter({c: n for c, n in by_pane[pane].items() if n}) == nonzero[pane] for pane in by_pane)
    assert store.panes() == [pane for pane in sorted(truth) if pane >= drop]


def test_panes_a_century_apart_do_not_run_into_each_other() -> None:
    store = PaneStore()
    store.add(np.array([-(1 << 41), 1 << 41]), np.array([7, 1 << 30]), np.array([[1], [2]]))
    assert store.of_pane(-(1 << 41)).code.tolist() == [7]
    assert store.of_pane(1 << 41).code.tolist() == [1 << 30]


def test_many_small_additions_do_not_merge_a_large_pane_each_time() -> None:
    store = PaneStore()
    store.add(np.zeros(50_000, dtype=np.int64), np.arange(50_000), np.ones((50_000, 1), dtype=np.int64))
    large = store._panes[0][0]
    for i in range(500):
        store.add(np.zeros(1, dtype=np.int64), np.array([i]), np.ones((1, 1), dtype=np.int64))
        assert store._panes[0][0] is large
        assert len(store._panes[0]) <= 12
    assert store.of_pane(0).values[:, 0].tolist() == [2] * 500 + [1] * 49_500


def test_widening_reaches_every_part() -> None:
    store = PaneStore()
    add(store, [(0, 1, 1), (3, 2, 5)])
    add(store, [(0, 1, 1)])
    store.promote(lambda values: np.repeat(values, 2, axis=1))
    assert store.of_pane(0).values.tolist() == [[2, 2, 20, 20]]
    assert store.of_pane(3).values.shape == (1, 4)


@pytest.mark.parametrize("kind", [RAW, SERVED])
def test_codes_lead_back_to_their_series(kind: int) -> None:
    code = cell_code(np.array([0, 7]), kind, np.array([0, 283]))
    assert series_of(code).tolist() == [0, 7]
    assert series_of(cell_code(np.array([-1]), kind, np.array([283]))).tolist() == [-1]
    assert CODES_PER_SERIES == 568


def test_nothing_reduces_to_nothing() -> None:
    assert len(reduce_cells(np.empty(0, dtype=np.int64), np.empty((0, 9), dtype=np.int64)).code) == 0


@pytest.mark.parametrize("rows", [1, 40, 1_999, 2_000, 9_000])
@pytest.mark.parametrize("ascending", [False, True])
def test_many_rows_are_summed_by_code_as_few_are(rows: int, ascending: bool) -> None:
    draw = np.random.default_rng(rows)
    code = np.arange(rows) if ascending else draw.integers(0, 1 + rows // 3, rows)
    values = draw.integers(-(2**61), 2**61, (rows, 3))  # a running sum of these wraps around
    kept = code.copy(), values.copy()
    cells = reduce_cells(code, values)
    truth: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for key, row in zip(code.tolist(), values.tolist(), strict=True):
        truth[key] = [a + b for a, b in zip(truth[key], row, strict=True)]
    wrapped = {key: [(n + 2**63) % 2**64 - 2**63 for n in row] for key, row in truth.items()}
    assert dict(zip(cells.code.tolist(), cells.values.tolist(), strict=True)) == wrapped
    assert cells.code.tolist() == sorted(truth)
    assert (code == kept[0]).all()
    assert (values == kept[1]).all()
