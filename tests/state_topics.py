"""The topics of a simulated group, as the tools for its state see them; and runs in which nothing goes wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from recount_events import Event
from simulated_cluster import Process, World
from simulated_runs import SOURCES, events_of, rules_of, world_of

from streamcal.runtime.cluster import Part
from streamcal.state.memory_log import MemoryCounts, MemoryRecordLog
from streamcal.state.reading import RecordLog

__all__ = ["MemoryStore", "quiet_world", "run_to_end"]


class MemoryStore:
    """A `StateStore` of a world in memory; `first` moves the first records that inputs keep."""

    shards = 1

    def __init__(self, world: World) -> None:
        self.world = world
        self.sources = world.sources
        self.input_partitions: Mapping[str, int] = dict.fromkeys(("predictions", "outcomes"), world.sources)
        self.first: dict[Part, int] = {}
        self.group_members = 0
        self._authors = count()

    @property
    def topic(self) -> MemoryCounts:
        return self.world.counts

    def state(self, number: int) -> RecordLog:
        return self.world.state[number]

    def state_kept(self, number: int) -> tuple[int, int]:
        log: MemoryRecordLog = self.world.state[number]
        return (log.records[0][0] if log.records else log.next_offset), log.next_offset

    def counts_kept(self, shard: int) -> tuple[int, int]:
        return 0, self.world.counts.next_offset

    def counts(self, shard: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        yield from self.world.counts.records

    def input_kept(self, part: Part) -> tuple[int, int]:
        return self.first.get(part, 0), len(self.world.logs[part])

    def input_from(self, part: Part, at_ms: int) -> int:
        stamps = [record.timestamp or 0 for record in self.world.logs[part]]
        return next((place for place, stamp in enumerate(stamps) if stamp >= at_ms), len(stamps))

    def inputs(self, parts: Sequence[tuple[Part, int, int]]) -> Iterator[tuple[Part, Any]]:
        for part, start, stop in parts:
            for record in self.world.logs[part][start:stop]:
                yield part, record

    def new_author(self) -> bytes:
        return f"tool {next(self._authors)}".encode()

    def members(self) -> int:
        return self.group_members


def quiet_world(seed: int, *, cut: Mapping[Part, int] | None = None) -> tuple[World, list[Event]]:
    """A world in which nothing goes wrong, and its events; `cut` limits how many records a log holds so far."""
    rules = rules_of(seed)
    events = events_of(seed, rules)
    world = world_of(seed, events, rules)
    world.calm = True
    for part, stop in (cut or {}).items():
        world.logs[part] = world.logs[part][:stop]  # type: ignore[index]
    assert world.sources == SOURCES
    return world, events


def run_to_end(world: World) -> Process:
    """One fresh process reads everything there is."""
    world.calm = True
    return world.finish()
