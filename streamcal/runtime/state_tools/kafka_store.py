"""The topics of a group on Kafka; see `StateStore`."""

from __future__ import annotations

import contextlib
import heapq
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import KafkaError

from streamcal.errors import BrokerError, StreamcalError
from streamcal.roles.aggregation import CountsRecord
from streamcal.roles.task import CountsTopic
from streamcal.runtime.cluster import Part
from streamcal.runtime.config import Config
from streamcal.runtime.logs.kafka_checks import partition_counts, topic_ids
from streamcal.runtime.logs.kafka_client_faults import poll
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_state import KafkaCounts, KafkaRecordLog, Producing
from streamcal.runtime.repartition import input_topics
from streamcal.runtime.state_tools.store import Kept
from streamcal.state.reading import LogUnavailableError, RecordLog
from streamcal.stream.events import Record

__all__ = ["KafkaStateStore"]

_POLL_MS: Final = 500


class KafkaStateStore:
    """Reads and writes the topics of `config`'s group, without joining it.

    Parameters
    ----------
    config : Config

    Raises
    ------
    StreamcalError
        There is no state yet.
    BrokerError
    """

    def __init__(self, config: Config) -> None:
        self._clients = clients = KafkaClients(config.kafka)
        self._names = dict(input_topics(config).names)
        self._group = config.kafka.group_id or ""
        state, counts = f"{config.topics.state}", f"{config.topics.counts}"
        found = partition_counts(clients, [*self._names.values(), state, counts])
        missing = [name for name in (*self._names.values(), state, counts) if name not in found]
        if missing:
            raise StreamcalError(
                f"there is no topic {', '.join(map(repr, missing))}",
                where=clients.servers,
                hint="the daemon makes the topics of its state at its first start; check kafka.group_id, topics.state "
                "and topics.counts",
            )
        self.input_partitions: Mapping[str, int] = {role: found[name] for role, name in self._names.items()}
        self.topic_ids = topic_ids(clients, {**self._names, "counts": counts})
        self.shards = found[counts]
        self.sources = found[state] - self.shards
        self._state, self._counts = state, counts
        self._producing = Producing(clients)
        self.topic: CountsTopic = KafkaCounts(self._producing, counts, self.shards)
        self._consumer = clients.state_consumer()

    def close(self) -> None:
        """Let go of all connections."""
        self._consumer.close(timeout_ms=_POLL_MS)
        self._producing.close()

    def new_author(self) -> bytes:
        """A random id."""
        return uuid.uuid4().bytes

    def state(self, number: int) -> RecordLog:
        """A partition of the state topic; see `StateStore`."""
        return KafkaRecordLog(self._clients, self._producing, self._state, number)

    def state_kept(self, number: int) -> Kept:
        """What it holds."""
        return self._kept(TopicPartition(self._state, number))

    def counts_kept(self, shard: int) -> Kept:
        """What a partition of the counts topic holds."""
        return self._kept(TopicPartition(self._counts, shard))

    def input_kept(self, part: Part) -> Kept:
        """What a partition of the inputs holds."""
        return self._kept(TopicPartition(self._names[part[0]], part[1]))

    def input_from(self, part: Part, at_ms: int) -> int:
        """First offset at a time; see `StateStore`."""
        target = TopicPartition(self._names[part[0]], part[1])
        with self._speaking():
            found = self._consumer.offsets_for_times({target: at_ms}, timeout_ms=admin_timeout_ms)[target]
        return self._kept(target)[1] if found is None else int(found.offset)

    def counts(self, shard: int) -> Iterator[CountsRecord]:
        """Everything on a partition of the counts topic; see `StateStore`."""
        target = TopicPartition(self._counts, shard)
        first, end = self._kept(target)
        for _, record in self._read([(target, first, end)]):
            yield record.offset, record.key, record.value

    def inputs(self, parts: Sequence[tuple[Part, int, int]]) -> Iterator[tuple[Part, Record]]:
        """Records of inputs, merged by their own time; see `StateStore`."""
        role = {TopicPartition(self._names[part[0]], part[1]): part for part, _, _ in parts}
        wanted = [(target, start, stop) for target, (_, start, stop) in zip(role, parts, strict=True)]
        for target, record in self._read(wanted):
            yield role[target], record

    def members(self) -> int:
        """Processes in the group; see `StateStore`."""
        admin = self._clients.admin()
        try:
            told = admin.describe_groups([self._group])[self._group]
        except KafkaError:  # a group that nobody has joined yet is an error to newer brokers
            return 0
        finally:
            admin.close()
        return len(told.get("members") or ())

    def _kept(self, target: Any) -> Kept:
        with self._speaking():
            first = self._consumer.beginning_offsets([target], timeout_ms=admin_timeout_ms)[target]
            end = self._consumer.end_offsets([target], timeout_ms=admin_timeout_ms)[target]
        return int(first), int(end)

    def _read(self, wanted: Sequence[tuple[Any, int, int]]) -> Iterator[tuple[Any, Any]]:
        """Records of several logs, each in order, always the earliest head first.

        A log of which records wait here is paused, so that no more than a fetch of each is held.
        """
        stop = {target: end for target, _, end in wanted}
        waiting: dict[Any, deque[Any]] = {target: deque() for target in stop}
        with self._speaking():
            self._consumer.assign(list(stop))
            for target, start, _ in wanted:
                self._consumer.seek(target, start)
        heads: list[tuple[int, int, Any]] = []
        places = {target: place for place, target in enumerate(stop)}
        lacking = set(stop)
        while lacking or heads:
            if lacking:
                self._fill(lacking, waiting, stop)
                for target in [target for target in lacking if waiting[target] or self._at_end(target, stop)]:
                    lacking.discard(target)
                    if waiting[target]:
                        heapq.heappush(heads, (waiting[target][0].timestamp, places[target], target))
                continue
            _, _, target = heapq.heappop(heads)
            yield target, waiting[target].popleft()
            if waiting[target]:
                heapq.heappush(heads, (waiting[target][0].timestamp, places[target], target))
            elif not self._at_end(target, stop):
                lacking.add(target)

    def _at_end(self, target: Any, stop: dict[Any, int]) -> bool:
        # By position: what stands before the end may be a transaction marker, or compacted away.
        with self._speaking():
            return (self._consumer.position(target, timeout_ms=admin_timeout_ms) or 0) >= stop[target]

    def _fill(self, lacking: set[Any], waiting: dict[Any, deque[Any]], stop: dict[Any, int]) -> None:
        with self._speaking():
            self._consumer.pause(*(set(stop) - lacking))
            self._consumer.resume(*lacking)
            fetched = poll(self._consumer, _POLL_MS)
        for target, records in fetched.items():
            waiting[target].extend(record for record in records if record.offset < stop[target])

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            hint = "check that the broker is up and that this user may read the topics"
            raise BrokerError(f"the broker does not answer: {error}", where=self._clients.servers, hint=hint) from error
        except LogUnavailableError as error:
            raise BrokerError(str(error), where=self._clients.servers) from error
