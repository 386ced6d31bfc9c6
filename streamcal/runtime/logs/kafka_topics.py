"""What must be true of the topics before the first record is read, and the maps already published."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError, TopicAlreadyExistsError

from streamcal.errors import BrokerError
from streamcal.runtime.config_kafka import Topics
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms

__all__ = ["check_equal_counts", "prepare_topics", "read_maps"]

_READ_MAPS_S: Final = 60.0
"""Longest wait for the maps topic: thousands of documents take about a second."""

log = structlog.get_logger(__name__)


def prepare_topics(clients: KafkaClients, topics: Topics) -> int:
    """Check the input topics and see to the maps topic.

    Returns
    -------
    int
        Partitions of each input topic.

    Raises
    ------
    BrokerError
        A topic is missing, the partition counts differ, or the maps topic cannot be made.
    """
    admin = clients.admin()
    try:
        found = _partitions(admin, [topics.predictions, topics.outcomes, topics.maps], clients)
        for role in ("predictions", "outcomes"):
            if getattr(topics, role) not in found:
                hint = f"create it, or set topics.{role} to the topic that holds them"
                raise BrokerError(f"there is no topic {getattr(topics, role)!r}", where=clients.servers, hint=hint)
        check_equal_counts(topics, found, clients.servers)
        if topics.maps not in found:
            _create_maps(admin, topics.maps, clients.servers)
        return found[topics.predictions]
    finally:
        admin.close()


def check_equal_counts(topics: Topics, found: Mapping[str, int], where: str) -> None:
    """Refuse input topics that cannot be joined partition by partition.

    Raises
    ------
    BrokerError
        Their partition counts differ.
    """
    predictions, outcomes = found[topics.predictions], found[topics.outcomes]
    if predictions != outcomes:
        message = (
            f"topic {topics.predictions!r} has {predictions} partition{'s' * (predictions != 1)} and "
            f"{topics.outcomes!r} has {outcomes}; they are joined partition by partition"
        )
        hint = (
            "give both the same number, keyed by id with the same partitioner: write the smaller one again to a new "
            "topic (adding partitions moves keys) and set topics.predictions or topics.outcomes to it"
        )
        raise BrokerError(message, where=where, hint=hint)


def read_maps(clients: KafkaClients, topic: str) -> dict[str, list[bytes]]:
    """Every document of the maps topic up to its present end, by key, oldest first; tombstones withdraw.

    Raises
    ------
    BrokerError
        There is no such topic, or it cannot be read to its end in time.
    """
    consumer = clients.maps_consumer()
    try:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        if not numbers:
            hint = "the daemon makes it at its first start; check topics.maps and kafka.bootstrap_servers"
            raise BrokerError(f"there is no topic {topic!r}", where=clients.servers, hint=hint)
        return _read_to_end(consumer, [TopicPartition(topic, number) for number in numbers])
    except KafkaError as error:
        hint = "the broker answered before; check that the addresses it advertises can be reached from here"
        raise BrokerError(f"topic {topic!r} cannot be read: {error}", where=clients.servers, hint=hint) from error
    finally:
        consumer.close(timeout_ms=admin_timeout_ms)


def _partitions(admin: Any, names: Sequence[str], clients: KafkaClients) -> dict[str, int]:
    """Partition count of each topic that exists."""
    try:
        described = admin.describe_topics(list(names))
    except KafkaError as error:
        hint = "check kafka.bootstrap_servers and that this user may describe the topics"
        raise BrokerError(f"the topics cannot be listed: {error}", where=clients.servers, hint=hint) from error
    return {topic["name"]: len(topic["partitions"]) for topic in described if topic["partitions"]}


def _create_maps(admin: Any, topic: str, where: str) -> None:
    wanted = {"num_partitions": 1, "replication_factor": -1, "configs": {"cleanup.policy": "compact"}}
    try:
        admin.create_topics({topic: wanted}, timeout_ms=admin_timeout_ms, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        return  # another member of the group was faster
    except KafkaError as error:
        hint = "create it with 1 partition and cleanup.policy=compact, or allow this user to"
        raise BrokerError(f"topic {topic!r} cannot be created: {error}", where=where, hint=hint) from error
    log.info("maps topic created", topic=topic)


def _read_to_end(consumer: Any, parts: Sequence[TopicPartition]) -> dict[str, list[bytes]]:
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
    documents: dict[str, list[bytes]] = {}
    deadline = time.monotonic() + _READ_MAPS_S
    # By position, not by the last record seen: the end of a log may be a transaction marker.
    while any((consumer.position(part, timeout_ms=admin_timeout_ms) or 0) < ends[part] for part in parts):
        if time.monotonic() > deadline:
            raise KafkaError(f"not read to its end within {_READ_MAPS_S:.0f} s")
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                _keep(documents, record.key, record.value)
    return documents


def _keep(documents: dict[str, list[bytes]], key: bytes | None, value: bytes | None) -> None:
    name = "" if key is None else key.decode(errors="replace")
    if value is None:
        documents.pop(name, None)
    else:
        documents.setdefault(name, []).append(value)
