"""Maps from the compacted maps topic. Importing this module loads the Kafka client; `streamcal.transform` does not."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
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


class KafkaMapSource:
    """Every record of the maps topic, from the beginning and then as they come.

    The key of a record is the model's name, its value the document; a tombstone withdraws the model's map. A topic
    that does not exist yet is looked for again at each poll, and counts as read to its end: nothing was published.

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
        If an option is one this class sets itself.
    ConfigError
        If `security` has an unknown key or names a file that cannot be read.
    kafka.errors.KafkaError
        If no broker answers.
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
        self._topic = topic
        options |= client_security(security or {})
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, **options, **_FIXED)
        self._ends: dict[TopicPartition, int] | None = None
        self._interrupted = threading.Event()
        self._caught_up = False

    @property
    def caught_up(self) -> bool:
        """Whether every partition has been read to the end it had at the first poll."""
        return self._caught_up

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        """See `MapSource.poll`; raises KafkaError when the broker fails, and may be called again."""
        if self._ends is None and not self._assign():
            self._caught_up = True
            self._interrupted.wait(timeout_s)
            return []
        fetched = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        updates = [
            MapUpdate(record.key.decode(errors="replace") if record.key is not None else None, record.value)
            for records in fetched.values()
            for record in records
        ]
        # By position, not by the last record seen: the end of a log may be a transaction marker.
        if not self._caught_up and self._ends is not None:
            self._caught_up = all(self._consumer.position(part) >= end for part, end in self._ends.items())
        return updates

    def interrupt(self) -> None:
        """End the wait for a missing topic; a `poll` of the broker ends by its own time."""
        self._interrupted.set()

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _assign(self) -> bool:
        """Take all partitions from their beginning; False while the topic does not exist."""
        numbers = self._consumer.partitions_for_topic(self._topic)
        if not numbers:
            return False
        parts = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        self._consumer.assign(parts)
        self._consumer.seek_to_beginning(*parts)
        self._ends = self._consumer.end_offsets(parts)
        return True
