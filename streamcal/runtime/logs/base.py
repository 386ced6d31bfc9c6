"""What the runtime asks of a log, whether it is Kafka, memory or files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamcal.engine import Slice

__all__ = ["Advance", "Log", "LogRecord", "Poll"]


class LogRecord(NamedTuple):
    """A record of the in-memory and file logs; see `streamcal.stream.events.Record`."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Advance:
    """A recorded advance of one log's watermark, to be applied after the slices of its poll."""

    topic: str
    partition: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll brought: at most one slice per log, then advances, then logs (topic, partition) that have ended."""

    slices: Sequence[Slice] = ()
    advances: Sequence[Advance] = ()
    ended: Sequence[tuple[str, int]] = ()


class Log(Protocol):
    """Where events come from and maps go to; used from one thread."""

    def open(self) -> Mapping[str, Sequence[bytes]]:
        """Connect and check; return the map documents already published, by key, oldest first."""
        ...

    def poll(self, timeout_s: float) -> Poll:
        """The next records; empty when none came in time."""
        ...

    @property
    def partitions(self) -> frozenset[int]:
        """Partition numbers joined here at present."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing will ever follow (files)."""
        ...

    def lag(self) -> dict[tuple[str, int], int]:
        """Unread records per log, where known."""
        ...

    def publish(self, key: str, document: bytes) -> None:
        """Append to the maps topic; returns when it is stored."""
        ...

    def commit(self) -> None:
        """Everything polled so far has been folded in."""
        ...

    def close(self) -> None:
        """Let go of all resources."""
        ...
