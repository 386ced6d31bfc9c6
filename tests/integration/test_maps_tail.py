"""What others append to the maps topic of a real broker is seen from when it was first looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaProducer

from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_maps_tail import MapsTail

pytestmark = pytest.mark.kafka


def test_the_last_record_of_each_key_since_it_was_first_asked(
    kafka: str, topics: Callable[..., tuple[str, ...]]
) -> None:
    (topic,) = topics("maps", configs={"cleanup.policy": "compact"})
    tail = MapsTail(KafkaClients(Kafka(bootstrap_servers=(kafka,), group_id="g")), topic)
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all")

    def publish(key: bytes, value: bytes | None) -> None:
        producer.send(topic, value, key=key).get(30)

    try:
        publish(b"a", b"before")
        assert tail.newest() == {}
        publish(b"a", b"one")
        publish(b"b", b"two")
        assert tail.newest() == {"a": b"one", "b": b"two"}
        publish(b"b", None)
        assert tail.newest() == {"a": b"one", "b": None}
    finally:
        tail.close()
        producer.close()
