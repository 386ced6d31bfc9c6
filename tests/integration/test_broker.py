"""The broker that the other integration tests rely on does what they take for granted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka_broker import Broker

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]


def produce(bootstrap: str, topic: str, values: list[bytes], **options: object) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", **options)
    try:
        for number, value in enumerate(values):
            producer.send(topic, value, key=str(number).encode())
        producer.flush()
    finally:
        producer.close()


def read_all(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Values per partition, from the beginning to the end of the topic, in log order."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        values: dict[int, list[bytes]] = {partition.partition: [] for partition in partitions}
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for partition, records in consumer.poll(timeout_ms=500).items():
                values[partition.partition] += [record.value for record in records]
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "snappy", "zstd"])
def test_what_is_produced_is_consumed_whole_and_in_order_per_partition(
    kafka: str, topics: Topics, compression: str | None
) -> None:
    (topic,) = topics("roundtrip", partitions=3)
    sent = [b"%06d" % number for number in range(3000)]
    produce(kafka, topic, sent, compression_type=compression)
    got = read_all(kafka, topic)
    assert len(got) == 3
    assert sorted(value for values in got.values() for value in values) == sent
    assert all(values == sorted(values) for values in got.values())


def test_topics_get_names_of_their_own(topics: Topics) -> None:
    assert len({*topics("same", "same"), *topics("same")}) == 3


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_keeps_address_and_records(kafka_broker: Broker, topics: Topics, how: str) -> None:
    (topic,) = topics("restart", partitions=2)
    address = kafka_broker.bootstrap
    sent = [b"%06d" % number for number in range(500)]
    produce(address, topic, sent)
    before = read_all(address, topic)

    getattr(kafka_broker, how)()
    kafka_broker.start()

    assert kafka_broker.bootstrap == address
    assert read_all(address, topic) == before
    produce(address, topic, [b"after"])
    assert sum(len(values) for values in read_all(address, topic).values()) == 501
