"""The maps topic while its broker is gone: noticed, bridged by the cache, and followed again once it is back."""

from __future__ import annotations

import gc
import logging
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka_broker import Broker, create_topics

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import CalibrationTransformer
from streamcal.transform.kafka_source import KafkaMapSource

# The client leaves sockets of refused connections to the garbage collector, which warns of each.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

WAIT_S = 90.0
TOPIC = "maps-in-an-outage"


def document(version: int) -> bytes:
    return encode(new_document("default", version, Platt(1.0, -version / 10), at_ms=0))


def publish(bootstrap: str, version: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    producer.send(TOPIC, key=b"default", value=document(version))
    producer.flush()
    producer.close()


@pytest.fixture(autouse=True)
def collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect those sockets while their warnings are ignored; log records would keep them."""
    caplog.set_level(logging.CRITICAL, logger="kafka")
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def nobody() -> str:
    """An address at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


def test_without_a_broker_a_source_can_be_made_and_fails_when_it_is_asked(nobody: str) -> None:
    source = KafkaMapSource(nobody, bootstrap_timeout_ms=200)
    held = []
    for _ in range(4):
        with pytest.raises(KafkaError):
            source.poll(0.0)
        gc.collect()
        held.append((threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))))
    assert held[1:] == held[:-1], "attempts leave threads or sockets behind"
    assert not source.caught_up
    source.close()


def test_an_option_the_client_does_not_know_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="bootstrap_timeout"):
        KafkaMapSource("127.0.0.1:1", bootstrap_timeout=3)


@pytest.mark.kafka
@pytest.mark.slow
def test_an_outage_is_noticed_bridged_and_over(kafka_broker: Broker, tmp_path: Path) -> None:
    bootstrap = kafka_broker.bootstrap
    create_topics(bootstrap, {TOPIC: 1}, {"cleanup.policy": "compact"})
    publish(bootstrap, 3)
    with CalibrationTransformer(KafkaMapSource(bootstrap, TOPIC), cache=tmp_path) as running:
        assert running.wait_caught_up(WAIT_S)
        kafka_broker.kill()
        assert running.wait_until(lambda status: status.problems.get("source", 0) > 0, WAIT_S)
        assert running.transform(0.5)[1] == 3
        with CalibrationTransformer(
            KafkaMapSource(bootstrap, TOPIC, bootstrap_timeout_ms=500), cache=tmp_path
        ) as started:
            assert started.transform(0.5) == (Platt(1.0, -0.3).apply_one(0.5), 3)
            assert started.status().maps["default"].cached
            kafka_broker.start()
            assert started.wait_until(lambda status: not status.maps["default"].cached, WAIT_S)
            publish(bootstrap, 4)
            for transformer in (started, running):
                assert transformer.wait_until(lambda status: status.maps["default"].version == 4, WAIT_S)
