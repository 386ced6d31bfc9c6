"""Which partitions are idle, and what they follow; over processes through what the group says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.runtime.idle import Idle, IdleRules, Standing, targets


@dataclass
class Logs:
    watermarks: tuple[int, int]


@dataclass
class Clock:
    now_s: float = 0.0
    wall_ms: int = 10_000_000
    asked: list[int] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s


def idle(clock: Clock, *, partitions: int = 2, behind_clock_ms: int | None = None) -> Idle:
    return Idle(IdleRules(10.0, behind_clock_ms), partitions, clock, lambda: clock.wall_ms)


def caught_up(*numbers: int) -> dict[Any, int]:
    return {(topic, n): 0 for topic in ("predictions", "outcomes") for n in numbers}


def moves(found: Any) -> set[tuple[str, int, int]]:
    return {(advance.topic, advance.number, advance.to_ms) for advance in found}


def test_a_partition_is_idle_once_it_is_read_to_its_end_and_was_silent_for_long_enough() -> None:
    clock = Clock()
    look = idle(clock)
    look.heard(("predictions", 0))
    clock.now_s = 9.9
    assert not look.standings({0: Logs((5, 7))}, caught_up(0))["predictions", 0].idle
    clock.now_s = 10.0
    assert look.standings({0: Logs((5, 7))}, caught_up(0))["predictions", 0] == Standing(5, True)
    assert not look.standings({0: Logs((5, 7))}, {("predictions", 0): 1})["predictions", 0].idle
    assert not look.standings({0: Logs((5, 7))}, {})["predictions", 0].idle  # lag not known
    look.heard(("predictions", 0))
    assert not look.standings({0: Logs((5, 7))}, caught_up(0))["predictions", 0].idle


def test_a_partition_of_which_nothing_was_heard_since_it_came_is_not_idle() -> None:
    clock = Clock(now_s=1000.0)
    assert not idle(clock).standings({0: Logs((5, 7))}, caught_up(0))["outcomes", 0].idle


def both(first: Standing, second: Standing) -> dict[Any, Standing]:
    return {("predictions", 0): first, ("predictions", 1): second}


def test_an_idle_partition_follows_the_lowest_that_is_not() -> None:
    look = idle(Clock())
    found = look.advances(both(Standing(5, True), Standing(50, False)), dict)
    assert moves(found) == {("predictions", 0, 50)}


def test_one_that_is_ahead_stays_where_it_is() -> None:
    assert not idle(Clock()).advances(both(Standing(500, True), Standing(50, False)), dict)


def test_a_topic_that_is_silent_as_a_whole_stands_still_or_follows_the_clock() -> None:
    silent = both(Standing(5, True), Standing(50, True))
    assert not idle(Clock()).advances(silent, dict)
    found = idle(Clock(wall_ms=1_000), behind_clock_ms=70).advances(silent, dict)
    assert moves(found) == {("predictions", 0, 930), ("predictions", 1, 930)}


def test_a_clock_that_was_just_set_moves_nothing_until_it_has_been_steady_for_a_while() -> None:
    clock = Clock()
    look = idle(clock, behind_clock_ms=1_000)
    silent = both(Standing(50, True), Standing(70, True))

    def lifted() -> set[int]:
        return {advance.to_ms for advance in look.advances(silent, dict)}

    assert lifted() == {clock.wall_ms - 1_000}
    for _ in range(20):
        clock.now_s += 1.0
        clock.wall_ms += 1_010  # it drifts
        assert lifted() == {clock.wall_ms - 1_000}
    clock.wall_ms += 3_600_000
    for _ in range(3):
        clock.now_s += 1.0
        clock.wall_ms += 1_000
        assert lifted() == set()
    clock.wall_ms -= 3_600_000
    assert lifted() == set()
    clock.now_s += 9.0
    clock.wall_ms += 9_000
    assert lifted() == set()
    clock.now_s += 1.0
    clock.wall_ms += 1_000
    assert lifted() == {clock.wall_ms - 1_000}


def test_the_clock_moves_nothing_while_one_partition_is_awake() -> None:
    found = idle(Clock(wall_ms=1_000), behind_clock_ms=70).advances(both(Standing(5, True), Standing(50, False)), dict)
    assert moves(found) == {("predictions", 0, 50)}


def test_partitions_elsewhere_count_with_what_they_said_and_hold_back_while_they_have_said_nothing() -> None:
    ours = {("predictions", 0): Standing(5, True)}
    look = idle(Clock())
    assert not look.advances(ours, dict)
    assert not look.advances(ours, lambda: {("predictions", 1): "", ("outcomes", 1): Standing(9, False).to_text()})
    said = {("predictions", 1): Standing(40, False).to_text()}
    assert moves(look.advances(ours, lambda: said)) == {("predictions", 0, 40)}


def test_what_is_ours_is_believed_over_what_was_said_of_it() -> None:
    old = {("predictions", 0): Standing(1, False).to_text(), ("predictions", 1): Standing(40, False).to_text()}
    found = idle(Clock()).advances({("predictions", 0): Standing(5, True)}, lambda: old)
    assert moves(found) == {("predictions", 0, 40)}


def test_others_are_asked_only_where_it_matters() -> None:
    def ask() -> dict[Any, str]:
        raise AssertionError

    look = idle(Clock())
    assert not look.advances({("predictions", 0): Standing(5, False)}, ask)  # none of ours is idle
    assert look.advances(both(Standing(5, True), Standing(50, False)), ask)  # all of them are ours


@pytest.mark.parametrize("text", ["", "null", "{}", "[1]", "[1,2,3]", '["a", true]', "\x00", "[1.5,true]"])
def test_what_others_wrote_there_is_passed_over(text: str) -> None:
    assert Standing.from_text(text) is None


@given(st.integers(-(2**61), 2**61), st.booleans())
def test_a_standing_comes_back_and_fits_what_the_group_keeps(watermark: int, is_idle: bool) -> None:
    text = Standing(watermark, is_idle).to_text()
    assert Standing.from_text(text) == Standing(watermark, is_idle)
    assert len(text) < 100


@given(
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=6),
    st.data(),
)
def test_nothing_passes_what_is_awake_nothing_awake_moves_and_nothing_goes_back(
    states: list[tuple[int, bool]], data: st.DataObject
) -> None:
    standings = {n: Standing(*state) for n, state in enumerate(states)}
    ours = data.draw(st.sets(st.sampled_from(sorted(standings))))
    found = targets(standings, ours, len(standings))
    awake = [standing.watermark_ms for standing in standings.values() if not standing.idle]
    for number, to_ms in found.items():
        assert number in ours
        assert standings[number].idle
        assert to_ms > standings[number].watermark_ms
        assert to_ms == min(awake)


def test_looking_is_due_once_a_second() -> None:
    clock = Clock()
    look = idle(clock)
    assert not look.due()
    clock.now_s = 1.0
    assert look.due()
    assert not look.due()
