"""What the tools ask of the topics of a group, whether they are Kafka's or memory's."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from streamcal.roles.aggregation import CountsRecord
from streamcal.roles.task import CountsTopic
from streamcal.runtime.cluster import Part
from streamcal.state.reading import LogUnavailableError, RecordLog, Restored, read_state
from streamcal.stream.events import Record

__all__ = ["Kept", "StateStore", "left_in"]

Kept = tuple[int, int]
"""First offset that a log holds, and its end."""
_TIMES: Final = 3
"""A log is read, beside an owner that deletes what it has taken snapshots of."""


class StateStore(Protocol):
    """The topics of one group.

    Attributes
    ----------
    sources, shards : int
        Partitions of the inputs, as the state has them, and of the counts topic.
    input_partitions : mapping of str to int
        Of each input as it is now.
    """

    sources: int
    shards: int
    input_partitions: Mapping[str, int]

    @property
    def topic(self) -> CountsTopic:
        """The counts topic, to write to."""
        ...

    def state(self, number: int) -> RecordLog:
        """A partition of the state topic: tasks first, then the shards of the aggregator."""
        ...

    def state_kept(self, number: int) -> Kept:
        """What a partition of the state topic holds."""
        ...

    def counts_kept(self, shard: int) -> Kept:
        """What a partition of the counts topic holds."""
        ...

    def counts(self, shard: int) -> Iterator[CountsRecord]:
        """Everything on a partition of the counts topic up to its present end."""
        ...

    def input_kept(self, part: Part) -> Kept:
        """What a partition of the inputs holds."""
        ...

    def input_from(self, part: Part, at_ms: int) -> int:
        """Offset of the first record whose own time is not before `at_ms`; the end where there is none."""
        ...

    def inputs(self, parts: Sequence[tuple[Part, int, int]]) -> Iterator[tuple[Part, Record]]:
        """Records of parts from an offset up to another, the earlier own time first, each part in order."""
        ...

    def new_author(self) -> bytes:
        """An id never used before."""
        ...

    def members(self) -> int:
        """Processes that are in the group now."""
        ...


def left_in(store: StateStore, number: int) -> Restored:
    """What a partition of the state topic holds, without claiming it; raises as `read_state` does."""
    for _ in range(_TIMES - 1):
        with contextlib.suppress(LogUnavailableError):  # its owner may have deleted what we were about to read
            return _read(store, number)
    return _read(store, number)


def _read(store: StateStore, number: int) -> Restored:
    steps = deque(read_state(store.state(number), store.state_kept(number)[1], where=f"state[{number}]"), maxlen=1)
    return steps.pop()
