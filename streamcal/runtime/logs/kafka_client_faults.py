"""What the client (kafka-python 3.0.12) does otherwise than it says or does not say, set right in one place."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from kafka.errors import IllegalStateError, KafkaError

__all__ = ["close_producer", "known_id", "poll", "position", "seek", "topic_id"]


def seek(consumer: Any, part: Any, offset: int) -> None:
    """Read a part from `offset` on.

    Raises
    ------
    IllegalStateError
        The part is not ours any more. The client raises that everywhere else, and here a ValueError, which would look
        like a mistake of ours and is none: a member that was put out of its group loses its parts at any moment.
    """
    try:
        consumer.seek(part, offset)
    except ValueError as error:
        raise IllegalStateError(str(error)) from error


def close_producer(producer: Any, timeout_s: float) -> None:
    """Stop a producer, after at most so long for what is on its way, whatever becomes of it.

    Where not everything is acknowledged in time the client raises, and stops nothing: its thread goes on, and would
    send what was given up long after another took over.
    """
    with contextlib.suppress(KafkaError):
        producer.close(timeout=timeout_s)
    if not getattr(producer, "_closed", True):
        producer._sender.force_close()  # noqa: SLF001, there is no other way to it
        producer._closed = True  # noqa: SLF001, else it is tried again, and fails again, when memory is freed


def poll(consumer: Any, timeout_ms: int) -> Mapping[Any, list[Any]]:
    """Records of a consumer whose parts are paused and resumed, those that were parked meanwhile among them.

    The client parks what is left of a fetch when its part is paused, and takes it up once the part is resumed, but only
    where its slot for the records in line is None. A fetch that was read to its end stays in that slot; then the part
    is neither read nor fetched until more comes from elsewhere, and without that never.
    """
    fetcher = getattr(consumer, "_fetcher", None)
    if fetcher is not None and not getattr(fetcher, "_next_partition_records", None):
        fetcher._next_partition_records = None  # noqa: SLF001, there is no other way to it
    fetched: Mapping[Any, list[Any]] = consumer.poll(timeout_ms=timeout_ms)
    return fetched


def position(consumer: Any, part: Any, least: int) -> int:
    """Where reading goes on: after the last record, which is before `least`, and what is no record behind it.

    Markers of transactions, and what was aborted, take offsets and are never handed out. An offset before them would
    look like lost records once their topic has deleted them.
    """
    try:
        reached = consumer.position(part, timeout_ms=0)
    except KafkaError:
        reached = None
    return max(least, reached or 0)


def topic_id(consumer: Any, topic: str) -> str | None:
    """Kafka's own id of a topic as the client last heard it; None where it did not.

    A topic that was deleted and made anew has another. The client notices, says so in its log, and reads on in the new
    one from where it was in the old.
    """
    cluster = getattr(consumer, "_cluster", None)
    return None if cluster is None else known_id(cluster.topic_id(topic))


def known_id(told: Any) -> str | None:
    """Kafka's own id of a topic as text; None of a broker that has none, or tells zeros.

    >>> known_id("7d0c6f3e-0000-4000-8000-000000000001"), known_id("00000000-0000-0000-0000-000000000000")
    ('7d0c6f3e-0000-4000-8000-000000000001', None)
    """
    text = str(told or "")
    return text if text.strip("0-") else None
