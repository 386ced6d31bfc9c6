"""Which topics the daemon reads, and the order in which a topic is written again where its keys are not ids.

Pure: no Kafka, no thread. The work itself is in `repartition_router`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streamcal.runtime.config import Config
from streamcal.stream.events import TOPICS, Record

__all__ = ["Inputs", "Merge", "Purge", "Routed", "input_topics", "router_group"]

_KEPT_MS: Final = 3_600_000
"""How long a record stays in the internal topic after it was read: time to look at it when something is wrong."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is read.

    Attributes
    ----------
    names : mapping
        Role to the topic that is joined: its own, or the internal one.
    sources : mapping
        Role to the topic that is written again, for roles that are.
    """

    names: Mapping[str, str]
    sources: Mapping[str, str]

    @property
    def rewritten(self) -> dict[str, str]:
        """Role to internal topic."""
        return {role: self.names[role] for role in self.sources}


def input_topics(config: Config) -> Inputs:
    """The topics of `config`, with ``<group_id>-repartition-<role>`` for those `join.repartition` names."""
    own = {role: str(getattr(config.topics, role)) for role in TOPICS}
    wanted = {"none": (), "both": TOPICS}.get(config.join.repartition, (config.join.repartition,))
    internal = {role: f"{config.kafka.group_id}-repartition-{role}" for role in wanted}
    return Inputs({**own, **internal}, {role: own[role] for role in wanted})


def router_group(group_id: str) -> str:
    """Consumer group of the routers."""
    return f"{group_id}-repartition"


class Routed(NamedTuple):
    """A record that is next."""

    partition: int
    record: Record


@dataclass(slots=True)
class _Waiting:
    """Records of one partition. Invariant: the keys never decrease."""

    records: deque[tuple[int, Record]] = field(default_factory=deque)
    reached: int = -1

    def add(self, records: Sequence[Record]) -> None:
        for record in records:
            self.reached = max(self.reached, -1 if record.timestamp is None else record.timestamp)
            self.records.append((self.reached, record))


class Merge:
    """Puts the partitions of one topic into one order, that of their records' timestamps.

    Guarantees: records of one partition keep their order (one that lies back in time sorts by the latest time before
    it); a record is handed out only when no partition that is still being read can have an earlier one.

    >>> from streamcal.runtime.logs.base import LogRecord
    >>> merge = Merge()
    >>> merge.add(0, [LogRecord(b"a", timestamp=1), LogRecord(b"c", timestamp=5)])
    >>> merge.add(1, [LogRecord(b"b", timestamp=3)])
    >>> [routed.record.value for routed in merge.take(behind={0, 1})]  # 1 may still bring a 4
    [b'a', b'b']
    >>> [routed.record.value for routed in merge.take(behind={0})]
    [b'c']
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}

    def add(self, partition: int, records: Sequence[Record]) -> None:
        """Take records that follow those of the same partition."""
        self._waiting.setdefault(partition, _Waiting()).add(records)

    def waiting(self, partition: int) -> int:
        """Records of a partition that are not handed out yet."""
        held = self._waiting.get(partition)
        return 0 if held is None else len(held.records)

    def take(self, behind: Collection[int]) -> list[Routed]:
        """What can go, in order; `behind` are the partitions that have more to bring."""
        ends = [self._end(partition) for partition in behind]
        if None in ends:
            return []
        bound = min((end for end in ends if end is not None), default=None)
        ready: list[tuple[int, int, Record]] = []
        for partition, held in sorted(self._waiting.items()):
            while held.records and (bound is None or held.records[0][0] <= bound):
                key, record = held.records.popleft()
                ready.append((key, partition, record))
        ready.sort(key=lambda entry: entry[0])  # stable: a partition's records keep their order
        return [Routed(partition, record) for _, partition, record in ready]

    def _end(self, partition: int) -> int | None:
        """Time before which a partition brings nothing more; None while nothing is known of it."""
        held = self._waiting.get(partition)
        return None if held is None or not held.records else held.records[-1][0]


class Purge:
    """Says what can be deleted of the internal topics: what was read (committed) an hour ago.

    >>> purge = Purge()
    >>> purge.seen(0, {"part": 10}), purge.seen(3_599_999, {"part": 20})
    ({}, {})
    >>> purge.seen(3_600_000, {"part": 30})
    {'part': 10}
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Mapping[Any, int]]] = deque()

    def seen(self, now_ms: int, committed: Mapping[Any, int]) -> Mapping[Any, int]:
        """Note what is committed now; returns the offsets below which records may go."""
        self._seen.append((now_ms, dict(committed)))
        found: Mapping[Any, int] = {}
        while self._seen and self._seen[0][0] <= now_ms - _KEPT_MS:
            found = self._seen.popleft()[1]
        return found
