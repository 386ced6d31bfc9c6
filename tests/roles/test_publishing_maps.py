"""Which maps are published, and when again: every one that was decided, and those in force last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from simulated_cluster import Process, World
from state_topics import quiet_world, run_to_end

from streamcal.maps.document import content_hash, decode, encode
from streamcal.maps.loop import PublishMap
from streamcal.runtime.monitor import Observer


def aggregation_of(process: Process) -> Any:
    (aggregation,) = process.monitor.aggregations.values()
    return aggregation


def fresh_end(world: World) -> Process:
    world.end_all()
    return run_to_end(world)


@pytest.fixture
def world() -> World:
    """Of a stream that maps are promoted on."""
    for seed in range(20):
        world, _ = quiet_world(seed)
        run_to_end(world)
        if world.maps:
            return world
    raise AssertionError("no stream with maps")


def test_maps_whose_owner_died_before_they_were_published_are_published_in_order_by_the_next(world: World) -> None:
    (process,) = world.processes.values()
    aggregation, counts = aggregation_of(process), process.cluster.counts
    (standing, *_) = [c for loop in aggregation.aggregator.loops.values() for c in loop.standing()]
    decided = [PublishMap(standing.key, b"superseded at once"), standing]
    aggregation.aggregator._commands += decided

    def dies(_: Sequence[PublishMap]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        aggregation.settle(dies, counts)
    world.maps.clear()
    heir = fresh_end(world)
    assert world.maps[:2] == decided
    assert world.maps[-1] != decided[0]
    world.maps.clear()
    aggregation_of(heir).snapshot()
    fresh_end(world)
    assert decided[0] not in world.maps


def test_behind_a_map_that_a_sleeper_published_late_those_in_force_are_published_again(world: World) -> None:
    (process,) = world.processes.values()
    standing = [c for loop in aggregation_of(process).aggregator.loops.values() for c in loop.standing()]
    first = standing[0]
    document = decode(first.document)
    older = msgspec.structs.replace(document, version=document.version - 1)
    older = msgspec.structs.replace(older, hash=content_hash(older))

    def published(late: bytes | None) -> list[PublishMap]:
        world.maps.append(PublishMap(first.key, late))  # type: ignore[arg-type]
        before = len(world.maps)
        process.monitor.commit()
        assert len(world.maps) == before
        world.seconds += world.settings.outbid_s + 1
        process.monitor.commit()
        return world.maps[before:]

    assert published(encode(older)) == [first]
    assert published(first.document) == []
    assert published(b"nothing that can be read") == [first]
    assert published(None) == []  # withdrawn by a person


def test_while_nothing_can_be_committed_nothing_is_read_and_afterwards_everything() -> None:
    class PutOff(Observer):
        go_on = False

        def before_commit(self) -> bool:
            return self.go_on

    world, events = quiet_world(5)
    world.start()
    (process,) = world.processes.values()
    monitor = process.monitor
    monitor._observer = observer = PutOff()
    while not monitor.read:
        world.seconds += 0.3
        monitor.step(0.0)
    assert not monitor.commit()
    held = monitor.read.total()
    assert held < len(events)
    for _ in range(50):
        world.seconds += 0.3
        monitor.step(0.0)
        assert not monitor.commit()
    assert monitor.read.total() == held
    observer.go_on = True
    while not process.idle():
        world.seconds += 0.3
        monitor.step(0.0)
        assert monitor.commit()
    assert monitor.read.total() == len(events)
