"""One member of the consumer group: which partitions are ours, and from where each is read.

Rules
-----
- A record is handed out at most once by one process, in order. What was handed out counts as folded in once `commit`
  is called; only that is ever committed.
- The listener runs on the client's own thread, where hardly any call is allowed: it notes that the assignment changed,
  and the reading thread settles it. Records of a poll in which that happened are thrown away and read again.
- Settling keeps a partition whose group offset is not past what was handed out here (nobody else went on with it): it
  is read on from there. A partition that others went on with starts afresh at the group's offset, and is left out of
  `numbers` for one poll, so that whoever joins it drops what it remembers.
- A topic that never was committed starts where `kafka.start_from` says.

Left out: state that survives the process. What was remembered of a partition is lost with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import structlog
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import IllegalStateError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from streamcal.runtime.logs.kafka_clients import admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import Trouble, out_of_range, passes, refusal

__all__ = ["GroupReader"]

_COMMIT_MS: Final = 5_000
"""Longest wait for one commit; what it could not store is in the next."""

_PAUSE_S: Final = 0.2
"""Pause after an error that comes back at once, so that trying again does not spin."""

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


class GroupReader:
    """Reads the partitions that the group gives to this member; used from one thread.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        Closed here.
    topics : pair of str
        Both input topics.
    start : {"earliest", "latest"} or int
        Where a partition without a group offset begins; an int is a record time in ms.
    check : callable
        Called with the partition counts of the topics at each assignment; may raise.
    group_id, where : str
        For messages.
    from_earliest : collection of str
        Topics that begin at their beginning wherever `start` is: what is in them was chosen by it before.
    """

    def __init__(
        self,
        consumer: Any,
        topics: tuple[str, str],
        start: str | int,
        *,
        check: Callable[[Mapping[str, int]], None],
        group_id: str,
        where: str,
        from_earliest: Collection[str] = (),
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._start = start
        self._from_earliest = frozenset(from_earliest)
        self._check = check
        self._group_id = group_id
        self._where = where
        self._listener = _Listener()
        self._trouble = Trouble()
        self._next: dict[Any, int] = {}
        self._committed: dict[Any, int] = {}
        self._owned: frozenset[int] = frozenset()
        self._fresh: frozenset[int] = frozenset()
        for topic in topics:
            # Known before joining: else the first assignment is made without partitions, and a second follows.
            consumer.partitions_for_topic(topic)
        consumer.subscribe(list(topics), listener=self._listener)

    @property
    def numbers(self) -> frozenset[int]:
        """Partition numbers of which both topics are ours and whose memory is valid."""
        return self._owned - self._fresh

    def poll(self, timeout_s: float) -> Mapping[Any, list[Any]]:
        """The next records per topic partition; empty when none came or the assignment changed.

        Raises
        ------
        BrokerError
            Records that should follow are gone, or the broker refuses for good.
        """
        self._fresh = frozenset()
        if self._listener.moved and not self._settled():
            time.sleep(min(timeout_s, _PAUSE_S))
            return {}
        fetched = self._fetch(timeout_s)
        if self._listener.moved:
            self._settled()
            return {}
        held = {part: records for part, records in fetched.items() if part in self._next}
        self._next.update({part: records[-1].offset + 1 for part, records in held.items()})
        return held

    def caught_up(self) -> frozenset[Any]:
        """Topic partitions read to the end the broker last told of; one it has told nothing of is not."""
        return frozenset(part for part in self._ours() if self._lag(part) == 0)

    def lag(self) -> dict[Any, int]:
        """Records not yet read per topic partition, where the broker told."""
        known = ((part, self._lag(part)) for part in self._ours())
        return {part: records for part, records in known if records is not None}

    def commit(self) -> None:
        """Store how far everything handed out reaches; a failure is made up for by the next commit.

        Raises
        ------
        BrokerError
            The broker refuses for good.
        """
        offsets = {part: self._position(part) for part in self._ours()}
        changed = {part: offset for part, offset in offsets.items() if self._committed.get(part) != offset}
        if not changed:
            return
        try:
            self._consumer.commit(
                {part: OffsetAndMetadata(offset, "", -1) for part, offset in changed.items()}, timeout_ms=_COMMIT_MS
            )
        except KafkaError as error:
            self._tolerate("commit failed; the next one will contain it", error)
        else:
            self._committed.update(changed)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close(autocommit=False, timeout_ms=_COMMIT_MS)

    def _ours(self) -> list[Any]:
        return [part for part in self._next if part.partition in self._owned]

    def _fetch(self, timeout_s: float) -> Mapping[Any, list[Any]]:
        try:
            fetched: Mapping[Any, list[Any]] = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        except NoOffsetForPartitionError:
            self._listener.moved = True  # partitions that were never committed: settling finds their start
        except OffsetOutOfRangeError as error:
            raise out_of_range(self._consumer, error, group_id=self._group_id, where=self._where) from error
        except KafkaError as error:
            self._tolerate("poll failed; trying again", error)
            time.sleep(min(timeout_s, _PAUSE_S))
        else:
            return fetched
        return {}

    def _settled(self) -> bool:
        """Place every partition of the present assignment; False if the broker did not answer."""
        self._listener.moved = False
        before = self._owned
        try:
            counts = {topic: len(self._consumer.partitions_for_topic(topic)) for topic in self._topics}
            self._check(counts)
            self._place(self._consumer.assignment())
        except KafkaError as error:
            self._listener.moved = True
            self._tolerate("the partitions assigned could not be placed; trying again", error)
            return False
        if self._owned != before or self._fresh:
            log.info("partitions assigned", partitions=sorted(self._owned), afresh=sorted(self._fresh))
        return True

    def _place(self, assigned: set[Any]) -> None:
        stored = {part: self._consumer.committed(part, timeout_ms=admin_timeout_ms) for part in assigned}
        numbers = {part.partition for part in assigned}
        owned = {n for n in numbers if all(TopicPartition(topic, n) in assigned for topic in self._topics)}
        kept = {n for n in owned & self._owned if self._is_ahead(n, stored)}
        found = {part: self._next[part] for part in assigned if part.partition in kept}
        found |= {part: offset for part, offset in stored.items() if part not in found and offset is not None}
        found |= self._starts([part for part in assigned if part not in found])
        for part, offset in found.items():
            self._consumer.seek(part, offset)
        self._next = {part: offset for part, offset in found.items() if part.partition in owned}
        self._committed = {part: offset for part, offset in stored.items() if offset is not None}
        self._fresh = frozenset((owned & self._owned) - kept)
        self._owned = frozenset(owned)

    def _is_ahead(self, number: int, stored: Mapping[Any, int | None]) -> bool:
        """Whether nobody went on with either topic beyond what was handed out here."""
        parts = [TopicPartition(topic, number) for topic in self._topics]
        return all((stored[part] or 0) <= self._next[part] for part in parts)

    def _starts(self, parts: list[Any]) -> dict[Any, int]:
        if not parts:
            return {}
        whole = [part for part in parts if self._start == "earliest" or part.topic in self._from_earliest]
        first: dict[Any, int] = self._consumer.beginning_offsets(whole, timeout_ms=admin_timeout_ms) if whole else {}
        if len(whole) == len(parts):
            return first
        parts = [part for part in parts if part not in first]
        ends: dict[Any, int] = self._consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
        if self._start == "latest":
            return first | ends
        found = self._consumer.offsets_for_times(dict.fromkeys(parts, self._start), timeout_ms=admin_timeout_ms)
        return first | {part: ends[part] if found[part] is None else found[part].offset for part in parts}

    def _lag(self, part: Any) -> int | None:
        try:
            end: int | None = self._consumer.highwater(part)
        except IllegalStateError:  # between two assignments
            return None
        if end is None or end <= self._next[part]:
            return None if end is None else 0
        return max(0, end - self._position(part))

    def _position(self, part: Any) -> int:
        """Where reading goes on: after the last record, and after transaction markers behind it."""
        if self._listener.moved:
            return self._next[part]
        try:
            reached = self._consumer.position(part, timeout_ms=0)
        except KafkaError:
            reached = None
        return max(self._next[part], reached or 0)

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
