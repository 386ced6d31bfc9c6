"""What is appended to the maps topic while we look: the last record of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import KafkaError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import Trouble
from streamcal.runtime.logs.kafka_topics import keyed_up_to

__all__ = ["MapsTail"]

_CLOSE_MS: Final = 100
_READ_S: Final = 2.0
"""Longest reading at one time; what is left is read the next time."""


class MapsTail:
    """Reads on from where the topic ended when it was first asked; used from one thread.

    Parameters
    ----------
    clients : KafkaClients
    topic : str
    """

    def __init__(self, clients: KafkaClients, topic: str) -> None:
        self._clients = clients
        self._topic = topic
        self._consumer: Any = None
        self._last: dict[str, bytes | None] = {}
        self._trouble = Trouble()

    def newest(self) -> Mapping[str, bytes | None]:
        """The last record by key, None of one without a value; as far as the broker answers."""
        try:
            if self._consumer is None:
                self._begin()
            else:
                self._read()
        except (KafkaError, BrokerError) as error:
            self._trouble.say("the maps topic could not be looked at; the next time will", error)
        return self._last

    def close(self) -> None:
        """Let go of the connection."""
        if self._consumer is not None:
            self._consumer.close(timeout_ms=_CLOSE_MS)

    def _begin(self) -> None:
        consumer = self._clients.maps_consumer()
        try:
            parts = [TopicPartition(self._topic, number) for number in consumer.partitions_for_topic(self._topic) or ()]
            consumer.assign(parts)
            for part, end in consumer.end_offsets(parts, timeout_ms=admin_timeout_ms).items():
                consumer.seek(part, end)
        except KafkaError:
            consumer.close(timeout_ms=_CLOSE_MS)
            raise
        self._consumer = consumer

    def _read(self) -> None:
        ends = self._consumer.end_offsets(list(self._consumer.assignment()), timeout_ms=admin_timeout_ms)
        self._last.update(keyed_up_to(self._consumer, ends, _READ_S))
