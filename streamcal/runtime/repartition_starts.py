"""Where the reading half of `repartition_router` begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kafka import TopicPartition

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_clients import admin_timeout_ms

__all__ = ["check_unbegun", "start_offsets"]


def start_offsets(consumer: Any, parts: Sequence[Any], known: Collection[str], start: str | int) -> dict[Any, int]:
    """First offsets of partitions never read; those added to a topic that was read begin at their beginning."""
    if not parts:
        return {}
    first: dict[Any, int] = consumer.beginning_offsets(list(parts), timeout_ms=admin_timeout_ms)
    added = {part: first[part] for part in parts if part.topic in known or start == "earliest"}
    fresh = [part for part in parts if part not in added]
    if not fresh:
        return added
    ends: dict[Any, int] = consumer.end_offsets(fresh, timeout_ms=admin_timeout_ms)
    if start == "latest":
        return {**added, **ends}
    found = consumer.offsets_for_times(dict.fromkeys(fresh, start), timeout_ms=admin_timeout_ms)
    return added | {part: ends[part] if found[part] is None else found[part].offset for part in fresh}


def check_unbegun(consumer: Any, topic: str, internal: str, partitions: int, *, group: str, where: str) -> None:
    """Refuse to begin `topic` anew where its internal topic says that a group, whose offsets are gone, had begun.

    Raises
    ------
    BrokerError
        What is there would be written again, or records would be left out.
    """
    parts = [TopicPartition(internal, number) for number in range(partitions)]
    ends: dict[Any, int] = consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
    if any(ends.values()):
        hint = (
            f"set them with kafka-consumer-groups --reset-offsets to where it was (records of {internal!r} name their "
            "origin in a header; too early only repeats records), or begin anew with another kafka.group_id"
        )
        message = f"group {group!r} has no offsets for topic {topic!r}, but {internal!r} holds records of it"
        raise BrokerError(message, where=where, hint=hint)
