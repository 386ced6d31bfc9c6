"""A cluster in memory whose every promise can fail, under a seeded scheduler.

Processes run the product's own monitor on it. Between any two of their calls they may die; an append may be lost,
stored without an answer, stored twice, or stored long after its author was given up; the group may move parts without
a process noticing for a while; the counts topic may be compacted at any moment; reading state may take many steps; a
log may be silent for a while, and its records come all at once then. Each kind of fault that was hit is counted, so
that a run can say what it went through. A seed reproduces exactly.
"""

from __future__ import annotations

import contextlib
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from streamcal.errors import StateFormatError
from streamcal.maps.loop import PublishMap
from streamcal.parts.mark import MarkKey
from streamcal.parts.part import StoredKey
from streamcal.runtime.cluster import Fetched, Part
from streamcal.runtime.held_roles import MonitorSettings
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.monitor import Monitor
from streamcal.state.claimed_log import AppendUncertainError, LogUnavailableError
from streamcal.state.memory_log import MemoryCounts, MemoryRecordLog
from streamcal.state.reading import decoded
from streamcal.stream.events import TOPICS

FAULTS = (
    *("crash", "append lost", "append unanswered", "append duplicated", "append delayed", "torn chunks"),
    *("zombie wrote", "rebalance", "joined", "left", "compaction", "slow restore", "state unreadable", "delete lost"),
    *("delayed record landed", "idle advance", "held back", "silence", "stored while others were sent"),
)
"""Every kind that can be hit."""


class SimulatedCrash(BaseException):
    """The process is gone from here on; nothing may catch it."""


