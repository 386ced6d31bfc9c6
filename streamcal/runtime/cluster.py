"""What the monitor asks of a cluster, whether it is Kafka or memory under test.

A *part* is (topic role, partition number); the roles are ``predictions``, ``outcomes`` and ``counts``. Everything is
used from one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from streamcal.maps.loop import PublishMap
from streamcal.roles.task import CountsTopic
from streamcal.state.claimed_log import RecordLog
from streamcal.stream.events import Record

__all__ = ["COUNTS", "Cluster", "Fetched", "Group", "Part"]

COUNTS: Final = "counts"
"""Role of the counts topic, beside those of the inputs."""
Part = tuple[str, int]
Fetched = Mapping[Part, tuple[Sequence[Record], int]]
"""Records by part, and the offset of the record after them."""


class Group(Protocol):
    """Membership in the group that shares all parts."""

    def poll(self, timeout_s: float) -> Fetched:
        """What came of the parts that are open; empty while the assignment changes.

        Raises
        ------
        BrokerError
            The broker refuses for good, or records that should follow are gone.
        """
        ...

    @property
    def generation(self) -> int:
        """Changes with every assignment."""
        ...

    @property
    def parts(self) -> frozenset[Part]:
        """What is ours."""
        ...

    def open(self, part: Part, offset: int | None) -> int:
        """Read a part from `offset` on; None: from where the configuration says, of counts the first kept.

        Returns the offset of the record to be read first.

        Raises
        ------
        BrokerError
            Records from `offset` on have been deleted.
        LogUnavailableError
            It cannot be opened at present.
        """
        ...

    def pause(self, parts: Sequence[Part], *, paused: bool) -> None:
        """Hold parts back, or let them go on."""
        ...

    def commit(self, offsets: Mapping[Part, int]) -> bool:
        """Tell the group how far each part is folded in; whether the group took it."""
        ...

    def say(self, notes: Mapping[Part, str]) -> None:
        """Let a few words on parts go along with the next commits, for all members to read."""
        ...

    def said(self) -> Mapping[Part, str]:
        """What members said of all parts, some seconds old."""
        ...

    def lag(self) -> Mapping[Part, int]:
        """Unread records of open parts, where known."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Cluster(Protocol):
    """Everything outside.

    Attributes
    ----------
    sources : int
        Partitions of the input topics.
    shards : int
        Partitions of the counts topic.
    """

    sources: int
    shards: int

    @property
    def group(self) -> Group:
        """Our membership."""
        ...

    @property
    def counts(self) -> CountsTopic:
        """The counts topic."""
        ...

    def state(self, number: int) -> RecordLog:
        """A partition of the state topic: tasks first, then the shards of the aggregator."""
        ...

    def new_author(self) -> bytes:
        """An id never used before."""
        ...

    def publish_maps(self, commands: Sequence[PublishMap]) -> None:
        """Append to the maps topic; returns once acknowledged.

        Raises
        ------
        AppendUncertainError
            It may not be stored.
        """
        ...

    def published_maps(self) -> Mapping[str, Sequence[bytes]]:
        """Documents of the maps topic by key, oldest first."""
        ...

    def newest_maps(self) -> Mapping[str, bytes | None]:
        """The last record by key of those appended since this was first asked; None: without a value."""
        ...

    def close(self) -> None:
        """Let go of all resources."""
        ...
