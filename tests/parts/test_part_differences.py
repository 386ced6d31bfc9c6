"""What parts say beyond what was counted, against plain dicts; and the two forms of a part on the topic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.errors import StateFormatError
from streamcal.parts.difference import Held, difference
from streamcal.parts.netting import net
from streamcal.parts.part import Part, PartKey, SeriesKey
from streamcal.parts.source_counts import CODES
from streamcal.state.packing import pack

SEGMENTS: list[SeriesKey] = [(0, ()), (1, ("GB",)), (1, ("DE",)), (2, ("web",))]
Counts = dict[tuple[int, int], tuple[int, int]]
"""(Segment, code) to two columns."""
COUNTS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 5)), st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=8
)


def part_of(counts: Counts, order: list[int]) -> Part:
    """A part as a source that numbered its segments in this order writes it."""
    present = [n for n in order if any(segment == n for segment, _ in counts)]
    cells = sorted((present.index(segment), code, values) for (segment, code), values in counts.items())
    return Part(
        [SEGMENTS[n] for n in present],
        np.array([place for place, _, _ in cells], dtype=np.int64),
        np.array([code for _, code, _ in cells], dtype=np.int64),
        np.array([values for _, _, values in cells], dtype=np.int64).reshape(-1, 2),
        np.zeros(len(present), dtype=np.int64),
    )


def held_of(part: Part) -> Held:
    return Held(list(part.series), part.place, part.code, part.values)


def numbers(keys: Any) -> Any:
    return np.array([SEGMENTS.index(key) for key in keys], dtype=np.int64)


ORDERS = st.permutations(range(4))


@given(before=COUNTS, grown=COUNTS, after=COUNTS, orders=st.tuples(ORDERS, ORDERS), grows=st.booleans())
def test_what_was_counted_and_the_difference_are_the_part(
    before: Counts, grown: Counts, after: Counts, orders: Any, grows: bool
) -> None:
    told = before | grown if grows else after
    rows = difference("window", part_of(told, orders[1]), held_of(part_of(before, orders[0])))
    found: Counter[Any] = Counter()
    for part in rows:
        for place, code, values in zip(part.place.tolist(), part.code.tolist(), part.values.tolist(), strict=True):
            found[part.series[place], code, 0] += values[0]
            found[part.series[place], code, 1] += values[1]
    expected: Counter[Any] = Counter()
    for sign, counts in ((1, told), (-1, before)):
        for (segment, code), values in counts.items():
            expected[SEGMENTS[segment], code, 0] += sign * values[0]
            expected[SEGMENTS[segment], code, 1] += sign * values[1]
    assert {k: n for k, n in found.items() if n} == {k: n for k, n in expected.items() if n}


def test_of_a_part_that_grew_only_what_changed_is_new() -> None:
    before: Counts = {(0, 1): (1, 2), (1, 1): (1, 2), (1, 4): (3, 0)}
    (rows,) = difference(
        "window",
        part_of(before | {(1, 4): (4, 1), (2, 0): (1, 1)}, [0, 1, 2, 3]),
        held_of(part_of(before, [0, 1, 2, 3])),
    )
    assert sorted(zip(rows.code.tolist(), rows.values.tolist(), strict=True)) == [(0, [1, 1]), (4, [1, 1])]


@given(
    parts=st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(-3, 3)), st.tuples(st.none() | COUNTS, COUNTS), min_size=1, max_size=8
    ),
    block=st.sampled_from([1, 4, 8_192]),
)
def test_all_parts_together_are_the_sum_over_sources_by_pane(parts: Any, block: int) -> None:
    order = [2, 0, 3, 1]
    waiting = {
        (source, PartKey("window", "m", pane, 0)): (
            None if before is None else held_of(part_of(before, order)),
            part_of(told, order),
        )
        for (source, pane), (before, told) in parts.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamcal.parts.netting._BLOCK", block)
        panes, cells = net("window", waiting, numbers)
    expected: Counter[Any] = Counter()
    for (_, pane), (before, told) in parts.items():
        for sign, counts in ((1, told), (-1, before or {})):
            for (segment, code), values in counts.items():
                for column in (0, 1):
                    expected[pane, segment * CODES["window"] + code, column] += sign * values[column]
    places = list(zip(panes.tolist(), cells.code.tolist(), strict=True))
    assert places == sorted(set(places))
    found = {
        (*place, k): n for place, row in zip(places, cells.values.tolist(), strict=True) for k, n in enumerate(row)
    }
    assert {k: n for k, n in found.items() if n} == {k: n for k, n in expected.items() if n}
    assert cells.values.any(axis=1).all()


def test_a_stream_that_became_weighted_is_told_apart_from_what_was_held() -> None:
    plain, weighted = np.ones((1, 9), dtype=np.int64), np.ones((1, 23), dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    rows = difference("fit", Part([(0, ())], zero, zero, weighted, zero), Held([(0, ())], zero, zero, plain))
    assert [part.values.tolist() for part in rows] == [weighted.tolist(), (-plain).tolist()]


@pytest.mark.parametrize("columns", [1, 2, 9])
@pytest.mark.parametrize("most", [0, 1, 32_767, 32_768, 2**31 - 1, 2**31, 2**60])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_part_is_read_as_it_was_written(columns: int, most: int, sign: int) -> None:
    values = np.full((3, columns), 2**61, dtype=np.int64)
    values[:, :2] = sign * most
    code = np.array([0, 5, most], dtype=np.int64)
    part = Part([(0, ()), (1, ("GB",))], np.array([0, 0, 1]), code, values, np.array([7, 8]), 3)
    found = Part.from_bytes(part.to_bytes())
    assert (found.series, found.version) == (part.series, 3)
    for name in ("place", "code", "values", "last_ms"):
        column = getattr(found, name)
        assert column.dtype == np.int64
        assert column.tolist() == getattr(part, name).tolist()


def test_a_part_without_cells_is_read_as_it_was_written() -> None:
    none = np.zeros(0, dtype=np.int64)
    found = Part.from_bytes(Part([], none, none, np.zeros((0, 9), dtype=np.int64), none, 4).to_bytes())
    assert (found.values.shape, len(found.code), found.version) == ((0, 9), 0, 4)


def test_the_form_before_is_read_and_a_later_one_refused() -> None:
    table = np.arange(11 * 2, dtype=np.int64).reshape(11, 2)
    found = Part.from_bytes(pack([1, [[0, []]], [5], None, table]))
    assert (found.place.tolist(), found.code.tolist()) == ([0, 1], [2, 3])
    assert (found.values == table[2:].T).all()
    with pytest.raises(StateFormatError):
        Part.from_bytes(pack([3, [], [], None, table]))
