"""An embedded broker: partitions as lists, with back-pressure. The demo and the tests run on it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence

from streamcal.engine import Slice
from streamcal.runtime.logs.base import LogRecord, Poll
from streamcal.stream.events import TOPICS
from streamcal.transform.source import MapUpdate

__all__ = ["MemoryBroker", "MemoryLog", "MemoryMaps", "MemoryProducer"]


class MemoryBroker:
    """Topics in memory, safe to use from several threads.

    Guarantees per-partition order; `send` to an input topic waits while `capacity` records of it are
    unread, so a fast producer stays close to what reads it.

    Parameters
    ----------
    partitions : int
        Partitions of each input topic.
    capacity : int or None
        Unread records allowed over an input topic; None: no limit.
    now_ms : callable
        Timestamps given to records.
    """

    def __init__(self, partitions: int = 1, *, capacity: int | None = None, now_ms: Callable[[], int]) -> None:
        self.partitions = partitions
        self._capacity = capacity
        self._now_ms = now_ms
        self._logs: dict[tuple[str, int], list[LogRecord]] = {
            (topic, number): [] for topic in TOPICS for number in range(partitions)
        }
        self._ends = dict.fromkeys(self._logs, 0)
        self._maps: list[tuple[str, bytes]] = []
        self._closed = False
        self._changed = threading.Condition()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp: int | None = None,
    ) -> None:
        """Append a record, to the partition its key hashes to."""
        number = zlib.crc32(key or b"") % self.partitions
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._full(topic))
            log = topic, number
            stamp = self._now_ms() if timestamp is None else timestamp
            self._logs[log].append(LogRecord(value, key, headers, stamp, self._ends[log]))
            self._ends[log] += 1
            self._changed.notify_all()

    def take(self, timeout_s: float, most: int) -> dict[tuple[str, int], list[LogRecord]]:
        """Hand out (and forget) up to `most` unread records per log, waiting for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or any(self._logs.values()), timeout_s)
            taken = {log: held[:most] for log, held in self._logs.items() if held}
            for log, records in taken.items():
                del self._logs[log][: len(records)]
            self._changed.notify_all()
            return taken

    def unread(self) -> dict[tuple[str, int], int]:
        """Unread records per log."""
        with self._changed:
            return {log: len(held) for log, held in self._logs.items()}

    def publish_map(self, key: str, document: bytes) -> None:
        """Append to the maps topic."""
        with self._changed:
            self._maps.append((key, document))
            self._changed.notify_all()

    def maps_from(self, position: int, timeout_s: float = 0.0) -> list[tuple[str, bytes]]:
        """Entries of the maps topic from `position` on, waiting for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._maps) > position, timeout_s)
            return self._maps[position:]

    def close(self) -> None:
        """Wake and release everyone who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _full(self, topic: str) -> bool:
        if self._capacity is None:
            return False
        return sum(len(held) for (name, _), held in self._logs.items() if name == topic) >= self._capacity


class MemoryProducer:
    """The `send` of a Kafka producer, onto a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Append one record."""
        self._broker.send(topic, value, key, headers=headers or (), timestamp=timestamp_ms)


class MemoryMaps:
    """The maps topic of a `MemoryBroker` for a transformer; a `MapSource`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._position = 0
        self._interrupted = False

    @property
    def caught_up(self) -> bool:
        """Whether everything published so far has been polled."""
        return not self._broker.maps_from(self._position)

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        """What was published since the last poll."""
        found = self._broker.maps_from(self._position, 0.0 if self._interrupted else timeout_s)
        self._position += len(found)
        return [MapUpdate(key, document) for key, document in found]

    def interrupt(self) -> None:
        """Wait no more; a `poll` under way ends by its own time."""
        self._interrupted = True

    def close(self) -> None:
        """Nothing to release."""


class MemoryLog:
    """Reads a `MemoryBroker`; see `Log`."""

    finished = False

    def __init__(self, broker: MemoryBroker, *, max_records: int = 10_000) -> None:
        self._broker = broker
        self._max_records = max_records

    def open(self) -> Mapping[str, Sequence[bytes]]:
        """Documents published before."""
        held: dict[str, list[bytes]] = {}
        for key, document in self._broker.maps_from(0):
            held.setdefault(key, []).append(document)
        return held

    @property
    def partitions(self) -> frozenset[int]:
        """All of the broker's."""
        return frozenset(range(self._broker.partitions))

    def poll(self, timeout_s: float) -> Poll:
        """The next records of every partition."""
        taken = self._broker.take(timeout_s, self._max_records)
        return Poll([Slice(topic, number, records) for (topic, number), records in sorted(taken.items(), reverse=True)])

    def lag(self) -> dict[tuple[str, int], int]:
        """Unread records."""
        return self._broker.unread()

    def publish(self, key: str, document: bytes) -> None:
        """Append to the maps topic."""
        self._broker.publish_map(key, document)

    def commit(self) -> None:
        """Nothing to keep: records are handed out once."""

    def close(self) -> None:
        """Release whoever waits to send."""
        self._broker.close()
