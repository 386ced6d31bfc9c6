"""A router that is behind and gets nothing begins with another consumer; one that may not read on waits."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import TopicPartition

from streamcal.runtime.logs.kafka_progress import ProgressWatch
from streamcal.runtime.repartition import Inputs, Merge
from streamcal.runtime.repartition_router import Router

PART = TopicPartition("outcomes", 0)


class Consumer:
    def __init__(self, end: int = 9) -> None:
        self.end, self.closed, self.subscribed = end, False, False

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def subscribe(self, *_: Any, **__: Any) -> None:
        self.subscribed = True

    def end_offsets(self, parts: list[Any], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(parts, self.end)

    def position(self, _: Any, timeout_ms: int) -> int:
        return 5

    def close(self, **_: Any) -> None:
        self.closed = True


class Clients:
    group_id, servers = "g", "a test"

    def __init__(self) -> None:
        self.made = Consumer()

    def router_consumer(self, _: str) -> Consumer:
        return self.made


@pytest.mark.parametrize(("end", "anew"), [(9, True), (5, False)])
def test_only_where_there_is_something_to_read_the_consumer_is_made_anew(end: int, anew: bool) -> None:
    clients, clock = Clients(), [0.0]
    router = Router(clients, Inputs({"outcomes": "again"}, {"outcomes": "outcomes"}), 1, {}, "earliest")  # type: ignore[arg-type]
    router._consumer = stuck = Consumer(end)
    router._progress = ProgressWatch(60.0, lambda: clock[0])
    router._listener.moved = False
    router._next, router._committed, router._merges = {PART: 5}, {PART: 5}, {"outcomes": Merge()}
    for clock[0] in (0.0, 30.0, 60.0):
        router._watch([PART], ())
        assert not stuck.closed
    clock[0] = 61.0
    router._watch([PART], ())
    assert (stuck.closed, clients.made.subscribed) == (anew, anew)
    assert router._next == ({} if anew else {PART: 5})