class OwnedLog(MemoryRecordLog):
    """Knows whose claim is the last one stored, whoever stored it."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = b""

    def append(self, values: Sequence[bytes]) -> list[int]:
        offsets = super().append(values)
        for value in values:
            with contextlib.suppress(StateFormatError):  # a test may store what is no record
                record = decoded(value, "simulated")
                self.owner = record.author if record.kind == "claim" else self.owner
        return offsets


class World:
    """All logs and processes.

    Parameters
    ----------
    seed : int
    logs : mapping of part to records
        Of both input topics.
    settings : MonitorSettings
    sources : int
    arrivals : mapping of part to seconds
        When each record can be read first; none is given: at once.
    """

    def __init__(
        self,
        seed: int,
        logs: Mapping[Part, Sequence[LogRecord]],
        settings: MonitorSettings,
        sources: int,
        arrivals: Mapping[Part, Sequence[float]] | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.logs = logs
        self.arrivals = arrivals or {}
        self.said: dict[Part, str] = {}
        self.settings = settings
        self.sources = sources
        self.state = {number: OwnedLog() for number in range(sources + 1)}
        self.counts = MemoryCounts()
        self.maps: list[PublishMap] = []
        self.delayed: list[tuple[str, int, Any]] = []
        self.hit: Counter[str] = Counter()
        self.generation = 0
        self.assignment: dict[int, frozenset[Part]] = {}
        self.processes: dict[int, Process] = {}
        self.started = 0
        self.seconds = 0.0
        self.calm = False

    def chance(self, share: float) -> bool:
        """Whether something that happens so often happens now; never in calm times."""
        return not self.calm and self.random.random() < share

    def there(self, part: Part) -> int:
        """Records of an input log that have come by now."""
        arrivals = self.arrivals.get(part)
        if self.calm or arrivals is None:
            return len(self.logs[part])
        return bisect_right(arrivals, self.seconds)

    def now(self) -> float:
        """Seconds; every look at the clock takes a little."""
        self.seconds += 0.01
        return self.seconds

    def start(self) -> None:
        """One more process."""
        self.started += 1
        self.processes[self.started] = Process(self, self.started)
        self.hit["joined"] += 1
        self.rebalance()

    def end(self, number: int) -> None:
        """A process is gone."""
        del self.processes[number]
        self.rebalance()

    def end_all(self) -> None:
        """Every process is gone."""
        for number in list(self.processes):
            self.end(number)

    def rebalance(self) -> None:
        """Share all parts anew, as the range assignor does; some processes will not notice at once."""
        self.generation += 1
        self.hit["rebalance"] += 1
        members = sorted(self.processes)
        self.random.shuffle(members)
        shares: dict[int, set[Part]] = {member: set() for member in members}
        for place, number in enumerate(range(self.sources)):
            if members:
                shares[members[place % len(members)]] |= {(topic, number) for topic in TOPICS}
        if members:
            shares[members[-1]].add(("counts", 0))
        self.assignment = {member: frozenset(parts) for member, parts in shares.items()}
        for process in self.processes.values():
            process.unaware = self.random.randrange(12) if self.chance(0.3) else 0

    def land(self) -> None:
        """Store a record that was given up long ago."""
        if self.delayed:
            kind, number, what = self.delayed.pop(self.random.randrange(len(self.delayed)))
            self.hit["delayed record landed"] += 1
            if kind == "state":
                self.state[number].append([what])
            else:
                self.counts.publish(None, *what)

    def act(self) -> None:
        """Let something happen."""
        self.seconds += 0.3
        number = self.random.choice(sorted(self.processes)) if self.processes else None
        if number is None or self.chance(0.03):
            self.start()
        elif self.chance(0.02):
            self.hit["left"] += 1
            self.end(number)
        elif self.chance(0.02):
            self.rebalance()
        elif self.chance(0.05):
            self.hit["compaction"] += 1
            self.counts.compact()
        elif self.chance(0.05):
            self.land()
        else:
            try:
                self.processes[number].run()
            except SimulatedCrash:
                self.hit["crash"] += 1
                self.end(number)

    def finish(self) -> Process:
        """No more faults: one process reads everything to the end, and what is on its way still comes after that."""
        self.calm = True
        self.end_all()
        self.start()
        (process,) = self.processes.values()
        for _ in range(400):
            self.seconds += 0.3
            process.monitor.step(0.0)
            process.monitor.commit()
            if process.idle():
                if not self.delayed:
                    break
                self.land()
        else:
            raise AssertionError("the last process did not come to the end of the logs")
        for _ in range(3):
            process.monitor.step(0.0)
            process.monitor.commit()
        return process


class Process:
    """A monitor and its view of the cluster."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.unaware = 0
        self.fenced: set[int] = set()
        self.cluster = SimulatedCluster(world, self, number)
        self.monitor = Monitor(world.settings, self.cluster, world.now)

    def run(self) -> None:
        """One step, or a commit."""
        if self.world.random.random() < 0.6:
            self.monitor.step(0.0)
        else:
            self.monitor.commit()
            if self.world.chance(0.25):
                self.snapshot()

    def snapshot(self) -> None:
        """Snapshots sooner than their size asks for: what was told before them is not told again."""
        for number, task in list(self.monitor.tasks.items()):
            if not task.changed:
                self.monitor.roles.guarded(task.snapshot, ("task", number))

    def boundary(self, scale: float = 1.0) -> None:
        """Between two calls to the outside, where a process may die."""
        if self.world.chance(0.006 * scale):
            raise SimulatedCrash

    def idle(self) -> bool:
        """Whether nothing is left to read or to recover."""
        monitor, world = self.monitor, self.world
        if monitor.roles.recovering or not monitor.aggregations or len(monitor.tasks) < world.sources:
            return False
        read = all(
            task.offsets.get(topic) == len(world.logs[topic, number])
            for number, task in monitor.tasks.items()
            for topic in TOPICS
        )
        return read and all(held.position == world.counts.next_offset for held in monitor.aggregations.values())

    @property
    def is_zombie(self) -> bool:
        return self.cluster.group.parts != self.world.assignment.get(self.cluster.number)


