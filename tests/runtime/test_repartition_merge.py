"""The order in which a topic is written again: by time over all partitions, by the log within one."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from streamcal.runtime.config import Config
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.repartition import Merge, Purge, input_topics
from streamcal.runtime.repartition_group import WholeTopicAssignor


@pytest.mark.parametrize("seed", range(20))
def test_however_partitions_are_read_their_order_holds_and_time_goes_forward(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.randrange(0, 60) for _ in range(draw.randrange(1, 5))]
    logs = [sorted(draw.randrange(1000) for _ in range(size)) for size in sizes]
    merge, read, got = Merge(), [0] * len(logs), []
    while True:
        for number, log in enumerate(logs):
            more = draw.randrange(0, 12)
            batch = [
                LogRecord(b"", timestamp=at, offset=read[number] + n) for n, at in enumerate(log[read[number] :][:more])
            ]
            merge.add(number, batch)
            read[number] += len(batch)
        behind = {number for number, log in enumerate(logs) if read[number] < len(log)}
        got += merge.take(behind)
        if not behind:
            break
    stamps = [routed.record.timestamp for routed in got]
    assert stamps == sorted(at for log in logs for at in log)
    for number, log in enumerate(logs):
        own = [routed.record for routed in got if routed.partition == number]
        assert [record.offset for record in own] == list(range(len(log)))


def test_a_partition_that_runs_back_in_time_keeps_its_order() -> None:
    merge = Merge()
    merge.add(0, [LogRecord(b"", timestamp=at, offset=place) for place, at in enumerate([5, 3, 9, 1])])
    merge.add(1, [LogRecord(b"", timestamp=at) for at in (4, 6)])
    taken = [(routed.partition, routed.record.timestamp) for routed in merge.take(behind=())]
    assert taken == [(1, 4), (0, 5), (0, 3), (1, 6), (0, 9), (0, 1)]


def test_nothing_goes_while_a_partition_that_is_behind_has_brought_nothing() -> None:
    merge = Merge()
    merge.add(0, [LogRecord(b"", timestamp=1)])
    assert merge.take(behind={0, 1}) == []
    assert merge.waiting(0) == 1
    assert len(merge.take(behind={0})) == 1


def test_records_without_a_time_go_at_once() -> None:
    merge = Merge()
    merge.add(0, [LogRecord(b"", timestamp=None), LogRecord(b"", timestamp=-1)])
    merge.add(1, [LogRecord(b"", timestamp=7)])
    assert [routed.partition for routed in merge.take(behind={0, 1})] == [0, 0]


def test_what_was_read_goes_after_an_hour_and_no_further() -> None:
    purge, minute = Purge(), 60_000
    found = [purge.seen(at * minute, {"a": at}) for at in range(0, 121, 10)]
    assert found[:6] == [{}] * 6
    assert found[6:] == [{"a": at} for at in range(0, 61, 10)]


@pytest.mark.parametrize(
    ("value", "names", "sources"),
    [
        ("none", ("p", "o"), {}),
        ("outcomes", ("p", "g-repartition-outcomes"), {"outcomes": "o"}),
        ("predictions", ("g-repartition-predictions", "o"), {"predictions": "p"}),
        (
            "both",
            ("g-repartition-predictions", "g-repartition-outcomes"),
            {"predictions": "p", "outcomes": "o"},
        ),
    ],
)
def test_the_topic_named_is_read_from_an_internal_one(
    value: str, names: tuple[str, str], sources: dict[str, str]
) -> None:
    config = Config.model_validate(
        {"kafka": {"group_id": "g"}, "topics": {"predictions": "p", "outcomes": "o"}, "join": {"repartition": value}}
    )
    inputs = input_topics(config)
    assert (inputs.names["predictions"], inputs.names["outcomes"]) == names
    assert inputs.sources == sources


def member(name: str, *topics: str) -> Any:
    return SimpleNamespace(member_id=name, group_instance_id=None, metadata=SimpleNamespace(topics=list(topics)))


def test_a_topic_is_written_by_one_member_and_two_by_two() -> None:
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: {0, 1, 2})
    one = WholeTopicAssignor.assign(cluster, [member("b", "x"), member("a", "x")])
    assert {name: given.assigned_partitions for name, given in one.items()} == {"a": [("x", [0, 1, 2])], "b": []}
    two = WholeTopicAssignor.assign(cluster, [member("b", "x", "y"), member("a", "x", "y")])
    assert {name: [t for t, _ in given.assigned_partitions] for name, given in two.items()} == {"a": ["x"], "b": ["y"]}
