"""What fits read: final panes, once, never changed."""

from __future__ import annotations

import numpy as np

from streamcal.stats.fit_panes import FitPanes
from streamcal.stats.layout import N_BINS


def add(fits: FitPanes, *rows: tuple[int, int, int]) -> None:
    """Rows as (pane, bin, label)."""
    table = np.array(rows, dtype=np.int64)
    values = np.zeros((len(rows), 9), dtype=np.int64)
    values[:, 0], values[:, 1] = 1, table[:, 2]
    fits.add(table[:, 0], table[:, 1].astype(np.intp), values)


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


def test_a_pane_that_was_read_stays_as_it_was() -> None:
    fits = FitPanes(9)
    add(fits, (1, 0, 1), (4, 0, 1))
    fits.move(0, 3)
    add(fits, (1, 0, 1), (2, 0, 0), (3, 0, 0))
    fits.move(0, 10)
    assert fits.rows.tolist() == [[1, 1, 1], [3, 1, 0], [4, 1, 1]]
    older, newer = fits.split(3)
    assert (older[0, 0], newer[0, 0]) == (1, 2)
    fits.move(100, 110)
    older, newer = fits.split(0)
    assert not older.any()
    assert not newer.any()


def test_widening_keeps_rows_and_counts() -> None:
    fits = FitPanes(9)
    add(fits, (1, 3, 1))
    fits.move(0, 2)
    fits.promote(lambda values: np.concatenate([values, values], axis=-1), 18)
    older, newer = fits.split(1)
    assert older.shape == newer.shape == (N_BINS, 18)
    assert newer[3, 9] == 1
