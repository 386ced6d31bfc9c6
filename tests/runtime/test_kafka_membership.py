"""A consumer that is assigned and behind but gets nothing is made anew; one that waits on purpose is not.

The client is played by a script: its faults of this kind cannot be had on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kafka import TopicPartition

from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.logs.kafka_membership import KafkaMembership
from streamcal.runtime.logs.kafka_progress import ProgressWatch


class Beside:
    """Nothing goes on beside reading."""

    def check(self) -> None:
        pass

    def sample(self, role: str, partition: int, records: Any) -> None:
        pass

    def said(self) -> Mapping[Any, str]:
        return {}

    def behind(self) -> frozenset[str]:
        return frozenset()


class Scripted:
    """A consumer that is assigned one partition of two topics and fetches what it is told."""

    def __init__(self, ends: Mapping[Any, int], fetches: list[Any]) -> None:
        self.ends, self.fetches = ends, fetches
        self.at: dict[Any, int] = {}
        self.closed = False
        self.listener: Any = None

    def subscribe(self, topics: list[str], listener: Any) -> None:
        self.listener = listener
        listener.on_partitions_assigned(self.assignment())

    def assignment(self) -> set[Any]:
        return set(self.ends)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0}

    def seek(self, part: Any, offset: int) -> None:
        self.at[part] = offset

    def pause(self, *parts: Any) -> None:
        pass

    resume = pause

    def beginning_offsets(self, parts: Any, timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(parts, 0)

    def end_offsets(self, parts: Any, timeout_ms: int) -> dict[Any, int]:
        return {part: self.ends[part] for part in parts}

    def highwater(self, part: Any) -> int:
        return self.ends[part]

    def position(self, part: Any, timeout_ms: int) -> int:
        return self.at[part]

    def poll(self, timeout_ms: int) -> Mapping[Any, Any]:
        found = self.fetches.pop(0) if self.fetches else {}
        for part, records in found.items():
            self.at[part] = records[-1].offset + 1
        return found

    def close(self, **_: Any) -> None:
        self.closed = True


PREDICTIONS, OUTCOMES = TopicPartition("p", 0), TopicPartition("o", 0)


def membership(made: list[Scripted], scripts: list[Scripted], clock: list[float]) -> KafkaMembership:
    def make() -> Scripted:
        made.append(scripts.pop(0))
        return made[-1]

    member = KafkaMembership(
        make,
        {"predictions": "p", "outcomes": "o"},
        "earliest",
        check=lambda _: None,
        beside=Beside(),
        from_earliest=(),
        group_id="g",
        where="a test",
    )
    member._progress = ProgressWatch(60.0, lambda: clock[0])
    return member


def begin(member: KafkaMembership) -> None:
    assert member.poll(0.0) == {}
    for role in ("predictions", "outcomes"):
        member.open((role, 0), 0)


def test_a_consumer_that_gets_nothing_while_behind_is_made_anew_and_reads_on() -> None:
    made: list[Scripted] = []
    clock = [0.0]
    stuck = Scripted({PREDICTIONS: 3, OUTCOMES: 0}, [])
    sound = Scripted({PREDICTIONS: 3, OUTCOMES: 0}, [{}, {PREDICTIONS: [LogRecord(b"{}", offset=0)]}])
    member = membership(made, [stuck, sound], clock)
    begin(member)
    generation = member.generation
    for clock[0] in (30.0, 60.0):
        member.poll(0.0)
        assert member.generation == generation
    clock[0] = 61.0
    member.poll(0.0)
    assert stuck.closed
    assert made == [stuck, sound]
    assert member.generation > generation  # whoever reads opens every part again, where its state goes on
    assert member.parts == frozenset()
    begin(member)
    assert list(member.poll(0.0)) == [("predictions", 0)]


@pytest.mark.parametrize("why", ["caught up", "held back", "progress"])
def test_one_that_has_nothing_to_get_is_left_alone(why: str) -> None:
    made: list[Scripted] = []
    clock = [0.0]
    more = [{PREDICTIONS: [LogRecord(b"{}", offset=n)]} for n in range(5)] if why == "progress" else []
    ends = {PREDICTIONS: 0 if why == "caught up" else 10, OUTCOMES: 0}
    member = membership(made, [Scripted(ends, [{}, *more]), Scripted(ends, [])], clock)
    begin(member)
    if why == "held back":
        member.pause([("predictions", 0)], paused=True)
    for step in range(1, 5):
        clock[0] = 50.0 * step
        member.poll(0.0)
    assert len(made) == 1


def test_a_part_that_was_held_back_and_opened_again_is_watched_again() -> None:
    made: list[Scripted] = []
    clock = [0.0]
    member = membership(
        made, [Scripted({PREDICTIONS: 10, OUTCOMES: 0}, []), Scripted({PREDICTIONS: 10, OUTCOMES: 0}, [])], clock
    )
    begin(member)
    member.pause([("predictions", 0)], paused=True)
    member.open(("predictions", 0), 0)
    clock[0] = 61.0
    member.poll(0.0)
    assert len(made) == 2


def test_what_is_said_of_parts_goes_along_with_their_offsets() -> None:
    made: list[Scripted] = []
    told: list[Any] = []
    member = membership(made, [Scripted({PREDICTIONS: 10, OUTCOMES: 0}, [])], [0.0])
    made[0].commit = lambda offsets, timeout_ms: told.append(offsets)  # type: ignore[attr-defined]
    begin(member)
    member.say({("predictions", 0): "[5,true]"})
    assert member.commit({("predictions", 0): 7, ("outcomes", 0): 3})
    (offsets,) = told
    assert {part.topic: (held.offset, held.metadata) for part, held in offsets.items()} == {
        "p": (7, "[5,true]"),
        "o": (3, ""),
    }
