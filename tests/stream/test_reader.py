"""Slices taken piece by piece: watermarks stay those of the log, and a cut falls where event time passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_records import RawRecord, T, outcome, outcomes, raw

from streamcal.stream.reader import LogReader, Read
from streamcal.stream.watermark import BEGINNING

MINUTES = st.lists(st.integers(0, 9), min_size=1, max_size=15)


def records(minutes: list[int]) -> list[RawRecord]:
    """Outcomes at these minutes; every third is no JSON and moves no clock."""
    return [raw(b"{" if i % 3 == 2 else outcome(ts=T + m * 60_000)) for i, m in enumerate(minutes)]


def clock(minutes: list[int]) -> list[int]:
    """The watermark after each record, without disorder."""
    reached, after = BEGINNING, []
    for i, m in enumerate(minutes):
        reached = reached if i % 3 == 2 else max(reached, T + m * 60_000)
        after.append(reached)
    return after


def read(log: LogReader, minutes: list[int], order: np.ndarray | None = None, first: int = 0) -> Read:  # type: ignore[type-arg]
    held = records(minutes)
    return log.read(outcomes(*held), len(held), order, first)


@given(minutes=MINUTES, moment=st.integers(-1, 10), gap=st.integers(1, 4))
def test_the_cut_is_the_record_after_which_the_watermark_is_past_the_moment(
    minutes: list[int], moment: int, gap: int
) -> None:
    places = np.arange(len(minutes)) * gap + 5
    found = read(LogReader(0), minutes, places).passing(T + moment * 60_000)
    past = [i for i, after in enumerate(clock(minutes)) if after > T + moment * 60_000]
    assert found == (int(places[past[0]]) if past else None)
    in_turn = read(LogReader(0), minutes, None, 100).passing(T + moment * 60_000)
    assert in_turn == (100 + past[0] if past else None)


@given(minutes=MINUTES, cuts=st.lists(st.integers(0, 20), max_size=4), spread=st.booleans())
def test_pieces_make_up_the_slice_with_the_watermarks_of_the_log(
    minutes: list[int], cuts: list[int], spread: bool
) -> None:
    whole, before = read(LogReader(0), minutes).take(None)
    piecewise = read(LogReader(0), minutes, np.arange(len(minutes)) * 2 if spread else None)
    pieces = [piecewise.take(place) for place in [*sorted(cuts), None]]
    assert [t for batch, _ in pieces for t in batch.time_ms.tolist()] == whole.time_ms.tolist()
    assert np.concatenate([w for _, w in pieces]).tolist() == before.tolist()


@given(minutes=MINUTES, place=st.integers(-1, 16))
def test_after_a_piece_the_watermark_is_that_of_its_last_record(minutes: list[int], place: int) -> None:
    found = read(LogReader(0), minutes)
    found.take(place)
    taken = clock(minutes)[: place + 1]
    expected = taken[-1] if taken and taken[-1] > BEGINNING else None
    assert found.reached == expected


def test_a_watermark_reached_before_holds_for_older_records() -> None:
    log = LogReader(0)
    log.watermark.advance(T + 600_000)
    found = read(log, [1, 2])
    assert found.passing(T + 300_000) == 0
    _, before = found.take(None)
    assert before.tolist() == [T + 600_000] * 2


@pytest.mark.parametrize("order", [None, np.empty(0, dtype=np.int64)])
def test_an_empty_slice_gives_nothing_and_passes_nothing(order: np.ndarray | None) -> None:
    found = LogReader(0).read(outcomes(), 0, order, 0)
    assert found.passing(T) is None
    assert len(found.take(None)[0].row) == 0
    assert found.reached is None
