"""The clock of one log."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.stream.watermark import BEGINNING, Watermark

TIMES = st.lists(st.integers(0, 100), max_size=20)


def test_it_starts_before_everything() -> None:
    assert Watermark(0).value == BEGINNING


@given(start=st.none() | st.integers(0, 100), times=TIMES, disorder=st.integers(0, 30))
def test_before_and_after_each_event_are_the_running_maximum_less_the_disorder(
    start: int | None, times: list[int], disorder: int
) -> None:
    watermark = Watermark(disorder)
    if start is not None:
        watermark.advance(start)
    clock = np.array(times, dtype=np.int64)
    reached, before, after = watermark.value, [], []
    for time in times:
        before.append(reached)
        reached = max(reached, time - disorder)
        after.append(reached)
    assert watermark.before(clock).tolist() == before
    if times:
        assert watermark.after(clock).tolist() == after
    assert watermark.value == (BEGINNING if start is None else start)


def test_it_never_goes_back() -> None:
    watermark = Watermark(10)
    watermark.advance(50)
    watermark.advance(20)
    assert watermark.value == 50
