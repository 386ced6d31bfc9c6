"""Maps from the compacted maps topic. Importing this module loads the Kafka client; `streamcal.transform` does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

from streamcal.transform.kafka_security import client_security
from streamcal.transform.source import MapUpdate

__all__ = ["KafkaMapSource"]

_FIXED: Final[dict[str, Any]] = {
    # No group: every process reads the whole topic from its beginning and commits nothing.
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
}

_CONNECT_MS: Final = 5_000
"""Wait for a first broker, unless the caller says otherwise; `close` may have to wait as long."""
_BACKOFF_MS: Final = 5_000
"""Longest pause between two attempts to connect again; the client's own 30 s delay maps for as long after an outage."""
_ASK_S: Final = 10.0
"""A client whose broker is gone goes on returning nothing. After so long without a record the broker is asked."""
_ANSWER_MS: Final = 5_000
"""A broker that is there answers within milliseconds."""


class KafkaMapSource:
    """Every record of the maps topic, from the beginning and then as they come.

    The key of a record is the model's name, its value the document; a tombstone withdraws the model's map. A topic
    that does not exist yet is looked for again at each poll, and counts as read to its end: nothing was published.

    Connects at the first poll and not before, so that a transformer with a cache can start without a broker. A broker
    that does not answer makes `poll` raise, within some 15 s also where there is nothing new.

    Parameters
    ----------
    bootstrap_servers : str or sequence of str
    topic : str
    security : mapping, optional
        As the section ``kafka.security`` of the daemon's configuration: the same keys, secrets in files.
    **options
        Passed to ``kafka.KafkaConsumer``; what this class relies on cannot be changed.

    Raises
    ------
    ValueError
        If an option is one this class sets itself, or the client knows none of that name.
    ConfigError
        If `security` has an unknown key or names a file that cannot be read.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str = "streamcal.maps",
        *,
        security: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        taken = sorted(options.keys() & (_FIXED.keys() | {"key_deserializer", "value_deserializer"}))
        if taken:
            raise ValueError(f"options {', '.join(taken)} are set by KafkaMapSource")
        if unknown := sorted(options.keys() - KafkaConsumer.DEFAULT_CONFIG.keys()):
            raise ValueError(f"the Kafka client has no options {', '.join(unknown)}")
        self._topic = topic
        defaults = {"bootstrap_timeout_ms": _CONNECT_MS, "reconnect_backoff_max_ms": _BACKOFF_MS}
        options = {**defaults, **options, **client_security(security or {}), **_FIXED}
        self._connect = partial(_connected, bootstrap_servers=bootstrap_servers, **options)
        self._consumer: Any = None
        self._ends: dict[TopicPartition, int] | None = None
        self._interrupted = threading.Event()
        self._caught_up = False
        self._answered_s = 0.0

    @property
    def caught_up(self) -> bool:
        """Whether every partition has been read to the end it had at the first poll."""
        return self._caught_up

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        """See `MapSource.poll`; raises KafkaError when the broker fails, and may be called again."""
        if self._consumer is None:
            self._consumer = self._connect()
        if self._ends is None and not self._assign():
            self._caught_up = True
            self._interrupted.wait(timeout_s)
            return []
        fetched = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        if fetched:
            self._answered_s = time.monotonic()
        elif time.monotonic() - self._answered_s > _ASK_S:
            self._consumer.end_offsets(list(self._ends or ()), timeout_ms=_ANSWER_MS)
            self._answered_s = time.monotonic()
        updates = [
            MapUpdate(record.key.decode(errors="replace") if record.key is not None else None, record.value)
            for records in fetched.values()
            for record in records
        ]
        # By position, not by the last record seen: the end of a log may be a transaction marker.
        if not self._caught_up and self._ends is not None:
            self._caught_up = all(self._read_to(part, end) for part, end in self._ends.items())
        return updates

    def interrupt(self) -> None:
        """End the wait for a missing topic; a `poll` of the broker ends by its own time."""
        self._interrupted.set()

    def close(self) -> None:
        """Leave the broker."""
        if self._consumer is not None:
            self._consumer.close()

    def _assign(self) -> bool:
        """Take all partitions from their beginning; False while the topic does not exist."""
        numbers = self._consumer.partitions_for_topic(self._topic)
        if not numbers:
            return False
        self._answered_s = time.monotonic()
        parts = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        self._consumer.assign(parts)
        self._consumer.seek_to_beginning(*parts)
        self._ends = self._consumer.end_offsets(parts, timeout_ms=_ANSWER_MS)
        return True

    def _read_to(self, part: TopicPartition, end: int) -> bool:
        position = self._consumer.position(part, timeout_ms=_ANSWER_MS)
        return position is not None and position >= end


def _connected(**options: Any) -> Any:
    """A consumer with its connection; raises KafkaError as its constructor does.

    The constructor that finds no broker leaves its client's thread and sockets behind, at every attempt: here they
    are closed.
    """
    clients: list[Any] = []

    def made(*args: Any, **settings: Any) -> Any:
        clients.append(client_class(*args, **settings))
        return clients[-1]

    client_class = options.pop("kafka_client", KafkaConsumer.DEFAULT_CONFIG["kafka_client"])
    try:
        return KafkaConsumer(kafka_client=made, **options)
    except BaseException:
        for client in clients:
            client.close()
        raise
