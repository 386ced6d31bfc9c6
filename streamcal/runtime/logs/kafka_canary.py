"""The first sample of both topics: their newest records, before the group is joined."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.co_partition import CoPartition
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms

__all__ = ["check_partitioning"]

_PER_TOPIC: Final = 800
_PARTITIONS: Final = 16
"""Partitions looked at: the first ones are as good as any."""

_LONGEST_S: Final = 5.0
"""The sample is a courtesy: what is not there by then is not waited for."""

log = structlog.get_logger(__name__)


def check_partitioning(clients: KafkaClients, watch: CoPartition, names: Mapping[str, str]) -> None:
    """Let `watch` see the end of each topic (role to name), and refuse topics that clearly do not fit.

    Raises
    ------
    BrokerError
        An id's events are in different partitions: why, and what to do.
    """
    consumer = clients.maps_consumer()
    try:
        for role, name in names.items():
            _look(consumer, watch, role, name)
    except KafkaError as error:
        log.warning("the partitioning of the topics could not be sampled", error=str(error))
    finally:
        consumer.close(timeout_ms=admin_timeout_ms)
    if (problem := watch.problem()) is not None:
        raise BrokerError(problem.what, where=clients.servers, hint=problem.remedy)


def _look(consumer: Any, watch: CoPartition, role: str, name: str) -> None:
    numbers = sorted(consumer.partitions_for_topic(name) or ())[:_PARTITIONS]
    parts = [TopicPartition(name, number) for number in numbers]
    if len(parts) < 2:
        return
    consumer.assign(parts)
    first = consumer.beginning_offsets(parts, timeout_ms=admin_timeout_ms)
    ends = consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
    for part in parts:
        consumer.seek(part, max(first[part], ends[part] - _PER_TOPIC // len(parts)))
    deadline = time.monotonic() + _LONGEST_S
    while any(consumer.position(part, timeout_ms=admin_timeout_ms) < ends[part] for part in parts):
        for part, records in consumer.poll(timeout_ms=500).items():
            watch.look(role, part.partition, records)
        if time.monotonic() > deadline:
            return
