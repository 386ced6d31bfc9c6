"""Every record of a topic, as a fresh reader finds it."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer, TopicPartition

__all__ = ["read_all"]


def read_all(bootstrap: str, topic: str) -> list[Any]:
    """Records up to the present end, those of a partition in order."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        metrics_enabled=False,
        max_partition_fetch_bytes=64 * 2**20,
    )
    try:
        parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends, found = consumer.end_offsets(parts), []
        while any(consumer.position(part) < ends[part] for part in parts):
            found += [record for records in consumer.poll(timeout_ms=1000).values() for record in records]
        return found
    finally:
        consumer.close()
