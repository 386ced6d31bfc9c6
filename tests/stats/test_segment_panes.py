"""Frozen rows by segment, against a plain sum over the rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from streamcal.state.trees import dump, load
from streamcal.stats.cells import Cells
from streamcal.stats.counts import PLAIN, contributions
from streamcal.stats.segment_panes import SEGMENT_CODES, SegmentPanes, segment_codes
from streamcal.stats.series import SeriesTable
from streamcal.stream.events import OTHER, Names

PANE, STEP, HOUR = 60_000, 900_000, 3_600_000
CUTS = ((), ("country",), ("country", "device"))
PLACES = [("GB", "ios"), ("GB", "web"), ("US", "web"), ("DE", OTHER), ("FR", "ios")]


def panes(cut: int = 2, names: Names | None = None) -> tuple[Names, SegmentPanes]:
    names = names or Names(("country", "device"))
    names.model("m")
    return names, SegmentPanes(SeriesTable(names, CUTS, 100), cut, PANE, STEP)


def rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Place, time of outcome, time of prediction (none after the end of the outcome's pane), bins, values."""
    known = rng.integers(0, 6 * HOUR, n)
    made = np.maximum(np.minimum(known + rng.integers(-HOUR, 30_000, n), (known // PANE + 1) * PANE), 0)
    bins, values, _ = contributions(rng.random(n), rng.random(n) < 0.3)
    return rng.integers(0, len(PLACES), n), known, made, bins, values


def test_what_is_taken_is_the_sum_of_the_rows_whatever_their_order_and_each_row_once() -> None:
    rng = np.random.default_rng(3)
    place, known, made, bins, values = rows(rng, 4000)
    expected: Counter[tuple[tuple[str, ...], int, int, int]] = Counter()
    for i in range(4000):
        if OTHER not in PLACES[place[i]]:
            for column, value in enumerate(values[i].tolist()):
                expected[PLACES[place[i]], made[i] // STEP, int(bins[i]), column] += value
    found: Counter[tuple[tuple[str, ...], int, int, int]] = Counter()
    names, held = panes()
    order = rng.permutation(4000)
    for part in np.array_split(order, 7):
        profile = np.array([names.profile(PLACES[i]) for i in place[part]], dtype=np.int32)
        model = np.zeros(len(part), dtype=np.int32)
        held.fold(model, profile, known[part] // PANE, made[part], bins[part], values[part])
    for hour in range(1, 7):
        entered = held.take(0, hour * HOUR // PANE)
        assert list(entered.keys) == sorted(entered.keys)
        code = (entered.step * 100 + entered.segment) * 284 + entered.bins
        assert (np.diff(code) > 0).all()
        for segment, step, bin_, told in zip(
            entered.segment.tolist(), entered.step.tolist(), entered.bins.tolist(), entered.values, strict=True
        ):
            for column, value in enumerate(told.tolist()):
                found[entered.keys[segment], step, bin_, column] += value
    assert {key: value for key, value in found.items() if value} == {k: v for k, v in expected.items() if v}
    assert len(held.take(0, 6 * HOUR // PANE)) == 0
    assert held.nbytes == 0


def test_cells_of_another_table_and_what_is_taken_away_count_as_rows_do() -> None:
    names, held = panes()
    number = held.series.number(0, 2, ("GB", "ios"))
    bins, values, _ = contributions(np.array([0.2, 0.7]), np.array([True, False]))
    pane = np.array([59, 59])
    code = number * SEGMENT_CODES + segment_codes(pane, np.array([10, 20]), bins, PANE, STEP)
    held.add(pane, Cells(code, values))
    held.add(pane[:1], Cells(code[:1], -values[:1]))
    entered = held.take(0, 60)
    assert (entered.keys, entered.step.tolist(), entered.bins.tolist()) == ((("GB", "ios"),), [0], [int(bins[1])])
    held.add(pane, Cells(code, values))  # read for good
    assert len(held.take(0, 60)) == 0
    assert names.models == ["m"]


def test_panes_before_the_window_are_left_out_and_numbers_are_used_again() -> None:
    names, held = panes()
    bins, values, _ = contributions(np.array([0.5]), np.array([True]))
    for hour in range(200):
        profile = np.array([names.profile((f"c{hour}", "web"))], dtype=np.int32)
        moment = np.array([hour * HOUR])
        held.fold(np.zeros(1, dtype=np.int32), profile, moment // PANE, moment, bins, values)
        entered = held.take((hour - 1) * 60, (hour + 1) * 60)
        assert entered.keys == ((f"c{hour}", "web"),)
    assert len(held.series) < 12
    old = np.array([names.profile(("GB", "web"))], dtype=np.int32)
    held.fold(np.zeros(1, dtype=np.int32), old, np.array([300 * 60]), np.array([300 * HOUR]), bins, values)
    assert len(held.take(400 * 60, 410 * 60)) == 0


@pytest.mark.parametrize("cut", [1, 2])
def test_a_saved_state_goes_on_where_it_was_unless_another_cut_is_corrected_now(cut: int) -> None:
    names, held = panes()
    bins, values, _ = contributions(np.array([0.5]), np.array([True]))
    profile = np.array([names.profile(("GB", "web"))], dtype=np.int32)
    held.take(0, 10)
    held.fold(np.zeros(1, dtype=np.int32), profile, np.array([20]), np.array([20 * PANE]), bins, values)
    _, again = panes(cut, names)
    load(again, dump(held))
    again.fold(np.zeros(1, dtype=np.int32), profile, np.array([5]), np.array([5 * PANE]), bins, values)
    entered = again.take(0, 30)
    assert entered.keys == ((("GB", "web"),) if cut == 2 else ())
    assert entered.values.shape[1] == PLAIN
