"""Six pairs of topics as others write them, taken up by `init` and `doctor` alone on a real broker."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from foreign_schemas import SCHEMAS, Foreign, Message
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from registry_stub import RegistryStub, running_registry

from streamcal.cli import run_command
from streamcal.runtime.config import load_config

pytestmark = pytest.mark.kafka

PARTITIONS = 3


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStub]:
    with running_registry() as stub:
        yield stub


def produce(kafka: str, topic: str, messages: list[Message]) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20)
    for message in messages:
        producer.send(
            topic, message.value, key=message.key, headers=list(message.headers), timestamp_ms=message.timestamp
        )
    producer.flush()
    producer.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run a command line in this process."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = run_command([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    yield command
    structlog.reset_defaults()


def value_at(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_foreign_schema_is_taken_up(
    name: str,
    kafka: str,
    topics: Callable[..., tuple[str, ...]],
    registry: RegistryStub,
    tmp_path: Path,
    run: Callable[..., tuple[int, str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    foreign: Foreign = SCHEMAS[name](random.Random(20))
    predictions, outcomes = topics("predictions", "outcomes", partitions=PARTITIONS)
    produce(kafka, predictions, foreign.predictions)
    produce(kafka, outcomes, foreign.outcomes)
    for number, schema in foreign.schemas.items():
        registry.register(number, schema, foreign.kind)
    out, group = tmp_path / "first.yaml", f"init-{name}"
    sources = ["--bootstrap-servers", kafka, "--predictions", predictions, "--outcomes", outcomes]
    further = ["--schema-registry", registry.url] if foreign.schemas else []

    code, _, said = run("init", *sources, *further, "--group-id", group, "--out", out)
    assert code == 0, said
    checked, summary, problems = run("check-config", "--config", out)
    assert checked == 0, problems
    judged, report, error = run("doctor", "--config", out, "--json")
    document = json.loads(report)
    _, text, _ = run("doctor", "--config", out)
    with capsys.disabled():
        print(f"\n===== {foreign.name}\n{out.read_text(encoding='utf-8')}\n{text}\n{summary}")

    config = load_config(out, environ={}, require_kafka=True)
    assert {key: value_at(config, key) for key in foreign.expected} == foreign.expected
    assert config.join.horizon.ms >= foreign.longest_delay_ms
    assert (judged, error) == (0, ""), report
    assert [finding for finding in document["findings"] if finding["level"] == "problem"] == []
    numbers = document["numbers"]
    assert numbers["predictions_accepted"] == len(foreign.predictions)
    assert numbers["outcomes_accepted"] == foreign.outcomes_of_ours
    assert numbers["outcomes_judged"] == foreign.outcomes_of_ours
    assert numbers["matched_share"] >= 0.95
    assert numbers["pairs_in_different_partitions"] == 0
    assert "murmur2" in document["sections"]["predictions"]["keys"]
    assert group not in groups(kafka)


def groups(kafka: str) -> set[str]:
    """Consumer groups the broker knows of: of members, and of committed offsets."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        return {group["group_id"] for group in admin.list_groups()}
    finally:
        admin.close()
