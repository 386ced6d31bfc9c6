"""The maps topic on a real broker: read from the beginning, followed, and not needed to exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from kafka import KafkaProducer
from kafka_broker import create_topics

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import CalibratingProducer, CalibrationTransformer
from streamcal.transform.kafka_source import KafkaMapSource

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]
COMPACTED = {"cleanup.policy": "compact"}
WAIT_S = 60.0


def document(version: int, model: str = "default") -> bytes:
    return encode(new_document(model, version, Platt(1.0, -version / 10), at_ms=0))


@pytest.fixture
def producer(kafka: str) -> Iterator[KafkaProducer]:
    made = KafkaProducer(bootstrap_servers=kafka, acks="all")
    yield made
    made.close()


def publish(producer: KafkaProducer, topic: str, *records: tuple[str, bytes | None]) -> None:
    for model, data in records:
        producer.send(topic, key=model.encode(), value=data)
    producer.flush()


def test_the_topic_is_read_whole_and_then_followed(kafka: str, topics: Topics, producer: KafkaProducer) -> None:
    (topic,) = topics("maps", partitions=3, configs=COMPACTED)
    publish(producer, topic, ("default", document(2)), ("default", document(1)), ("default", b"damaged"))
    publish(producer, topic, ("gone", document(1, "gone")), ("gone", None), ("other", document(7, "other")))
    with CalibrationTransformer(KafkaMapSource(kafka, topic)) as transformer:
        assert transformer.wait_caught_up(WAIT_S)
        assert transformer.transform(0.5) == (Platt(1.0, -0.2).apply_one(0.5), 2)
        assert transformer.transform(0.5, "other")[1] == 7
        assert transformer.transform(0.5, "gone") == (0.5, 0)
        assert transformer.problems == {"corrupt": 1}
        publish(producer, topic, ("default", document(3)))
        assert transformer.wait_until(lambda status: status.maps["default"].version == 3, WAIT_S)
        publish(producer, topic, ("default", None))
        assert transformer.wait_until(lambda status: "default" not in status.maps, WAIT_S)


def test_a_topic_that_is_made_later_is_found(kafka: str, producer: KafkaProducer) -> None:
    topic = f"maps-later-{uuid4().hex[:10]}"
    with CalibrationTransformer(KafkaMapSource(kafka, topic)) as transformer:
        assert transformer.wait_caught_up(WAIT_S)
        assert transformer.transform(0.5) == (0.5, 0)
        create_topics(kafka, {topic: 1}, COMPACTED)
        publish(producer, topic, ("default", document(1)))
        assert transformer.wait_until(lambda status: "default" in status.maps, WAIT_S)


def test_the_calibrating_producer_writes_through_kafkas_own(
    kafka: str, topics: Topics, producer: KafkaProducer
) -> None:
    maps, predictions = topics("maps", "predictions")
    publish(producer, maps, ("default", document(4)))
    with CalibrationTransformer(KafkaMapSource(kafka, maps)) as transformer:
        assert transformer.wait_caught_up(WAIT_S)
        sent = CalibratingProducer(producer, transformer, predictions).send(id="a", score=0.5, ts_ms=0)
        assert sent.map_version == 4
        assert sent.handle.get(timeout=WAIT_S).topic == predictions


@pytest.mark.parametrize("option", ["group_id", "auto_offset_reset", "value_deserializer"])
def test_options_the_source_relies_on_cannot_be_changed(kafka: str, option: str) -> None:
    with pytest.raises(ValueError, match=option):
        KafkaMapSource(kafka, **{option: None})
