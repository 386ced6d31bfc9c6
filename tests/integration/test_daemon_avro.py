"""`streamcal run` on Avro topics: counted whole, through an outage of the schema registry too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from daemon_process import Daemon, wait_until
from foreign_schemas import SCHEMAS, Message
from kafka import KafkaProducer
from kafka_settings import free_ports
from registry_stub import running_registry

pytestmark = pytest.mark.kafka


def produce(kafka: str, topic: str, messages: Sequence[Message]) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20)
    for message in messages:
        producer.send(topic, message.value, key=message.key, timestamp_ms=message.timestamp)
    producer.flush()
    producer.close()


def config(kafka: str, predictions: str, outcomes: str, url: str) -> dict[str, Any]:
    group = f"group-{uuid4().hex[:10]}"
    return {
        "kafka": {"bootstrap_servers": kafka, "group_id": group, "start_from": "earliest", "commit_interval": "200ms"},
        "topics": {"predictions": predictions, "outcomes": outcomes, "maps": f"maps-{group}"},
        "events": {
            "format": "avro",
            "schema_registry": {"url": url},
            "prediction": {"time": "timestamp", "score": "probability", "segments": {"channel": "channel"}},
            "outcome": {"id": "predictionId", "time": "decided.at", "time_unit": "ms", "label": "churned"},
        },
        "join": {"horizon": "24h"},
        "segments": {"cuts": [["channel"]]},
        "refit": {"mode": "off"},
    }


def accepted(daemon: Daemon) -> tuple[float, float]:
    found = daemon.samples()
    predictions = found.get(("streamcal_predictions_accepted_total", frozenset({("model", "default")})), 0)
    return predictions, found.get(("streamcal_outcomes_accepted_total", frozenset()), 0)


def test_every_event_is_counted_through_an_outage_of_the_registry(
    kafka: str, topics: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    foreign = SCHEMAS["avro"](random.Random(6))
    predictions, outcomes = topics("predictions", "outcomes", partitions=2)
    later = [m._replace(value=m.value[:4] + b"\x63" + m.value[5:]) for m in foreign.outcomes]  # the same under id 99
    broken = Message(b"x", b"\0\0\0\0\x48\x02", foreign.outcomes[-1].timestamp)
    with running_registry() as registry:
        for number, schema in foreign.schemas.items():
            registry.register(number, schema)
        registry.register(99, foreign.schemas[72])
        with Daemon(config(kafka, predictions, outcomes, registry.url), tmp_path) as daemon:
            daemon.wait_ready()
            produce(kafka, predictions, foreign.predictions)
            wait_until(lambda: accepted(daemon)[0] == len(foreign.predictions))
            registry.failures = [503, 503, 0]
            produce(kafka, outcomes, [broken, *later])
            wait_until(lambda: accepted(daemon)[1] == len(later))
            assert registry.failures == []
            found = daemon.samples()
            assert (
                found["streamcal_events_rejected_total", frozenset({("topic", "outcomes"), ("reason", "malformed")})]
                == 1
            )
            assert found["streamcal_predictions_matched_total", frozenset({("model", "default")})] == len(later)
            assert daemon.terminate() == 0


def test_a_registry_that_is_away_is_one_line_before_the_group_is_joined(kafka: str, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with Daemon(config(kafka, "p", "o", url), tmp_path) as daemon:
        assert daemon.process.wait(timeout=60) == 4
        (line,) = daemon.errors.splitlines()
    assert line.startswith(f"streamcal: {url}: the schema registry does not answer: ")
    assert "events.schema_registry.url" in line