class SimulatedCluster:
    """One process's view."""

    shards = 1

    def __init__(self, world: World, process: Process, number: int) -> None:
        self.world, self.process, self.number = world, process, number
        self.sources = world.sources
        self.group = SimulatedGroup(world, process, number)
        self.counts = SimulatedCounts(world, process)
        self._authors = 0

    def state(self, number: int) -> SimulatedLog:
        return SimulatedLog(self.world, self.process, number)

    def new_author(self) -> bytes:
        self._authors += 1
        return f"{self.number}.{self._authors}".encode()

    def publish_maps(self, commands: Sequence[PublishMap]) -> None:
        for command in commands:
            self.process.boundary()
            self.world.maps.append(command)
            self.process.boundary()

    def published_maps(self) -> Mapping[str, Sequence[bytes]]:
        found: dict[str, list[bytes]] = {}
        for command in self.world.maps:
            found.setdefault(command.key, []).append(command.document)
        return found

    def newest_maps(self) -> Mapping[str, bytes | None]:
        return {command.key: command.document for command in self.world.maps}

    def close(self) -> None:
        pass


class SimulatedGroup:
    """Membership that may be out of date."""

    def __init__(self, world: World, process: Process, number: int) -> None:
        self.world, self.process, self.number = world, process, number
        self.parts: frozenset[Part] = frozenset()
        self.generation = 0
        self._seen = 0
        self._next: dict[Part, int] = {}
        self._paused: set[Part] = set()
        self._notes: Mapping[Part, str] = {}

    def poll(self, timeout_s: float) -> Fetched:
        self.process.boundary()
        if self._seen != self.world.generation:
            if self.process.unaware:
                self.process.unaware -= 1
            else:
                self._seen = self.world.generation
                self.parts = self.world.assignment.get(self.number, frozenset())
                self.generation += 1
                self._next, self._paused = {}, set()
                return {}
        found = {}
        for part, start in self._next.items():
            if part in self._paused:
                continue
            records = self._of(part, start, self.world.random.randrange(1, 40))
            if records:
                self._next[part] = records[-1].offset + 1
                found[part] = (records, self._next[part])
        self.process.boundary()
        return found

    def _of(self, part: Part, start: int, most: int) -> list[LogRecord]:
        if part[0] != "counts":
            return list(self.world.logs[part][start : min(start + most, self.world.there(part))])
        held = self.world.counts.since(start)[: 5 * most]
        return [LogRecord(value, key=key, offset=offset) for offset, key, value in held]

    def open(self, part: Part, offset: int | None) -> int:
        self._next[part] = offset or 0
        self._paused.discard(part)
        return self._next[part]

    def pause(self, parts: Sequence[Part], *, paused: bool) -> None:
        (self._paused.update if paused else self._paused.difference_update)(parts)
        self.world.hit["held back"] += paused and all(part[1] in self.process.monitor.tasks for part in parts)

    def say(self, notes: Mapping[Part, str]) -> None:
        self._notes = notes

    def said(self) -> Mapping[Part, str]:
        return self.world.said

    def commit(self, offsets: Mapping[Part, int]) -> bool:
        self.process.boundary()
        if self.process.is_zombie:
            return False
        self.world.said.update({part: text for part, text in self._notes.items() if part in offsets})
        return True

    def lag(self) -> Mapping[Part, int]:
        return {part: self.world.there(part) - at for part, at in self._next.items() if part[0] != "counts"}

    def close(self) -> None:
        pass


