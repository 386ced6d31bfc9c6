"""Kafka clients of the command: a static member of its own group, a transactional producer, a follower of the maps."""

from __future__ import annotations

from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.serializer import Serializer

from streamcal.errors import BrokerError
from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.logs.kafka_clients import CONNECT_S, TUNED, KafkaClients
from streamcal.runtime.transforming.plan import Plan
from streamcal.transform.kafka_source import KafkaMapSource

__all__ = ["NOTHING", "TRANSACTION_S", "TransformClients"]

TRANSACTION_S: Final = 30.0
"""After this the broker ends a transaction whose owner is gone; until then readers of the output wait behind it, and a
member that takes over its partitions too. A transaction takes well under a second; a broker's restart some seconds."""

NOTHING: Final = b"streamcal: no value"
"""Stands for the value of a tombstone: the client refuses a record with neither key nor value, Kafka does not."""

_FETCH: Final[dict[str, Any]] = {
    # As many records as a transaction should hold: 5,000 take a fraction of a second, and its requests spread thin.
    "max_poll_records": 5_000,
}

_GROUP: Final[dict[str, Any]] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",  # a silent reset loses or repeats records
    # Aborted predictions are no predictions; and group offsets of a transaction not yet ended are waited for.
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
}

_BATCHES: Final[dict[str, Any]] = {
    # Batches end when they are full or the transaction does.
    "batch_size": 256 * 1024,
    "linger_ms": 100,
    # One record may be as long as the broker lets it; the default of 1 MB is not even what may be read.
    "max_request_size": 32 * 1024 * 1024,
    # All within the transaction's own time: what is later than that is lost in any case.
    "request_timeout_ms": 10_000,
    "delivery_timeout_ms": int(TRANSACTION_S * 1000),
    "max_block_ms": int(TRANSACTION_S * 1000),
    "reconnect_backoff_max_ms": 2_000,
    "metrics_enabled": False,
}


class _Values(Serializer):  # type: ignore[misc]  # the client ships no types
    """Bytes as they are, `NOTHING` as no value."""

    def serialize(self, topic: str, headers: Any, data: bytes) -> bytes | None:  # noqa: ARG002 - the client's names
        """The value that is sent."""
        return None if data is NOTHING else data


class TransformClients(KafkaClients):
    """Makes the clients of one run.

    Parameters
    ----------
    kafka : Kafka
    plan : Plan

    Raises
    ------
    ConfigError
        A secret file cannot be read.
    """

    def __init__(self, kafka: Kafka, plan: Plan) -> None:
        super().__init__(kafka)
        self._plan = plan

    def input_consumer(self) -> Any:
        """A member of the command's group, not yet subscribed; raises BrokerError."""
        identity = {"group_id": self._plan.group_id, "group_instance_id": self._plan.instance_id}
        return self._connect(KafkaConsumer, {**TUNED, **_FETCH, **self._kafka.consumer, **identity, **_GROUP})

    def transactional_producer(self) -> Any:
        """A producer of transactions, not yet initialised; raises BrokerError."""
        fixed = {
            "acks": "all",
            "enable_idempotence": True,
            "allow_auto_create_topics": False,
            "transactional_id": self._plan.transactional_id,
            "transaction_timeout_ms": int(TRANSACTION_S * 1000),
            "value_serializer": _Values(),
        }
        return self._connect(KafkaProducer, {**_BATCHES, **self._kafka.producer, **fixed})

    def maps(self) -> KafkaMapSource:
        """The maps topic.

        Raises
        ------
        BrokerError
            No broker answers.
        """
        options = {name: value for name, value in self._shared.items() if name != "bootstrap_servers"}
        options |= {"bootstrap_timeout_ms": int(CONNECT_S * 1000), "reconnect_backoff_max_ms": 2_000}
        options |= {"metrics_enabled": False}
        try:
            return KafkaMapSource(self._shared["bootstrap_servers"], self._plan.maps, **options)
        except (KafkaError, OSError) as error:
            message = f"no broker answers within {CONNECT_S:.0f} s: {error}"
            raise BrokerError(message, where=self.servers, hint="check kafka.bootstrap_servers") from error
