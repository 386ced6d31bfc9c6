"""Kafka clients as every part of the daemon needs them: options that keep counts exact, errors a person can act on."""

from __future__ import annotations

from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConfigurationError

from streamcal.errors import ConfigError
from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.logs.kafka_connecting import CONNECT_S, connected
from streamcal.runtime.logs.kafka_specs import LARGEST_LETTER
from streamcal.runtime.repartition_group import WholeTopicAssignor

__all__ = ["CONNECT_S", "TUNED", "KafkaClients", "admin_timeout_ms"]

admin_timeout_ms: Final = 10_000
"""Longest wait for one answer to a question asked while starting or settling."""

TUNED: Final[dict[str, Any]] = {
    # Measured on 150-byte records: fewer, larger polls keep the columns long; beyond 20,000 nothing is gained.
    "max_poll_records": 20_000,
    "max_partition_fetch_bytes": 4 * 1024 * 1024,
    "fetch_max_bytes": 32 * 1024 * 1024,
    # The default of 30 s would let a broker be back for half a minute before anyone notices.
    "reconnect_backoff_max_ms": 2_000,
    # The client's own statistics are read by nobody here.
    "metrics_enabled": False,
}

_GROUP: Final[dict[str, Any]] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",  # a silent reset loses or repeats records
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
    # The only strategy of the client that gives one member the same partition number of both topics.
    "partition_assignment_strategy": [RangePartitionAssignor],
}

_MAPS: Final[dict[str, Any]] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
}

_PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "enable_idempotence": True,
    "allow_auto_create_topics": False,
    "delivery_timeout_ms": 60_000,  # long enough for a broker to restart, short enough to stop in order
    "reconnect_backoff_max_ms": 2_000,
    "metrics_enabled": False,
}

_MANY: Final[dict[str, Any]] = {"linger_ms": 20, "batch_size": 256 * 1024, "compression_type": "lz4"}
"""Fewer, larger requests than the client's own settings make; records may wait, their order may not change."""


class KafkaClients:
    """Makes clients of one cluster; each is closed by who asked for it.

    Parameters
    ----------
    kafka : Kafka
        The section of the configuration.

    Raises
    ------
    ConfigError
        A secret file cannot be read.
    """

    def __init__(self, kafka: Kafka) -> None:
        assert kafka.bootstrap_servers is not None, "checked when the configuration is loaded"
        self.servers = ", ".join(kafka.bootstrap_servers)
        self.group_id = kafka.group_id
        self.replication_factor = kafka.replication_factor
        self._kafka = kafka
        self._shared: dict[str, Any] = {
            "bootstrap_servers": list(kafka.bootstrap_servers),
            "client_id": kafka.client_id,
            **kafka.security.client_options(),
        }

    def group_consumer(self) -> Any:
        """A member of the consumer group, not yet subscribed; raises BrokerError."""
        identity = {"group_id": self._kafka.group_id, "group_instance_id": self._kafka.group_instance_id}
        return self._connect(KafkaConsumer, {**TUNED, **self._kafka.consumer, **identity, **_GROUP})

    def maps_consumer(self) -> Any:
        """A consumer without a group; raises BrokerError."""
        return self._connect(KafkaConsumer, {"reconnect_backoff_max_ms": 2_000, **_MAPS})

    def state_consumer(self) -> Any:
        """A consumer without a group for large records, which never jumps over what was deleted; raises BrokerError."""
        large = {"max_partition_fetch_bytes": 16 * 1024 * 1024, "auto_offset_reset": "none"}
        return self._connect(KafkaConsumer, {**TUNED, **_MAPS, **large})

    def producer(self, **further: Any) -> Any:
        """A producer whose records are stored once or reported, with `further` options; raises BrokerError."""
        fixed = {key: _PRODUCER[key] for key in ("acks", "enable_idempotence", "allow_auto_create_topics")}
        return self._connect(KafkaProducer, {**_PRODUCER, **self._kafka.producer, **fixed, **further})

    def router_consumer(self, group_id: str) -> Any:
        """A member of the group that writes topics again, not yet subscribed; raises BrokerError."""
        identity = {"group_id": group_id, "group_instance_id": self._kafka.group_instance_id}
        whole = {"partition_assignment_strategy": [WholeTopicAssignor]}
        return self._connect(KafkaConsumer, {**TUNED, **self._kafka.consumer, **identity, **_GROUP, **whole})

    def router_producer(self, **further: Any) -> Any:
        """A producer for many records, as large as any; raises BrokerError."""
        lasting = {key: value for key, value in _MANY.items() if key not in self._kafka.producer}
        return self.producer(max_request_size=LARGEST_LETTER, **lasting, **further)

    def admin(self) -> Any:
        """An administrator of topics; raises BrokerError."""
        return self._connect(KafkaAdminClient, {"request_timeout_ms": admin_timeout_ms})

    def _connect(self, client: Any, options: dict[str, Any]) -> Any:
        def make(limit_s: float) -> Any:
            return client(bootstrap_timeout_ms=int(limit_s * 1000), **self._shared, **options)

        try:
            return connected(make, self.servers)
        except (KafkaConfigurationError, ValueError) as error:
            # Options that are right one by one and wrong together: only the client knows its rules.
            key = "kafka.producer" if client is KafkaProducer else "kafka.consumer"
            reason = str(error).removeprefix("KafkaConfigurationError: ")
            raise ConfigError([(key, f"the client refuses its options: {reason}")]) from error
