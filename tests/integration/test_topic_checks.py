"""Topics at the start, on a real broker: made with what they need, refused when they have something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from streamcal.errors import BrokerError
from streamcal.runtime.config_kafka import Kafka, Topics
from streamcal.runtime.logs.co_partition import CoPartition
from streamcal.runtime.logs.kafka_canary import check_partitioning
from streamcal.runtime.logs.kafka_checks import ensure_topics, partition_counts
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_specs import (
    counts_spec,
    dead_letter_spec,
    maps_spec,
    repartition_spec,
    state_spec,
)
from streamcal.runtime.logs.kafka_topics import prepare_topics
from streamcal.runtime.logs.partitioner import PARTITIONERS
from streamcal.runtime.logs.record_ids import IdReader

pytestmark = pytest.mark.kafka

Make = Callable[..., tuple[str, ...]]


@pytest.fixture
def clients(kafka: str) -> KafkaClients:
    return KafkaClients(Kafka(bootstrap_servers=(kafka,), group_id=f"group-{uuid4().hex[:10]}"))


def settings_of(kafka: str, topic: str) -> dict[str, str]:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        told = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        return {name: held["value"] for name, held in told["topic"][topic].items()}
    finally:
        admin.close()


def test_missing_topics_are_made_as_needed_and_found_so_the_next_time(kafka: str, clients: KafkaClients) -> None:
    run = uuid4().hex[:10]
    specs = [
        maps_spec(f"maps-{run}"),
        counts_spec(f"counts-{run}", 3),
        state_spec(f"state-{run}", 3),
        dead_letter_spec(f"dead-{run}", 2),
        repartition_spec(f"again-{run}", 5),
    ]
    made = ensure_topics(clients, specs, create=True)
    assert list(made.values()) == [1, 3, 3, 2, 5]
    for spec in specs:
        held = settings_of(kafka, spec.name)
        assert {name: held[name] for name in spec.settings} == dict(spec.settings)
    assert settings_of(kafka, f"again-{run}")["message.timestamp.after.max.ms"] == str(2**63 - 1)
    assert ensure_topics(clients, specs, create=False) == made


def test_a_missing_topic_is_not_made_where_that_is_not_allowed(clients: KafkaClients) -> None:
    name = f"state-{uuid4().hex[:10]}"
    with pytest.raises(BrokerError) as caught:
        ensure_topics(clients, [state_spec(name, 3)], create=False)
    assert f"there is no topic {name!r}" in caught.value.what
    assert (
        "create it with 3 partitions, cleanup.policy=delete, retention.ms=-1, retention.bytes=-1" in caught.value.hint
    )
    assert partition_counts(clients, [name]) == {}


def test_wrong_settings_of_several_topics_are_refused_in_one_message(clients: KafkaClients, topics: Make) -> None:
    maps, counts, state = topics("maps", "counts", "state", partitions=2, configs={"retention.ms": "3600000"})
    with pytest.raises(BrokerError) as caught:
        ensure_topics(clients, [maps_spec(maps), counts_spec(counts, 2), state_spec(state, 4)], create=True)
    said = str(caught.value)
    for topic, what in (
        (maps, "needs compact"),
        (counts, "needs compact"),
        (state, "needs 4"),
        (state, "retention.ms="),
    ):
        assert topic in said
        assert what in said
    assert f"--entity-name {maps} --add-config cleanup.policy=compact" in said
    assert f"--entity-name {state} --add-config retention.ms=-1" in said


def test_inputs_are_never_made(clients: KafkaClients, topics: Make) -> None:
    (predictions,) = topics("predictions")
    missing = f"outcomes-{uuid4().hex[:10]}"
    with pytest.raises(BrokerError, match=missing):
        prepare_topics(clients, Topics(predictions=predictions, outcomes=missing, maps=f"maps-{missing}"))
    assert partition_counts(clients, [missing, f"maps-{missing}"]) == {}


def fill(kafka: str, topic: str, rule: str, prefix: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20)
    for number in range(300):
        text = f"{prefix}-{number}"
        place = PARTITIONERS[rule](text.encode()) % 4
        producer.send(topic, b'{"id":"%s"}' % text.encode(), key=text.encode(), partition=place)
    producer.flush()
    producer.close()


@pytest.mark.parametrize(
    ("rule", "prefix", "refused"),
    [("murmur2", "a", None), ("murmur2", "b", None), ("crc32", "a", "crc32, librdkafka's"), ("fnv1a", "b", "Sarama")],
)
def test_topics_hashed_by_different_partitioners_are_refused_naming_them(
    kafka: str, clients: KafkaClients, topics: Make, rule: str, prefix: str, refused: str | None
) -> None:
    names = dict(zip(("predictions", "outcomes"), topics("predictions", "outcomes", partitions=4), strict=True))
    fill(kafka, names["predictions"], "murmur2", "a")
    fill(kafka, names["outcomes"], rule, prefix)
    readers: dict[str, Any] = dict.fromkeys(names, IdReader("id").many)
    watch = CoPartition(readers, 4, names)
    if refused is None:
        check_partitioning(clients, watch, names)
        return
    with pytest.raises(BrokerError, match=refused) as caught:
        check_partitioning(clients, watch, names)
    assert "join.repartition: outcomes" in caught.value.hint
