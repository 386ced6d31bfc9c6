"""Asks a broker what there is: topics, rights, and records from the end of a topic.

Nothing is written, no group is joined and no offset is committed: records are read by assignment, without a group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from streamcal.errors import BrokerError
from streamcal.inspect.sample import Sample, SampledRecord
from streamcal.inspect.topics import GroupFacts, TopicFacts
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms

__all__ = ["TailReader", "describe", "describe_group"]

_SETTINGS: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "max.message.bytes",
    "message.timestamp.type",
)
_POLL_MS: Final = 500
_MOST_BYTES: Final = 256 * 2**20
"""Of values held at once; a sample of ordinary events is a tenth of it."""


def describe(clients: KafkaClients, names: Sequence[str]) -> tuple[dict[str, TopicFacts], frozenset[str]]:
    """What the broker tells of those topics that exist, and the names of those it does not tell this user of.

    Raises
    ------
    BrokerError
        It does not answer.
    """
    admin = clients.admin()
    try:
        told = {topic["name"]: topic for topic in admin.describe_topics(list(names))}
        there = {name: topic for name, topic in told.items() if topic.get("partitions")}
        hidden = [n for n, topic in told.items() if topic.get("error_code") == TopicAuthorizationFailedError.errno]
        settings, unread = _settings(admin, list(there))
        facts = {
            name: TopicFacts(
                name=name,
                partitions=len(topic["partitions"]),
                replicas=min(len(part["replica_nodes"]) for part in topic["partitions"]),
                settings=settings.get(name, {}),
                settings_untold=unread,
                operations=_operations(topic.get("authorized_operations")),
            )
            for name, topic in there.items()
        }
        return facts, frozenset(hidden)
    except KafkaError as error:
        hint = "check kafka.bootstrap_servers and that this user may describe the topics"
        raise BrokerError(f"the topics cannot be listed: {error}", where=clients.servers, hint=hint) from error
    finally:
        admin.close()


def _settings(admin: Any, names: Sequence[str]) -> tuple[Mapping[str, Mapping[str, str]], str]:
    """Settings by topic, and why there are none."""
    if not names:
        return {}, ""
    asked = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(_SETTINGS)) for name in names]
    try:
        told = admin.describe_configs(asked, config_filter="all").get("topic", {})
    except KafkaError as error:
        return {}, str(error)
    return {name: {key: held["value"] for key, held in told.get(name, {}).items()} for name in names}, ""


def describe_group(clients: KafkaClients, group_id: str) -> GroupFacts:
    """What the broker tells of the monitoring group; never an error, since it may refuse to tell."""
    admin = clients.admin()
    try:
        told = admin.describe_groups([group_id])[group_id]
    except KafkaError as error:
        return GroupFacts(group_id, denied="AuthorizationFailed" in type(error).__name__)
    finally:
        admin.close()
    return GroupFacts(
        group_id,
        members=len(told.get("members") or ()),
        operations=_operations(told.get("authorized_operations")),
        denied="AuthorizationFailed" in str(told.get("error") or ""),
    )


def _operations(told: Iterable[str] | None) -> frozenset[str] | None:
    return frozenset(told) if told else None


class TailReader:
    """Reads topics from their end backwards; used from one thread, closed by whoever made it.

    Parameters
    ----------
    clients : KafkaClients
    seconds : float
        Longest time for all reading together; what was read by then is the sample.

    Raises
    ------
    BrokerError
        No broker answers.
    """

    def __init__(self, clients: KafkaClients, seconds: float) -> None:
        self._where = clients.servers
        self._consumer = clients.maps_consumer()
        self._deadline = time.monotonic() + seconds
        self._first: dict[Any, int] = {}
        self._begin: dict[Any, int] = {}
        self._bytes = 0

    @property
    def may_read_on(self) -> bool:
        """Whether there is time and room for more."""
        return time.monotonic() < self._deadline and self._bytes < _MOST_BYTES

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close(timeout_ms=admin_timeout_ms)

    def tail(self, topic: str, most: int) -> Sample:
        """The last `most` records, the same number of each partition.

        Raises
        ------
        BrokerError
            The topic is not there or cannot be read.
        """
        try:
            numbers = sorted(self._consumer.partitions_for_topic(topic) or ())
            if not numbers:
                hint = "check the name, kafka.bootstrap_servers, and that this user may describe it"
                raise BrokerError(f"there is no topic {topic!r}", where=self._where, hint=hint)
            parts = [TopicPartition(topic, number) for number in numbers]
            self._begin.update(self._consumer.beginning_offsets(parts, timeout_ms=admin_timeout_ms))
            self._first.update(self._consumer.end_offsets(parts, timeout_ms=admin_timeout_ms))
            return self._back(parts, most)
        except KafkaError as error:
            raise self._unreadable(topic, error) from error

    def earlier(self, topic: str, most: int) -> Sample:
        """As many records just before those read so far; raises as `tail`."""
        try:
            return self._back([part for part in self._first if part.topic == topic], most)
        except KafkaError as error:
            raise self._unreadable(topic, error) from error

    def _back(self, parts: Sequence[Any], most: int) -> Sample:
        stop = {part: self._first[part] for part in parts}
        share = max(1, most // len(parts))
        # A partition with few records leaves its share to the others.
        held = {part: max(0, stop[part] - self._begin[part]) for part in parts}
        spare = most - sum(min(share, n) for n in held.values())
        start = {}
        for part in sorted(parts, key=held.__getitem__):
            wanted = share + max(0, spare) if held[part] > share else share
            start[part] = max(self._begin[part], stop[part] - wanted)
            spare -= max(0, stop[part] - start[part] - share)
        records, whole = self._read(start, stop)
        self._first.update(start)
        complete = whole and all(self._first[part] <= self._begin[part] for part in parts)
        return Sample(records, len(parts), complete)

    def _read(self, start: Mapping[Any, int], stop: Mapping[Any, int]) -> tuple[list[SampledRecord], bool]:
        """Records from start to stop, and whether there was time for all of them."""
        wanted = [part for part in start if start[part] < stop[part]]
        found: dict[Any, list[SampledRecord]] = {part: [] for part in start}
        if wanted:
            self._consumer.assign(wanted)
            for part in wanted:
                self._consumer.seek(part, start[part])
        open_parts = set(wanted)
        while open_parts and self.may_read_on:
            for part, records in self._consumer.poll(timeout_ms=_POLL_MS).items():
                found[part] += [
                    SampledRecord(r.value, r.key, r.headers, r.timestamp, r.offset, r.partition)
                    for r in records
                    if r.offset < stop[part]
                ]
                self._bytes += sum(len(r.value or b"") for r in records)
            # By position, not by the last record: the end of a log may be a transaction marker.
            open_parts = {p for p in open_parts if (self._consumer.position(p) or 0) < stop[p]}
        return [record for records in found.values() for record in records], not open_parts

    def _unreadable(self, topic: str, error: KafkaError) -> BrokerError:
        hint = "check that this user may READ the topic, and that the addresses the broker advertises can be reached"
        return BrokerError(f"topic {topic!r} cannot be read: {error}", where=self._where, hint=hint)
