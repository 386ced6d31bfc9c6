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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, NoOffsetForPartitionError, OffsetOutOfRangeError

from streamcal.errors import BrokerError, StreamcalError
from streamcal.runtime.logs.dead_letter import ORIGIN_HEADER, Origin, letter_key, origin_of
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import Trouble, out_of_range, passes, refusal
from streamcal.runtime.logs.partitioner import murmur2_partition
from streamcal.runtime.repartition import Inputs, Merge, Purge, Routed, router_group
from streamcal.serve.process_counters import ProcessCounters
from streamcal.stream.events import Record

__all__ = ["Router"]

_POLL_MS: Final = 200
_COMMIT_S: Final = 1.0
_PURGE_S: Final = 600.0
_PAUSE_S: Final = 0.2
_FLUSH_S: Final = 1.0

_MOST_WAITING: Final = 20_000
"""Records of one partition held back for others; beyond it the partition is not read on."""

_MOST_SENT: Final = 20_000
_MOST_BYTES: Final = 64 * 2**20
"""Sends that are not acknowledged."""

_FOREVER_MS: Final = 2**31 - 1
"""A send that expired would leave a gap that later ones have passed: 24 days."""

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
        self._role = {topic: role for role, topic in inputs.sources.items()}
        self._inputs = inputs
        self._partitions = partitions
        self._ids = ids
        self._start = start
        self._counters = counters or ProcessCounters()
        self._listener = _Listener()
        self._trouble = Trouble()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._merges: dict[str, Merge] = {}
        self._next: dict[Any, int] = {}
        self._committed: dict[Any, int] = {}
        self._failures: list[BaseException] = []
        self._unwritten_roles: frozenset[str] = frozenset()
        self._sent = self._sent_bytes = 0
        self._purge = Purge()
        self._consumer: Any = None
        self._producer: Any = None
        self._thread = threading.Thread(target=self._run, name="streamcal-repartition", daemon=True)

    def open(self) -> None:
        """Connect and start.

        Raises
        ------
        BrokerError
            No broker answers.
        """
        self._consumer = self._clients.router_consumer(router_group(self._clients.group_id or ""))
        self._producer = self._clients.router_producer(delivery_timeout_ms=_FOREVER_MS)
        for topic in self._role:
            self._consumer.partitions_for_topic(topic)  # known before joining, as in `KafkaMembership`
        self._consumer.subscribe(list(self._role), listener=self._listener)
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
        if self._producer is not None:
            self._producer.close(timeout=_FLUSH_S)
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=5_000)

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
        self._hold_back()
        parts = [part for part in self._next if self._is_behind(part) or self._waits(part)]
        self._unwritten_roles = frozenset(self._role[part.topic] for part in parts)

    def _route(self, topic: str, ready: Sequence[Routed]) -> None:
        role = self._role[topic]
        internal = self._inputs.names[role]
        ids = self._ids[role]([record for _, record in ready])
        for (partition, record), text in zip(ready, ids, strict=True):
            if self._sent >= _MOST_SENT or self._sent_bytes >= _MOST_BYTES:
                self._wait_until_stored()
            if self._stopped.is_set():
                return
            self._send(internal, record, origin_of(record, topic, partition), text)
            self._next[TopicPartition(topic, partition)] = record.offset + 1
        if ready:
            self._counters.add("streamcal_repartitioned", (topic,), len(ready))

    def _send(self, internal: str, record: Record, origin: Origin, text: str | None) -> None:
        place = origin.partition % self._partitions
        if text is not None:
            place = murmur2_partition(text.encode(), self._partitions)
        headers = [(name, value) for name, value in record.headers or () if name != ORIGIN_HEADER and value is not None]
        stamp = record.timestamp if record.timestamp is not None and record.timestamp >= 0 else None
        future = self._producer.send(
            internal,
            value=record.value,
            key=b"" if record.key is None and record.value is None else record.key,
            headers=[*headers, (ORIGIN_HEADER, letter_key(origin))],
            partition=place,
            timestamp_ms=stamp,
        )
        future.add_errback(self._failures.append)
        self._sent += 1
        self._sent_bytes += len(record.value or b"")

    def _wait_until_stored(self) -> bool:
        """Wait for all that was sent, or for the end; whether it is stored."""
        while True:
            try:
                self._producer.flush(timeout=_FLUSH_S)
            except KafkaTimeoutError as error:
                self._trouble.say("records that are written again are not acknowledged yet", error)
                if self._stopped.is_set():
                    return False
                continue
            if self._failures:
                raise self._unwritten(self._failures[0])
            self._sent = self._sent_bytes = 0
            return True

    def _unwritten(self, error: BaseException) -> BrokerError:
        hint = (
            "grant this user Write on it; if it refuses a record, compare its max.message.bytes and "
            "message.timestamp.after.max.ms with those of the topic it repeats"
        )
        names = ", ".join(self._inputs.rewritten.values())
        return BrokerError(
            f"topic {names} (join.repartition) cannot be written: {error}", where=self._clients.servers, hint=hint
        )

    def _fetch(self) -> Mapping[Any, list[Any]]:
        try:
            fetched: Mapping[Any, list[Any]] = self._consumer.poll(timeout_ms=_POLL_MS)
        except NoOffsetForPartitionError:
            self._listener.moved = True
        except OffsetOutOfRangeError as error:
            group = router_group(self._clients.group_id or "")
            raise out_of_range(self._consumer, error, group_id=group, where=self._clients.servers) from error
        except KafkaError as error:
            self._tolerate("poll failed; trying again", error)
            self._stopped.wait(_PAUSE_S)
        else:
            return fetched
        return {}

    def _settled(self) -> bool:
        """Place every partition of the present assignment; False if the broker did not answer."""
        self._listener.moved = False
        if self._next and not self._wait_until_stored():
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
        fresh = self._starts([part for part in assigned if part not in found], {part.topic for part in found})
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

    def _starts(self, parts: Sequence[Any], known: set[str]) -> dict[Any, int]:
        """First offsets of partitions never read; those added to a topic that was read begin at their beginning."""
        if not parts:
            return {}
        for topic in {part.topic for part in parts} - known:
            self._check_unbegun(topic)
        first: dict[Any, int] = self._consumer.beginning_offsets(list(parts), timeout_ms=admin_timeout_ms)
        added = {part: first[part] for part in parts if part.topic in known or self._start == "earliest"}
        fresh = [part for part in parts if part not in added]
        if not fresh:
            return added
        ends: dict[Any, int] = self._consumer.end_offsets(fresh, timeout_ms=admin_timeout_ms)
        if self._start == "latest":
            return {**added, **ends}
        found = self._consumer.offsets_for_times(dict.fromkeys(fresh, self._start), timeout_ms=admin_timeout_ms)
        return added | {part: ends[part] if found[part] is None else found[part].offset for part in fresh}

    def _check_unbegun(self, topic: str) -> None:
        """Refuse to begin anew where the internal topic says that a group, whose offsets are gone, had begun.

        Raises
        ------
        BrokerError
            What is there would be written again, or records would be left out.
        """
        internal = self._inputs.names[self._role[topic]]
        parts = [TopicPartition(internal, number) for number in range(self._partitions)]
        ends: dict[Any, int] = self._consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
        if any(ends.values()):
            group = router_group(self._clients.group_id or "")
            hint = (
                f"set them with kafka-consumer-groups --reset-offsets to where it was (records of {internal!r} name "
                "their origin in a header; too early only repeats records), or begin anew with another kafka.group_id"
            )
            message = f"group {group!r} has no offsets for topic {topic!r}, but {internal!r} holds records of it"
            raise BrokerError(message, where=self._clients.servers, hint=hint)

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
        if not changed or self._listener.moved or not self._wait_until_stored():
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
        if not parts:
            return
        admin = self._clients.admin()
        try:
            group = self._clients.group_id or ""
            told = admin.list_group_offsets({group: parts}).get(group, {})
            known = {part: held.offset for part, held in told.items() if held.offset > 0}
            if gone := self._purge.seen(int(time.monotonic() * 1000), known):
                admin.delete_records(dict(gone), timeout_ms=admin_timeout_ms)
        except KafkaError as error:
            self._tolerate("records of the repartition topics that were read could not be deleted", error)
        finally:
            admin.close()

    def _tolerate(self, what: str, error: KafkaError) -> None:
        if not passes(error):
            raise refusal(error, self._clients.servers) from error
        self._trouble.say(what, error)
