"""What fits read: final panes, once, never changed; and what is told of the rows when they are first read."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.stats.fit_panes import FitPanes, step_length
from streamcal.stats.layout import N_BINS

STEP_MS = 1000


def add(fits: FitPanes, *rows: tuple[int, int, int], step: int = 0) -> None:
    """Rows as (pane, bin, label)."""
    table = np.array(rows, dtype=np.int64)
    values = np.zeros((len(rows), 9), dtype=np.int64)
    values[:, 0], values[:, 1] = 1, table[:, 2]
    fits.add(table[:, 0], table[:, 1].astype(np.intp), values, np.full(len(rows), step * fits.step_ms))


def test_a_move_tells_whether_panes_with_rows_came_in() -> None:
    fits = FitPanes(9)
    add(fits, (3, 0, 1), (3, 5, 0), (8, 5, 1))
    assert not fits.move(-10, 3)
    assert fits.move(-6, 4)
    assert fits.rows.tolist() == [[3, 2, 1]]
    assert not fits.move(-5, 5)
    assert fits.move(0, 10)
    assert fits.rows.tolist() == [[3, 2, 1], [8, 1, 1]]
    assert not fits.move(4, 14)
    assert fits.rows.tolist() == [[8, 1, 1]]
    assert fits.panes() == [8]


def test_a_pane_that_a_correction_has_emptied_is_no_news() -> None:
    fits = FitPanes(9)
    add(fits, (3, 5, 1))
    taken_back = np.zeros((1, 9), dtype=np.int64)
    taken_back[0, :2] = -1
    fits.add(np.array([3]), np.array([5]), taken_back, np.zeros(1, dtype=np.int64))
    assert not fits.move(-6, 4)
    assert len(fits.rows) == 0


def test_older_and_newer_make_up_the_window() -> None:
    fits = FitPanes(9)
    add(fits, (1, 0, 1), (2, 0, 1), (2, N_BINS - 1, 0), (5, 7, 1))
    fits.move(0, 6)
    older, newer = fits.split(2)
    assert older[0].tolist()[:2] == [1, 1]
    assert older.sum() == 2
    assert newer[0].tolist()[:2] == [1, 1]
    assert newer[N_BINS - 1].tolist()[:2] == [1, 0]
    assert newer[7].tolist()[:2] == [1, 1]
    assert (fits.whole() == older + newer).all()
    assert (fits.between(2, 5) == newer - fits.between(5, 6)).all()


def test_a_pane_that_was_read_stays_as_it_was() -> None:
    fits = FitPanes(9)
    add(fits, (1, 0, 1), (4, 0, 1))
    fits.move(0, 3)
    fits.take_entered()
    add(fits, (1, 0, 1), (2, 0, 0), (3, 0, 0))
    fits.move(0, 10)
    assert fits.take_entered().pane.tolist() == [3, 4]
    assert fits.rows.tolist() == [[1, 1, 1], [3, 1, 0], [4, 1, 1]]
    older, newer = fits.split(3)
    assert (older[0, 0], newer[0, 0]) == (1, 2)
    fits.move(100, 110)
    older, newer = fits.split(0)
    assert not older.any()
    assert not newer.any()


def test_widening_keeps_rows_and_counts() -> None:
    fits = FitPanes(9)
    add(fits, (1, 3, 1), (2, 3, 1))
    fits.move(0, 2)
    fits.promote(lambda values: np.concatenate([values, values], axis=-1), 18)
    older, newer = fits.split(1)
    assert older.shape == newer.shape == (N_BINS, 18)
    assert newer[3, 9] == 1
    fits.move(0, 3)
    assert fits.take_entered().values[0].tolist() == [1, 1, *[0] * 7] * 2


Row = tuple[int, int, int, int]
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, -1])))


@given(rows=ROWS, seed=st.integers(0, 9), stops=st.lists(st.integers(0, 7), max_size=4))
def test_what_enters_is_each_row_once_by_pane_step_and_bin_however_it_came(
    rows: list[Row], seed: int, stops: list[int]
) -> None:
    fits = FitPanes(9, STEP_MS)
    rng = np.random.default_rng(seed)
    for start in range(0, len(rows), 3):
        for pane, step, bin_, sign in (rows[i] for i in rng.permutation(range(start, min(start + 3, len(rows))))):
            values = np.zeros((1, 9), dtype=np.int64)
            values[0, 0] = sign
            predicted = step * STEP_MS + int(rng.integers(STEP_MS))
            fits.add(np.array([pane]), np.array([bin_]), values, np.array([predicted]))
    found: Counter[tuple[int, int, int]] = Counter()
    for stop in sorted(stops):
        fits.move(0, stop)
        entered = fits.take_entered()
        cells = list(zip(entered.pane.tolist(), entered.step.tolist(), entered.bins.tolist(), strict=True))
        assert cells == sorted(set(cells))
        assert not len(fits.take_entered())
        found.update(dict(zip(cells, entered.values[:, 0].tolist(), strict=True)))
    expected: Counter[tuple[int, int, int]] = Counter()
    for pane, step, bin_, sign in rows:
        expected[pane, step, bin_] += sign
    read = max(stops, default=0)
    assert found == {cell: n for cell, n in expected.items() if n and cell[0] < read}
    assert all(pane >= read for pane in fits.entering.panes())


def test_steps_are_whole_panes_and_parts_of_a_day() -> None:
    day = 86_400_000
    for pane in (1_000, 7_000, 60_000, 420_000, 600_000, 900_000, 3_600_000, day):
        for every in (10_000, 61_000, 900_000, 3_600_000, day):
            step = step_length(pane, every)
            assert step % pane == 0
            assert step <= max(every, pane)
            assert day % step == 0 or day % pane
