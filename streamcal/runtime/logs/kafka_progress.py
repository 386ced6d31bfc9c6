"""Whether a consumer that is behind gets anything: several releases of the client had faults by which it does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from streamcal.runtime.logs.kafka_clients import admin_timeout_ms

__all__ = ["STALLED_S", "ProgressWatch", "unread"]

STALLED_S: Final = 60.0
"""Behind for so long without a record: twice the client's longest back-off and a broker's restart."""
_ALONE: Final = 10
"""A part that gets nothing while others do may be waiting for its turn; so many times as long it is not."""


class ProgressWatch:
    """Measures how long parts have been behind without a record.

    Parameters
    ----------
    stalled_s : float
    now : callable
        Monotonic seconds.

    >>> clock = iter([0.0, 50.0, 110.0, 111.0, 171.0, 172.0, 773.0])
    >>> watch = ProgressWatch(60.0, lambda: next(clock))
    >>> watch.stalled({"a"}, moved=()), watch.stalled({"a"}, moved={"a"})
    ([], [])
    >>> watch.stalled({"a"}, moved=()), watch.stalled({"a"}, moved=())
    ([], ['a'])
    >>> watch.stalled({"a", "b"}, moved={"a"}), watch.stalled({"a", "b"}, moved={"a"})
    ([], ['b'])
    """

    def __init__(self, stalled_s: float = STALLED_S, now: Callable[[], float] = time.monotonic) -> None:
        self._stalled_s = stalled_s
        self._now = now
        self._any_s = now()
        self._since_s: dict[Any, float] = {}

    def begin(self) -> None:
        """An assignment was settled, or a consumer made."""
        self._any_s = self._now()
        self._since_s = {}

    def stalled(self, behind: Collection[Any], *, moved: Iterable[Any]) -> list[Any]:
        """Parts for which the consumer is to be made anew; asked after every poll.

        Parameters
        ----------
        behind : collection
            Parts that are read and not at their end.
        moved : iterable
            Those of which this poll had something.
        """
        now, moved = self._now(), set(moved)
        if moved or not behind:
            self._any_s = now
        self._since_s = {part: now if part in moved else self._since_s.get(part, self._any_s) for part in behind}
        alone_s = self._stalled_s if now - self._any_s > self._stalled_s else _ALONE * self._stalled_s
        return [part for part, since in self._since_s.items() if now - min(since, now) > alone_s]


def unread(consumer: Any, reached: Mapping[Any, int]) -> dict[str, int]:
    """Records that may be read of parts read so far, of those that have any; asks the broker.

    None where a transaction is open: nothing may be read beyond its first record.

    Raises
    ------
    KafkaError
        The broker does not tell.
    """
    ends = consumer.end_offsets(list(reached), timeout_ms=admin_timeout_ms)
    return {f"{part.topic}[{part.partition}]": ends[part] - at for part, at in reached.items() if ends[part] > at}
