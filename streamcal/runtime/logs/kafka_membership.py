"""Membership in the consumer group, for `Monitor`: which parts are ours, and records of those that are open.

Rules
-----
- The listener runs on the client's own thread, where hardly any call is allowed: it notes that the assignment changed,
  and the reading thread settles it. Records of a poll in which that happened are thrown away; whoever reads them says
  from where on.
- Every part is paused until it is opened at an offset, after each assignment anew, kept or not: the client goes back to
  the group's offset with a part it keeps, and that is behind what was read.
- The group's offsets are for lag tools. Where a part goes on is said by the state.
- A consumer that is behind on open parts and gets nothing for a while is made anew (several releases of the client had
  such faults).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalStateError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from streamcal.errors import BrokerError
from streamcal.runtime.cluster import Fetched, Part
from streamcal.runtime.logs.kafka_client_faults import poll, position, seek, topic_id
from streamcal.runtime.logs.kafka_clients import admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import Trouble, out_of_range, passes, refusal
from streamcal.runtime.logs.kafka_progress import STALLED_S, ProgressWatch, unread
from streamcal.state.claimed_log import LogUnavailableError

__all__ = ["MADE_ANEW", "Beside", "KafkaMembership"]

_COMMIT_MS: Final = 5_000
_PAUSE_S: Final = 0.2
"""Pause after an error that comes back at once, so that trying again does not spin."""

_GONE: Final = "accept the gap with `streamcal state accept-gap`, or begin anew with `streamcal state reset`"
MADE_ANEW: Final = "begin anew with `streamcal state reset`, or read the inputs again with `streamcal state rebuild`"

log = structlog.get_logger(__name__)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client ships no types
    """Notes an assignment; nothing else may be done on the client's thread."""

    def __init__(self) -> None:
        self.moved = False

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Wait for the assignment that follows."""

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:  # noqa: ARG002
        """Note it."""
        self.moved = True


class Beside(Protocol):
    """What goes on beside reading."""

    def check(self) -> None:
        """Raise what went wrong there."""
        ...

    def sample(self, role: str, partition: int, records: Sequence[Any]) -> None:
        """Look at records that were read."""
        ...

    def said(self) -> Mapping[Part, str]:
        """What members said of their parts with their commits."""
        ...

    def behind(self) -> frozenset[str]:
        """Roles of which more is to come than the topic that is read shows."""
        ...


class KafkaMembership:
    """A member of the group; see `streamcal.runtime.cluster.Group`.

    Parameters
    ----------
    make : callable
        Makes a consumer that is a member of the group, not yet subscribed.
    topics : mapping of str to str
        Topic by role.
    start : {"earliest", "latest"} or int
        Where an input partition begins of which nothing was ever read; an int is a record time in ms.
    check : callable
        Called with the partition count of each topic at each assignment; may raise.
    beside : Beside
    from_earliest : collection of str
        Roles that always begin with the first record that is kept.
    group_id, where : str
        For messages.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        topics: Mapping[str, str],
        start: str | int,
        *,
        check: Callable[[Mapping[str, int]], None],
        beside: Beside,
        from_earliest: Collection[str],
        group_id: str,
        where: str,
    ) -> None:
        self._make = make
        self._topic = dict(topics)
        self._role = {topic: role for role, topic in topics.items()}
        self._start = start
        self._check = check
        self._beside = beside
        self._from_earliest = frozenset(from_earliest)
        self._group_id = group_id
        self._where = where
        self._trouble = Trouble()
        self._notes: dict[Part, str] = {}
        self._ids: dict[str, str] = {}
        self._next: dict[Any, int] = {}
        self._held_back: set[Any] = set()
        self.parts: frozenset[Part] = frozenset()
        self.generation = 0
        self._progress = ProgressWatch()
        self._join()

    def poll(self, timeout_s: float) -> Fetched:
        """Records of open parts; see `Group.poll`."""
        self._beside.check()
        if self._listener.moved and not self._settled():
            time.sleep(min(timeout_s, _PAUSE_S))
            return {}
        fetched = self._fetch(timeout_s)
        self._check_same_topics()
        if self._listener.moved:
            self._settled()
            return {}
        found: dict[Part, tuple[Sequence[Any], int]] = {}
        for part, records in fetched.items():
            if part in self._next:
                self._next[part] = self._position(part, records[-1].offset + 1)
                self._beside.sample(*self._part(part), records)
                found[self._part(part)] = (records, self._next[part])
        if not fetched:
            found = self._passed()
        self._watch(fetched)
        return found

    def _passed(self) -> dict[Part, tuple[Sequence[Any], int]]:
        """Parts in which there was no record, and something that is none: markers, and what was aborted."""
        reached = {part: self._position(part, at) for part, at in self._next.items()}
        passed = {part: at for part, at in reached.items() if at > self._next[part]}
        self._next |= passed
        return {self._part(part): ((), at) for part, at in passed.items()}

    def open(self, part: Part, offset: int | None) -> int:
        """Read a part from `offset` on; see `Group.open`."""
        target = TopicPartition(self._topic[part[0]], part[1])
        try:
            at = self._first(target, part[0]) if offset is None else offset
            if offset is not None:
                self._check_kept(target, part[0], offset)
            seek(self._consumer, target, at)
            self._consumer.resume(target)
            self._held_back.discard(target)
        except KafkaError as error:
            # The broker is away, or the assignment is moving under us.
            self._tolerate("a partition could not be opened; trying again", error)
            raise LogUnavailableError(f"{part[0]}[{part[1]}]: {error}") from error
        self._next[target] = at
        return at

    def pause(self, parts: Sequence[Part], *, paused: bool) -> None:
        """Hold parts back, or let them go on; see `Group.pause`."""
        targets = [TopicPartition(self._topic[role], number) for role, number in parts]
        known = [target for target in targets if target in self._consumer.assignment()]
        if known:
            (self._consumer.pause if paused else self._consumer.resume)(*known)
        if paused:
            self._held_back.update(known)
        else:
            self._held_back.difference_update(known)

    def commit(self, offsets: Mapping[Part, int]) -> bool:
        """Tell the group where we are, unchanged or not: that it takes it shows that we are a member still."""
        told = {
            TopicPartition(self._topic[role], number): OffsetAndMetadata(
                offset, self._notes.get((role, number), ""), -1
            )
            for (role, number), offset in offsets.items()
            if (role, number) in self.parts
        }
        if not told:
            return False
        try:
            self._consumer.commit(told, timeout_ms=_COMMIT_MS)
        except KafkaError as error:
            self._tolerate("commit failed; the next one will contain it", error)
            return False
        return True

    def say(self, notes: Mapping[Part, str]) -> None:
        """Let a few words on parts go along with the next commits; see `Group.say`."""
        self._notes = dict(notes)

    def said(self) -> Mapping[Part, str]:
        """What members said of all parts; see `Group.said`."""
        return self._beside.said()

    def lag(self) -> dict[Part, int]:
        """Unread records of open parts, where the broker told."""
        behind = self._beside.behind()
        known = ((self._part(part), self._lag(part)) for part in self._next)
        return {part: n for part, n in known if n is not None and not (n == 0 and part[0] in behind)}

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close(autocommit=False, timeout_ms=_COMMIT_MS)

    def _join(self) -> None:
        self._listener = _Listener()
        self._consumer = self._make()
        for topic in self._topic.values():
            # Known before joining: else the first assignment is made without partitions, and a second follows.
            self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe(list(self._topic.values()), listener=self._listener)

    def _part(self, part: Any) -> Part:
        return self._role[part.topic], part.partition

    def _fetch(self, timeout_s: float) -> Mapping[Any, list[Any]]:
        try:
            fetched = poll(self._consumer, int(timeout_s * 1000))
        except NoOffsetForPartitionError:
            self._listener.moved = True  # parts that were never committed: settling pauses them
        except OffsetOutOfRangeError as error:
            if self._reads_on(error):
                raise out_of_range(
                    self._consumer, error, group_id=self._group_id, where=self._where, remedy=_GONE
                ) from error
            # Asked for at the group's committed offset, within the poll that brought the assignment.
            self._listener.moved = True
        except KafkaError as error:
            self._tolerate("poll failed; trying again", error)
            time.sleep(min(timeout_s, _PAUSE_S))
        else:
            return fetched
        return {}

    def _reads_on(self, error: OffsetOutOfRangeError) -> bool:
        """Whether the records refused are the next of an open part."""
        wanted: Mapping[Any, int] = error.args[0]
        return not self._listener.moved and any(self._next.get(part) == offset for part, offset in wanted.items())

    def _settled(self) -> bool:
        """Take note of the assignment and pause all of it; False if the broker did not answer."""
        self._listener.moved = False
        try:
            self._check({topic: len(self._consumer.partitions_for_topic(topic)) for topic in self._role})
            assigned = self._consumer.assignment()
            for part in assigned:
                # A position of any kind, so that the client does not ask the group for one; nothing is read from it.
                seek(self._consumer, part, 0)
            if assigned:
                self._consumer.pause(*assigned)
        except KafkaError as error:
            self._listener.moved = True
            self._tolerate("the partitions assigned could not be placed; trying again", error)
            return False
        self._next = {}
        self._held_back = set()
        self.parts = frozenset(self._part(part) for part in assigned)
        self.generation += 1
        self._progress.begin()
        return True

    def _first(self, part: Any, role: str) -> int:
        if role in self._from_earliest or self._start == "earliest":
            first: int = self._consumer.beginning_offsets([part], timeout_ms=admin_timeout_ms)[part]
            return first
        end: int = self._consumer.end_offsets([part], timeout_ms=admin_timeout_ms)[part]
        if self._start == "latest":
            return end
        found = self._consumer.offsets_for_times({part: self._start}, timeout_ms=admin_timeout_ms)[part]
        return end if found is None else int(found.offset)

    def _check_kept(self, part: Any, role: str, offset: int) -> None:
        first = self._consumer.beginning_offsets([part], timeout_ms=admin_timeout_ms)[part]
        end = self._consumer.end_offsets([part], timeout_ms=admin_timeout_ms)[part]
        if not first <= offset <= end:
            raise BrokerError(
                f"{part.topic}[{part.partition}] goes on at offset {offset}, the log holds {first} to {end}: records "
                "that were not counted yet are gone",
                where=self._where,
                hint=MADE_ANEW if role == "counts" or offset > end else _GONE,
            )

    def _check_same_topics(self) -> None:
        for topic in self._role:
            now = topic_id(self._consumer, topic)
            if now is not None and self._ids.setdefault(topic, now) != now:
                raise BrokerError(
                    f"topic {topic!r} was deleted and made anew while it was read",
                    where=self._where,
                    hint=MADE_ANEW,
                )

    def _watch(self, moved: Collection[Any]) -> None:
        """Make the consumer anew where it is behind and gets nothing."""
        behind = [part for part in self._next if part not in self._held_back and (self._lag(part) or 0) > 0]
        stalled = self._progress.stalled(behind, moved=moved)
        if not stalled:
            return
        self._progress.begin()
        try:
            left = unread(self._consumer, {part: self._position(part, self._next[part]) for part in stalled})
        except KafkaError as error:
            self._tolerate("the ends of partitions that get nothing are not told", error)
            return
        if not left:
            return
        log.warning("behind without progress; the consumer is made anew", seconds=STALLED_S, unread=left)
        self._consumer.close(autocommit=False, timeout_ms=_COMMIT_MS)
        self.parts, self._next = frozenset(), {}
        self.generation += 1
        self._join()

    def _lag(self, part: Any) -> int | None:
        end = self._end(part)
        return None if end is None else max(0, end - self._position(part, self._next[part]))

    def _end(self, part: Any) -> int | None:
        """As far as the broker has told with records."""
        try:
            end: int | None = self._consumer.highwater(part)
        except IllegalStateError:  # between two assignments
            return None
        return end

    def _position(self, part: Any, least: int) -> int:
        """Where reading goes on; see `position`, which is asked only where there is more."""
        end = self._end(part)
        if self._listener.moved or end is None or end <= least:
            return least
        return position(self._consumer, part, least)

    def _tolerate(self, what: str, error: KafkaError) -> None:
        """Go on after what time can heal; refuse the rest.

        Raises
        ------
        BrokerError
            Trying again cannot help.
        """
        if not passes(error):
            raise refusal(error, self._where) from error
        self._trouble.say(what, error)
