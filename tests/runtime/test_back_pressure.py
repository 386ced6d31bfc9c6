"""Which side of a task waits: the one ahead, never both, never for a side that is read to its end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.errors import StateLimitError
from streamcal.runtime.back_pressure import BackPressure, waiting

MARKS = st.integers(-5, 5)
LAG = st.one_of(st.none(), st.integers(0, 3))


@given(st.tuples(MARKS, MARKS), st.tuples(LAG, LAG), st.integers(0, 20), st.integers(0, 20))
def test_only_the_side_ahead_waits_and_only_for_what_can_be_read(
    marks: tuple[int, int], lag: tuple[int | None, int | None], remembered: int, limit: int
) -> None:
    topic = waiting(marks, lag, remembered, limit)
    if topic is None:
        return
    ahead = ("predictions", "outcomes").index(topic)
    assert marks[ahead] > marks[1 - ahead]
    assert lag[1 - ahead]
    assert remembered > limit


@given(st.tuples(MARKS, MARKS), st.integers(1, 3), st.integers(1, 20))
def test_whatever_is_remembered_beyond_the_limit_one_side_waits_while_both_are_behind(
    marks: tuple[int, int], lag: int, over: int
) -> None:
    assert (waiting(marks, (lag, lag), 10 + over, 10) is None) == (marks[0] == marks[1])


def decide(pressure: BackPressure, marks: tuple[int, int], lag: tuple[int, int], nbytes: int, pending: int) -> Any:
    behind = {("predictions", 3): lag[0], ("outcomes", 3): lag[1]}
    return pressure.decide(3, marks, behind, nbytes, pending)


def test_too_many_waiting_hold_predictions_back_while_outcomes_are_behind() -> None:
    assert decide(BackPressure(10**9, 100), (50, 10), (5, 5), 0, 101) == "predictions"


def test_one_too_many_when_all_is_read_is_an_error_that_says_what_to_do() -> None:
    pressure = BackPressure(10**9, 100)
    assert decide(pressure, (50, 10), (0, 0), 0, 100) is None
    with pytest.raises(StateLimitError, match=r"101 predictions of partition 3 wait") as raised:
        decide(pressure, (50, 10), (0, 0), 0, 101)
    assert raised.value.exit_code == 7
    assert "join.max_pending" in raised.value.hint
    assert "Nothing was dropped" in raised.value.hint


def test_too_many_that_no_reading_could_release_are_an_error_too() -> None:
    with pytest.raises(StateLimitError):
        decide(BackPressure(10**9, 100), (10, 50), (5, 5), 0, 101)


def test_a_lag_not_known_yet_is_no_error() -> None:
    pressure = BackPressure(10**9, 100)
    assert pressure.decide(3, (50, 10), {}, 0, 101) == "predictions"


def test_without_a_cap_any_number_may_wait() -> None:
    assert decide(BackPressure(10**9, None), (50, 10), (0, 0), 0, 10**9) is None


def test_holding_back_is_told_once_and_taken_back_once() -> None:
    pressure, told = BackPressure(10, None), []

    def pause(part: Any, paused: bool) -> None:
        told.append((part, paused))

    for topic in ("predictions", "predictions", "outcomes", "outcomes", None, None):
        pressure.apply(3, topic, pause)
    assert told == [
        (("predictions", 3), True),
        (("predictions", 3), False),
        (("outcomes", 3), True),
        (("outcomes", 3), False),
    ]


def test_parts_opened_anew_are_not_taken_for_held_back() -> None:
    pressure, told = BackPressure(10, None), []
    pressure.apply(3, "predictions", lambda part, paused: told.append((part, paused)))
    pressure.forget(3)
    pressure.apply(3, "predictions", lambda part, paused: told.append((part, paused)))
    assert told == [(("predictions", 3), True)] * 2
