"""The watermarks of all logs joined."""

from __future__ import annotations

from collections.abc import Iterable

from streamcal.stream.events import TOPICS
from streamcal.stream.reader import Log, LogReader
from streamcal.stream.watermark import BEGINNING

__all__ = ["Clocks"]


class Clocks:
    """One reader per log, and the event time they agree on: the lowest watermark.

    A log that has *ended* (a recorded one, read to its end) follows the lowest of its topic that has not.

    Parameters
    ----------
    out_of_order_ms : int
        Disorder allowed within a log.
    """

    def __init__(self, out_of_order_ms: int) -> None:
        self._out_of_order_ms = out_of_order_ms
        self._logs: dict[Log, LogReader] = {}
        self._ended: set[Log] = set()

    @property
    def logs(self) -> list[Log]:
        """Every log, by topic and partition."""
        return list(self._logs)

    def assign(self, partitions: Iterable[int]) -> None:
        """Have these partitions of both topics; those already there keep their watermarks."""
        wanted = [(topic, partition) for topic in TOPICS for partition in sorted(partitions)]
        self._logs = {log: self._logs.get(log) or LogReader(self._out_of_order_ms) for log in wanted}
        self._ended &= self._logs.keys()

    def reader(self, log: Log) -> LogReader:
        """Reads slices of a log."""
        return self._logs[log]

    def value(self, topic: str, partition: int) -> int:
        """Watermark of a log, `BEGINNING` before its first event."""
        return self._logs[topic, partition].watermark.value

    def lowest(self) -> int:
        """The event time, `BEGINNING` until every log has one."""
        return min((log.watermark.value for log in self._logs.values()), default=BEGINNING)

    def lowest_of(self, topic: str) -> int:
        """The event time of one topic, `BEGINNING` until each of its partitions has one."""
        return min((reader.watermark.value for log, reader in self._logs.items() if log[0] == topic), default=BEGINNING)

    def waiting(self, moment_ms: int) -> list[Log]:
        """The logs on which it depends when event time passes `moment_ms`; one that follows passes with its leaders."""
        led = {topic for topic in TOPICS if self._leaders(topic)}
        behind = [log for log, reader in self._logs.items() if reader.watermark.value <= moment_ms]
        return [log for log in behind if log not in self._ended or log[0] not in led]

    def advance(self, log: Log, to_ms: int) -> None:
        """Move a watermark if `to_ms` is ahead."""
        self._logs[log].watermark.advance(to_ms)

    def end(self, log: Log) -> None:
        """Nothing more comes from this log."""
        self._ended.add(log)

    def follow(self) -> set[int]:
        """Let logs that have ended follow; returns their partitions."""
        for topic in {topic for topic, _ in self._ended}:
            leaders = self._leaders(topic)
            if leaders:
                reached = min(leader.watermark.value for leader in leaders)
                for log in self._ended:
                    if log[0] == topic:
                        self.advance(log, reached)
        return {partition for _, partition in self._ended}

    def _leaders(self, topic: str) -> list[LogReader]:
        return [reader for log, reader in self._logs.items() if log[0] == topic and log not in self._ended]