class SimulatedLog:
    """A partition of the state topic whose answers may not come."""

    def __init__(self, world: World, process: Process, number: int) -> None:
        self.world, self.process, self.number = world, process, number

    def send(self, values: Sequence[bytes]) -> Callable[[], list[int]]:
        """Stored while it is sent, or not before it is waited for; either way only the wait says what became of it."""
        if self.world.chance(0.5):
            return lambda: self._store(values)
        try:
            offsets = self._store(values)
        except AppendUncertainError as error:
            return partial(_failed, error)
        self.world.hit["stored while others were sent"] += 1
        return lambda: offsets

    def _store(self, values: Sequence[bytes]) -> list[int]:
        log, offsets = self.world.state[self.number], []
        scale = min(1.0, 4 / len(values))  # however many chunks: most snapshots come through
        for place, value in enumerate(values):
            if place and self.world.chance(0.1 * scale):
                self.world.land()  # one of another author between two of ours
            try:
                self.process.boundary(scale)
            except SimulatedCrash:
                self.world.hit["torn chunks"] += place > 0
                raise
            offsets += _store(
                self.world, ("state", self.number, value), lambda value=value: log.append([value])[0], scale
            )
            self._note_owner(value)
            if self.process.is_zombie:
                self.world.hit["zombie wrote"] += 1
        self.process.boundary()
        return offsets

    def _note_owner(self, value: bytes) -> None:
        """Whether what we have just stored came after somebody else's claim: nothing may follow from it then."""
        record, fenced = decoded(value, "simulated"), self.process.fenced
        if record.kind == "claim":
            fenced.discard(self.number)
        elif self.world.state[self.number].owner != record.author:
            fenced.add(self.number)

    def read(self, start: int | None, stop: int) -> Iterator[tuple[int, bytes] | None]:
        for record in self.world.state[self.number].read(start, stop):
            if self.world.chance(0.05):
                self.world.hit["slow restore"] += 1
                yield None
            if self.world.chance(0.005):
                self.world.hit["state unreadable"] += 1
                raise LogUnavailableError("no answer")
            self.process.boundary()
            yield record

    def delete_before(self, offset: int) -> None:
        self.process.boundary()
        if self.world.chance(0.3):
            self.world.hit["delete lost"] += 1
        else:
            self.world.state[self.number].delete_before(offset)


class SimulatedCounts:
    """The counts topic, stored record by record at `flush`."""

    def __init__(self, world: World, process: Process) -> None:
        self.world, self.process = world, process
        self._waiting: list[tuple[bytes, bytes | None]] = []

    def publish(self, model: str | None, key: bytes, value: bytes | None) -> None:
        if value is not None:
            of = MarkKey.from_bytes(key) or StoredKey.from_bytes(key)
            assert of.source not in self.process.fenced, f"source {of.source} told of what came after another's claim"
        self._waiting.append((key, value))

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        parts = [entry for entry in waiting if MarkKey.from_bytes(entry[0]) is None]
        self.world.random.shuffle(parts)  # nothing promises an order among them; the mark stays last
        if all(value is not None for _, value in waiting):
            waiting = parts + [entry for entry in waiting if MarkKey.from_bytes(entry[0]) is not None]
        for key, value in waiting:
            self.process.boundary()
            _store(self.world, ("counts", 0, (key, value)), lambda k=key, v=value: self._stored(k, v), delay=0.03)
        self.process.boundary()

    def _stored(self, key: bytes, value: bytes | None) -> int:
        self.world.counts.publish(None, key, value)
        return self.world.counts.next_offset - 1


def _failed(error: AppendUncertainError) -> list[int]:
    raise error


def _store(world: World, what: tuple[str, int, Any], store: Any, scale: float = 1.0, delay: float = 0.01) -> list[int]:
    """Store a record, or not, and say so, or not."""
    share = 0.01 * scale
    if world.chance(share):
        world.hit["append lost"] += 1
        raise AppendUncertainError("lost")
    if world.chance(delay * scale):
        world.hit["append delayed"] += 1
        world.delayed.append(what)
        raise AppendUncertainError("delayed")
    offset = store()
    if world.chance(share):
        world.hit["append unanswered"] += 1
        raise AppendUncertainError("no answer")
    if world.chance(share):
        world.hit["append duplicated"] += 1
        store()
    return [offset]
