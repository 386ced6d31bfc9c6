"""`streamcal doctor` on a real broker: what it tells, what it finds wrong, and that it leaves no trace."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from streamcal.cli import run_command

pytestmark = pytest.mark.kafka

T = 1_717_200_000_000
Topics = Callable[..., tuple[str, ...]]
Run = Callable[..., tuple[int, dict[str, Any]]]


def streams(count: int = 300) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rng = random.Random(9)
    predictions, outcomes = [], []
    for i in range(count):
        score, at = rng.random(), T + 1000 * i
        segments = {"country": rng.choice(["GB", "NO"]), "device": "web"}
        predictions.append({"id": f"i{i}", "ts": at, "score": score, "segments": segments})
        outcomes.append({"id": f"i{i}", "ts": at + rng.randrange(20 * 3_600_000), "label": int(rng.random() < score)})
    return predictions, sorted(outcomes, key=lambda event: event["ts"])


def produce(
    kafka: str, topic: str, events: Sequence[dict[str, Any]], place: Callable[[bytes], int] | None = None
) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20)
    for event in events:
        key = event["id"].encode()
        at = None if place is None else place(key)
        producer.send(topic, json.dumps(event).encode(), key=key, partition=at, timestamp_ms=event["ts"])
    producer.flush()
    producer.close()


@pytest.fixture
def doctor(tmp_path: Path, kafka: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def run(predictions: str, outcomes: str, *arguments: str, **further: Any) -> tuple[int, dict[str, Any]]:
        group = f"group-{uuid4().hex[:10]}"
        content: dict[str, Any] = {
            "kafka": {"bootstrap_servers": kafka, "group_id": group},
            "topics": {"predictions": predictions, "outcomes": outcomes},
            **further,
        }
        path = tmp_path / "c.yaml"
        path.write_text(json.dumps(content), encoding="utf-8")
        code = run_command(["doctor", "--config", str(path), "--json", *arguments])
        said = capsys.readouterr()
        assert said.err == ""
        return code, {**json.loads(said.out), "group": group}

    yield run
    structlog.reset_defaults()


def problems(document: dict[str, Any]) -> str:
    return "\n".join(f"{f['what']} -> {f['change']}" for f in document["findings"] if f["level"] == "problem")


def test_a_sound_pair_of_topics_has_no_problem_and_is_left_as_it_was(kafka: str, topics: Topics, doctor: Run) -> None:
    predictions, outcomes = topics("predictions", "outcomes", partitions=4)
    for topic, events in zip((predictions, outcomes), streams(), strict=True):
        produce(kafka, topic, events)
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    before = set(admin.list_topics())
    code, found = doctor(predictions, outcomes)
    after = set(admin.list_topics())
    groups = {group["group_id"] for group in admin.list_groups()}
    admin.close()
    assert (code, problems(found)) == (0, "")
    assert found["numbers"]["matched_share"] == 1.0
    assert found["numbers"]["predictions_accepted"] == found["numbers"]["predictions_sampled"] == 300
    assert found["group"] not in groups
    assert after == before


def test_topics_of_two_partitioners_are_told_apart(kafka: str, topics: Topics, doctor: Run) -> None:
    predictions, outcomes = topics("predictions", "outcomes", partitions=4)
    given, known = streams()
    produce(kafka, predictions, given, lambda key: zlib.crc32(key) % 4)
    produce(kafka, outcomes, known)
    code, found = doctor(predictions, outcomes)
    assert code == 1
    assert "predictions were placed by crc32 (librdkafka's consistent_random" in problems(found)
    assert "outcomes by murmur2" in problems(found)


def test_missing_topics_unequal_counts_and_short_retention_are_problems(topics: Topics, doctor: Run) -> None:
    (predictions,) = topics("predictions", partitions=2, configs={"retention.ms": "3600000"})
    (outcomes,) = topics("outcomes", partitions=3)
    code, found = doctor(predictions, outcomes)
    assert code == 1
    assert "keeps records for 1h, less than the horizon of 1d" in problems(found)
    assert f"topic '{predictions}' has 2 partitions and '{outcomes}' has 3" in problems(found)
    assert "the topic of the outcomes holds no records" in problems(found)
    code, found = doctor(predictions, "mistyped")
    assert code == 1
    assert "there is no topic 'mistyped'" in problems(found)


def test_a_wrong_unit_is_one_problem_with_its_line(kafka: str, topics: Topics, doctor: Run) -> None:
    predictions, outcomes = topics("predictions", "outcomes", partitions=2)
    for topic, events in zip((predictions, outcomes), streams(), strict=True):
        produce(kafka, topic, events)
    events = {"outcome": {"time_unit": "s"}}
    code, found = doctor(predictions, outcomes, events=events)
    assert code == 1
    (said,) = problems(found).splitlines()
    assert said.startswith("100 % of the outcomes sampled are rejected as bad_time: ts holds milliseconds, like 17172")
    assert said.endswith(", and is read as s -> set events.outcome.time_unit: ms")


def test_predictions_are_read_further_back_until_outcomes_find_theirs(kafka: str, topics: Topics, doctor: Run) -> None:
    predictions, outcomes = topics("predictions", "outcomes", partitions=2)
    given, known = streams(800)
    produce(kafka, predictions, given)
    produce(kafka, outcomes, [event for event in known if int(event["id"][1:]) < 100])
    code, found = doctor(predictions, outcomes, "--records", "60")
    assert (code, problems(found)) == (0, "")
    assert found["numbers"]["predictions_sampled"] > 700
    assert found["numbers"]["matched_share"] == 1.0
