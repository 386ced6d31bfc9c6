"""Each fault of a configuration or a stream is found, with the line to change; a sound one has none."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcal.inspect.doctor import Diagnosis, examine
from streamcal.inspect.partitioners import PARTITIONERS
from streamcal.inspect.sample import Sample, SampledRecord
from streamcal.inspect.topics import GroupFacts, TopicFacts, group_findings, input_findings, own_findings, pair_findings
from streamcal.runtime.config import load_config
from streamcal.runtime.wiring import engine_settings

T = 1_700_000_000_000
HOUR = 3_600_000
PARTITIONS = 4
Event = dict[str, Any]
Streams = tuple[list[Event], list[Event]]


def streams(count: int = 400) -> Streams:
    rng = random.Random(2)
    predictions: list[Event] = []
    outcomes: list[Event] = []
    for i in range(count):
        score, at = rng.random(), T + 1000 * i
        segments = {"country": rng.choice(["GB", "NO"]), "device": "ios"}
        predictions.append({"id": f"i{i}", "ts": at, "score": score, "segments": segments})
        outcomes.append({"id": f"i{i}", "ts": at + rng.randrange(20 * HOUR), "label": int(rng.random() < score)})
    return predictions, sorted(outcomes, key=lambda event: event["ts"])


def murmur2(event: Event) -> int:
    return PARTITIONERS["murmur2"](str(event.get("id")).encode()) % PARTITIONS


def crc32(event: Event) -> int:
    return zlib.crc32(str(event.get("id")).encode()) % PARTITIONS


def sample(events: list[Event], place: Callable[[Event], int] = murmur2, **further: Any) -> Sample:
    records = [
        SampledRecord(json.dumps(event).encode(), str(event.get("id")).encode(), partition=place(event))
        for event in events
    ]
    records = [record._replace(**further) for record in records]
    return Sample(sorted(records, key=lambda record: record.partition), PARTITIONS)


def diagnosis(folder: Path, text: str, predictions: Sample, outcomes: Sample) -> Diagnosis:
    path = folder / "c.yaml"
    path.write_text(text, encoding="utf-8")
    config = load_config(path, environ={}, require_kafka=False)
    found = Diagnosis()
    examine(found, config, engine_settings(config), (predictions, outcomes))
    return found


def told(found: Diagnosis, level: str = "problem") -> str:
    return "\n".join(f"{finding.what} -> {finding.change}" for finding in found.findings if finding.level == level)


def test_a_sound_stream_has_no_findings(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    found = diagnosis(tmp_path, "", sample(predictions), sample(outcomes))
    assert found.findings == []
    assert found.numbers["matched_share"] == 1.0
    assert found.numbers["predictions_accepted"] == 400
    assert json.loads(json.dumps(found.document()))["sections"]["predictions"]["keys"].startswith("in 100 %, equal")


def renamed(events: list[Event], **names: str) -> list[Event]:
    return [{names.get(name, name): value for name, value in event.items()} for event in events]


def changed(events: list[Event], **values: Callable[[Any], Any]) -> list[Event]:
    return [{name: values[name](value) if name in values else value for name, value in e.items()} for e in events]


@pytest.mark.parametrize(
    ("fault", "text", "expected"),
    [
        (lambda p, o: (changed(p, ts=lambda t: t / 1000), o), "", "set events.prediction.time_unit: s"),
        (lambda p, o: (p, changed(o, ts=lambda t: t * 1000)), "", "set events.outcome.time_unit: us"),
        (lambda p, o: (changed(p, ts=lambda t: t * 1_000_000), o), "", "set events.prediction.time_unit: ns"),
        (lambda p, o: (p, changed(o, ts=lambda _: "2023-11-14T22:13:20Z")), "",
         "set events.outcome.time_unit: rfc3339"),
        (lambda p, o: (p, changed(o, ts=lambda _: "2023-11-14 22:13:20")), "", "no time zone"),
        (lambda p, o: (renamed(p, ts="created_at"), o), "", "set events.prediction.time: created_at and time_unit: ms"),
        (lambda p, o: (renamed(p, id="request"), o), "", "set events.prediction.id: request"),
        (lambda p, o: (p, renamed(o, id="ref")), "", "set events.outcome.id: ref"),
        (lambda p, o: ([{k: v for k, v in e.items() if k != "id"} for e in p], o), "", "events.prediction.id"),
        (lambda p, o: (renamed(p, score="prob"), o), "", "set events.prediction.score: prob"),
        (lambda p, o: (changed(p, score=lambda s: 100 * s), o), "", "percentages"),
        (lambda p, o: (changed(p, score=str), o), "", "written as text"),
        (lambda p, o: (p, changed(o, label=lambda y: "fraud" if y else "legit")), "",
         "set events.outcome.positive_values: [fraud] and events.outcome.negative_values: [legit]"),
        (lambda p, o: (p, changed(o, label=lambda y: "A" if y else "B")), "", "say which mean yes and no"),
        (lambda p, o: (p, renamed(o, label="clicked")), "", "set events.outcome.label: clicked"),
        (lambda p, o: (p, [e for e in o if e["label"]]), "", "set join.labels: positives_only"),
        (lambda p, o: (p, o), "join: {horizon: 5h}", "set join.horizon: 2d"),
        (lambda p, o: (p, changed(o, ts=lambda t: t - 20 * HOUR)), "", "join.skew"),
        (lambda p, o: (p, [{**e, "model": "iPhone 14"} for e in o]), "", "set events.outcome.model: null"),
        (lambda p, o: (p, o), "events: {outcome: {filter: {path: type, equals: click}}}",
         "change events.outcome.filter"),
        (lambda p, o: (changed(p, segments=lambda _: "GB"), o), "", "check the paths of events.prediction"),
        (lambda p, o: (changed(p, segments=lambda s: {**s, "country": ["GB"]}), o), "", "segments.country holds list"),
        (lambda p, o: (p, changed(o, id=lambda i: f"x{i}")), "", "only 0 % of 400 outcomes match"),
        (lambda p, o: (random.Random(1).sample(p, len(p)), o), "", "set join.out_of_order: 15m"),
    ],
)  # fmt: skip
def test_a_fault_is_a_problem_with_what_to_change(
    tmp_path: Path, fault: Callable[..., Streams], text: str, expected: str
) -> None:
    predictions, outcomes = fault(*streams())
    found = diagnosis(tmp_path, text, sample(predictions), sample(outcomes))
    assert expected in told(found)


def test_a_wire_format_read_as_json_is_recognised(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    found = diagnosis(tmp_path, "", sample(predictions, value=b"\0\0\0\0\7abc"), sample(outcomes))
    change = "set events.prediction.format: avro or protobuf (or events.format) and events.schema_registry.url"
    assert change in told(found)


def test_topics_placed_by_different_rules_are_named_with_the_rule(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    said = told(diagnosis(tmp_path, "", sample(predictions), sample(outcomes, crc32)))
    assert "of the pairs found have their events in different partitions" in said
    assert "predictions were placed by murmur2" in said
    assert "outcomes by crc32 (librdkafka's consistent_random" in said
    assert "partitioner=murmur2_random" in said


def test_keys_that_are_missing_or_other_are_the_cause_that_is_named(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    scattered = sample(predictions, lambda event: event["ts"] % PARTITIONS, key=None)
    scattered = Sample([r._replace(partition=i % PARTITIONS) for i, r in enumerate(scattered.records)], PARTITIONS)
    assert "100 % of the predictions have no key" in told(diagnosis(tmp_path, "", scattered, sample(outcomes)))
    by_user = Sample(
        [r._replace(key=b"u%d" % (i % 9), partition=i % 4) for i, r in enumerate(sample(predictions).records)], 4
    )
    assert "is not their id" in told(diagnosis(tmp_path, "", by_user, sample(outcomes)))


def test_one_partition_needs_no_key(tmp_path: Path) -> None:
    predictions, outcomes = (Sample(sample(e, key=None, partition=0).records, 1) for e in streams())
    assert diagnosis(tmp_path, "", predictions, outcomes).findings == []


def test_record_timestamps_in_seconds_are_a_problem_of_retention(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    found = diagnosis(
        tmp_path, "join: {max_future: 20000d}", sample(predictions, timestamp=T // 1000), sample(outcomes)
    )
    assert "the record timestamps of 100 % of the predictions lie before 2000" in told(found)


def test_events_past_their_record_are_explained(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    found = diagnosis(tmp_path, "", sample(predictions), sample(outcomes, timestamp=T))
    assert "rejected as future: their time is more than join.max_future after the record's own timestamp" in told(found)


def test_a_few_bad_events_are_a_warning(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    predictions[5]["score"] = "n/a"
    found = diagnosis(tmp_path, "", sample(predictions), sample(outcomes))
    assert found.problems == []
    assert "0.25 % of the predictions sampled are rejected as bad_score" in told(found, "warning")


def test_an_empty_topic_is_a_problem(tmp_path: Path) -> None:
    predictions, _ = streams()
    found = diagnosis(tmp_path, "", sample(predictions), Sample([], PARTITIONS))
    assert "the topic of the outcomes holds no records" in told(found)


def test_a_sample_that_does_not_reach_back_is_a_warning(tmp_path: Path) -> None:
    predictions, _ = streams()
    outcomes = [{"id": event["id"], "ts": event["ts"] + 1000, "label": 1} for event in predictions[:50]]
    late = Sample(sample(predictions[300:]).records, PARTITIONS, complete=False)
    found = diagnosis(tmp_path, "", late, sample(outcomes))
    assert found.problems == []
    assert "whether they match is not known" in told(found, "warning")
    assert "matched_share" not in found.numbers


# --- what the broker tells ----------------------------------------------------------------------------------


def texts(findings: Any) -> str:
    return "\n".join(f"{f.level}: {f.what} -> {f.change}" for f in findings)


def topic(settings: dict[str, str] | None = None, **further: Any) -> TopicFacts:
    facts: dict[str, Any] = {
        "name": "p",
        "partitions": 4,
        "replicas": 3,
        "settings": {"min.insync.replicas": "2"} | (settings or {}),
    }
    return TopicFacts(**(facts | further))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (topic({"retention.ms": str(HOUR)}), "problem: topic 'p' (topics.predictions) keeps records for 1h"),
        (topic({"retention.ms": str(30 * HOUR)}), "warning: topic 'p' (topics.predictions) keeps records for 30h"),
        (topic({"cleanup.policy": "compact"}), "warning: topic 'p' (topics.predictions) is compacted"),
        (topic({"min.insync.replicas": "1"}), "warning: topic 'p' (topics.predictions) has 3 replicas and min.insync"),
        (topic(replicas=1), "has one replica"),
        (topic({"max.message.bytes": "10485760"}), "rejected as too_large -> raise events.max_bytes"),
        (topic(operations=frozenset({"DESCRIBE"})), "problem: this user may not READ topic 'p' (topics.predictions)"),
        (topic(settings_untold="refused"), "grant this user DESCRIBE_CONFIGS"),
    ],
)
def test_what_is_wrong_with_an_input_topic(facts: TopicFacts, expected: str) -> None:
    assert expected in texts(input_findings(facts, "topics.predictions", 24 * HOUR, 1_048_576))


def test_a_sound_topic_has_no_findings() -> None:
    for settings in (
        {"retention.ms": "-1"},
        {"retention.ms": str(48 * HOUR)},
        {"retention.ms": "1", "cleanup.policy": "x"},
    ):
        found = list(input_findings(topic(settings), "topics.predictions", 24 * HOUR, 1_048_576))
        assert found == []
    assert not list(pair_findings(topic(), topic(name="o")))
    assert not list(group_findings(GroupFacts("g", operations=frozenset({"READ"}))))


def test_unequal_partitions_and_rights_on_the_group_are_problems() -> None:
    assert "'p' has 4 partitions and 'o' has 3" in texts(pair_findings(topic(), topic(name="o", partitions=3)))
    assert "may not READ group 'g'" in texts(group_findings(GroupFacts("g", denied=True)))
    assert "may not READ group 'g'" in texts(group_findings(GroupFacts("g", operations=frozenset({"DESCRIBE"}))))


def test_topics_of_ours_follow_the_rules_of_the_daemon() -> None:
    facts = {"p": topic(), "m": topic({"cleanup.policy": "delete"}, name="m", partitions=1)}
    said = texts(own_findings({"maps": "m", "counts": "not-there"}, facts, {"predictions": "p", "outcomes": "o"}))
    assert "problem: topic 'm' (topics.maps) has cleanup.policy=delete and needs compact" in said


# --- several classes ------------------------------------------------------------


PETS = "events: {classes: [cat, dog, cow]}"


def pets(count: int = 400) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rng = random.Random(2)
    predictions, outcomes = [], []
    for i in range(count):
        scores, at = {name: rng.random() for name in ("cat", "dog", "cow")}, T + 1000 * i
        segments = {"country": rng.choice(["GB", "NO"]), "device": "ios"}
        predictions.append({"id": f"i{i}", "ts": at, "scores": scores, "segments": segments})
        (label,) = rng.choices(list(scores), list(scores.values()))
        outcomes.append({"id": f"i{i}", "ts": at + rng.randrange(20 * HOUR), "label": label})
    return predictions, sorted(outcomes, key=lambda event: event["ts"])


def test_a_sound_stream_of_classes_has_no_findings(tmp_path: Path) -> None:
    predictions, outcomes = pets()
    found = diagnosis(tmp_path, PETS, sample(predictions), sample(outcomes))
    assert found.findings == []
    assert found.numbers["matched_share"] == 1.0
    assert found.numbers["predictions_accepted"] == 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("events: {classes: [cat, dog, sheep]}", "needs a score in [0, 1] of each"),
        ("events: {classes: [cat, dog]}", "name each class as the outcomes do in events.classes"),
    ],
)
def test_classes_under_other_names_are_told(tmp_path: Path, text: str, expected: str) -> None:
    predictions, outcomes = pets()
    assert expected in told(diagnosis(tmp_path, text, sample(predictions), sample(outcomes)))
