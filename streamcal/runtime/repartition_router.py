"""Writes a topic again, partitioned by id: `join.repartition`.

Rules
-----
- A record keeps its value, key, headers and timestamp; a header says where it was written first. Its partition is where
  Java clients put its id (murmur2). One without a readable id goes to the partition of its own number, and is rejected
  and counted by the daemon like any other.
- One process of the group writes a topic again; the others stand by. It merges the partitions by record timestamp as
  far as it has read them: it waits for partitions it knows to be behind. What a partition that was read to its end
  brings later may be earlier than what was written; `join.out_of_order` covers that.
- Sends are idempotent and never expire, so that each partition of the internal topic holds a prefix of what was sent to
  it, in order. Offsets are committed once what they stand for is stored. After a crash some records are written twice:
  the join counts them as duplicates.
- What the daemon has read is deleted after an hour.
- No offsets never means "from the start": if the internal topic holds records, they were lost, and that is an error.

Left out: more than one process per topic. Where that is too slow, producers have to key by id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from streamcal.errors import StreamcalError
from streamcal.runtime.logs.dead_letter import origin_of
from streamcal.runtime.logs.kafka_client_faults import poll, position
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import Trouble, out_of_range, passes, refusal
from streamcal.runtime.logs.kafka_progress import STALLED_S, ProgressWatch, unread
from streamcal.runtime.repartition import Inputs, Merge, Purge, Routed, router_group
from streamcal.runtime.repartition_purge import delete_what_was_read
from streamcal.runtime.repartition_sender import FOREVER_MS, Sender
from streamcal.runtime.repartition_starts import check_unbegun, start_offsets
from streamcal.serve.process_counters import ProcessCounters
from streamcal.stream.events import Record

__all__ = ["Router"]

_POLL_MS: Final = 200
_COMMIT_S: Final = 1.0
_PURGE_S: Final = 600.0
_PAUSE_S: Final = 0.2

_MOST_WAITING: Final = 20_000
"""Records of one partition held back for others; beyond it the partition is not read on."""

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


class Router:
    """A thread that writes topics again; `check` raises what ended it.

    Parameters
    ----------
    clients : KafkaClients
    inputs : Inputs
    partitions : int
        Of each internal topic.
    ids : mapping
        Role to a reader of the ids of records.
    start : str or int
        Where a topic that was never read begins; as in `KafkaMembership`.
    """

    def __init__(
        self,
        clients: KafkaClients,
        inputs: Inputs,
        partitions: int,
        ids: Mapping[str, Callable[[Sequence[Record]], Sequence[str | None]]],
        start: str | int,
        counters: ProcessCounters | None = None,
    ) -> None:
        self._clients = clients
        self._group = router_group(clients.group_id or "")
        self._role = {topic: role for role, topic in inputs.sources.items()}
        self._inputs = inputs
        self._partitions = partitions
        self._ids = ids
        self._start = start
        self._counters = counters or ProcessCounters()
        self._listener = _Listener()
        self._progress = ProgressWatch()
        self._trouble = Trouble()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._merges: dict[str, Merge] = {}
        self._next: dict[Any, int] = {}
        self._committed: dict[Any, int] = {}
        self._unwritten_roles: frozenset[str] = frozenset()
        self._purge = Purge()
        self._consumer: Any = None
        self._sender: Any = None
        self._thread = threading.Thread(target=self._run, name="streamcal-repartition", daemon=True)

    def open(self) -> None:
        """Connect and start.

        Raises
        ------
        BrokerError
            No broker answers.
        """
        producer = self._clients.router_producer(delivery_timeout_ms=FOREVER_MS)
        self._sender = Sender(producer, self._partitions, self._stopped.is_set, self._clients.servers)
        self._join()
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the thread, if anything did.

        Raises
        ------
        StreamcalError
            Trying again cannot help.
        """
        if isinstance(self._failure, StreamcalError):
            raise self._failure
        if self._failure is not None:
            raise RuntimeError("writing a topic again failed") from self._failure

    def behind(self) -> frozenset[str]:
        """Roles whose topic is ours to write again and was not written to its end when last looked at."""
        return self._unwritten_roles

    def close(self) -> None:
        """Stop, commit what is stored, and leave the group."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._sender is not None:
            self._sender.close()
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=5_000)

    def _join(self) -> None:
        self._listener = _Listener()
        self._consumer = self._clients.router_consumer(self._group)
        for topic in self._role:
            self._consumer.partitions_for_topic(topic)  # known before joining, as in `KafkaMembership`
        self._consumer.subscribe(list(self._role), listener=self._listener)

    def _run(self) -> None:
        commit_at = purge_at = time.monotonic()
        try:
            while not self._stopped.is_set():
                self._step()
                if time.monotonic() >= commit_at:
                    self._commit()
                    commit_at = time.monotonic() + _COMMIT_S
                if time.monotonic() >= purge_at:
                    self._delete_what_was_read()
                    purge_at = time.monotonic() + _PURGE_S
            self._commit()
        except BaseException as error:  # noqa: BLE001 - told to the thread that asks
            self._failure = error

    def _step(self) -> None:
        if self._listener.moved and not self._settled():
            self._stopped.wait(_PAUSE_S)
            return
        fetched = self._fetch()
        if self._listener.moved:
            return  # what came belongs to an assignment that is gone; it is read again
        for part, records in fetched.items():
            if part in self._next:
                self._merges[part.topic].add(part.partition, records)
        for topic, merge in self._merges.items():
            behind = [part.partition for part in self._next if part.topic == topic and self._is_behind(part)]
            self._route(topic, merge.take(behind))
        self._pass_markers()
        self._hold_back()
        short = [part for part in self._next if self._is_behind(part)]
        parts = [*short, *(part for part in self._next if self._waits(part))]
        self._unwritten_roles = frozenset(self._role[part.topic] for part in parts)
        self._watch([part for part in short if part not in self._consumer.paused()], fetched)

    def _pass_markers(self) -> None:
        """Go on behind what is no record; see `position`."""
        if self._stopped.is_set():
            return  # perhaps before everything taken was sent
        for part, at in self._next.items():
            if not self._waits(part):
                self._next[part] = position(self._consumer, part, at)

    def _route(self, topic: str, ready: Sequence[Routed]) -> None:
        role = self._role[topic]
        internal = self._inputs.names[role]
        ids = self._ids[role]([record for _, record in ready])
        for (partition, record), text in zip(ready, ids, strict=True):
            if self._stopped.is_set():
                return
            self._sender.send(internal, record, origin_of(record, topic, partition), text)
            self._next[TopicPartition(topic, partition)] = record.offset + 1
        if ready:
            self._counters.add("streamcal_repartitioned", (topic,), len(ready))

    def _fetch(self) -> Mapping[Any, list[Any]]:
        try:
            fetched = poll(self._consumer, _POLL_MS)
        except NoOffsetForPartitionError:
            self._listener.moved = True
        except OffsetOutOfRangeError as error:
            raise out_of_range(self._consumer, error, group_id=self._group, where=self._clients.servers) from error
        except KafkaError as error:
            self._tolerate("poll failed; trying again", error)
            self._stopped.wait(_PAUSE_S)
        else:
            return fetched
        return {}

    def _settled(self) -> bool:
        """Place every partition of the present assignment; False if the broker did not answer."""
        self._listener.moved = False
        if self._next and not self._sender.wait():
            return False
        try:
            self._place(self._consumer.assignment())
        except KafkaError as error:
            self._listener.moved = True
            self._tolerate("the partitions to write again could not be placed; trying again", error)
            return False
        return True

    def _place(self, assigned: set[Any]) -> None:
        stored = {part: self._consumer.committed(part, timeout_ms=admin_timeout_ms) for part in assigned}
        found: dict[Any, int] = {}
        for part, offset in stored.items():
            # Read on where we are, unless another process went on from what we committed.
            ours = self._next.get(part)
            kept = ours is not None and (offset is None or offset == self._committed.get(part))
            if kept and ours is not None:
                found[part] = ours
            elif offset is not None:
                found[part] = offset
        fresh = self._fresh([part for part in assigned if part not in found], {part.topic for part in found})
        if fresh:
            # Before the first record is written: from then on a topic that holds records has offsets.
            self._consumer.commit({part: OffsetAndMetadata(at, "", -1) for part, at in fresh.items()}, timeout_ms=5_000)
            stored |= fresh
            found |= fresh
        self._merges = {part.topic: Merge() for part in assigned}
        for part, offset in found.items():
            self._consumer.seek(part, offset)
        self._consumer.resume(*assigned)
        self._next, self._committed = found, {part: at for part, at in stored.items() if at is not None}
        log.info(
            "partitions to write again", topics={topic: sum(p.topic == topic for p in found) for topic in self._merges}
        )

    def _fresh(self, parts: Sequence[Any], known: set[str]) -> dict[Any, int]:
        """First offsets of partitions that were never read."""
        for topic in {part.topic for part in parts} - known:
            internal = self._inputs.names[self._role[topic]]
            check_unbegun(
                self._consumer, topic, internal, self._partitions, group=self._group, where=self._clients.servers
            )
        return start_offsets(self._consumer, parts, known, self._start)

    def _watch(self, behind: Sequence[Any], moved: Collection[Any]) -> None:
        """Make the consumer anew where it is behind and gets nothing, as in `KafkaMembership`."""
        stalled = self._progress.stalled(behind, moved=moved)
        if not stalled:
            return
        self._progress.begin()
        try:
            left = unread(self._consumer, {part: position(self._consumer, part, 0) for part in stalled})
        except KafkaError as error:
            self._tolerate("the ends of partitions that get nothing are not told", error)
            return
        if left:
            what = "writing a topic again is behind without progress; the consumer is made anew"
            log.warning(what, seconds=STALLED_S, unread=left)
            self._commit()  # what waits for others is read again from there, by whoever it is given to
            self._consumer.close(autocommit=False, timeout_ms=5_000)
            self._next, self._merges = {}, {}
            self._join()

    def _is_behind(self, part: Any) -> bool:
        """Whether the broker has more of it than was read, as far as it told."""
        try:
            end = self._consumer.highwater(part)
            reached = self._consumer.position(part, timeout_ms=0)
        except KafkaError:
            return True
        return end is None or reached is None or reached < end

    def _waits(self, part: Any) -> bool:
        merge = self._merges.get(part.topic)
        return merge is not None and merge.waiting(part.partition) > 0

    def _hold_back(self) -> None:
        """Read no further in partitions that wait for others."""
        for topic, merge in self._merges.items():
            for part in [part for part in self._next if part.topic == topic]:
                full = merge.waiting(part.partition) >= _MOST_WAITING
                if full != (part in self._consumer.paused()):
                    (self._consumer.pause if full else self._consumer.resume)(part)

    def _commit(self) -> None:
        changed = {part: at for part, at in self._next.items() if self._committed.get(part) != at}
        if not changed or self._listener.moved or not self._sender.wait():
            return
        try:
            self._consumer.commit(
                {part: OffsetAndMetadata(at, "", -1) for part, at in changed.items()}, timeout_ms=5_000
            )
        except KafkaError as error:
            self._tolerate("commit of what was written again failed; the next one will contain it", error)
        else:
            self._committed |= changed

    def _delete_what_was_read(self) -> None:
        topics = {self._inputs.names[self._role[topic]] for topic in self._merges}
        parts = [TopicPartition(topic, number) for topic in topics for number in range(self._partitions)]
        try:
            delete_what_was_read(self._clients, self._purge, parts, int(time.monotonic() * 1000))
        except KafkaError as error:
            self._tolerate("records of the repartition topics that were read could not be deleted", error)

    def _tolerate(self, what: str, error: KafkaError) -> None:
        if not passes(error):
            raise refusal(error, self._clients.servers) from error
        self._trouble.say(what, error)
