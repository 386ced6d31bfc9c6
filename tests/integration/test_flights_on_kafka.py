"""The year of flights through a real Kafka: `run` in one process, a transformer producer in another.

What the daemon counts equals, to the bit, independent recounts of the table itself and of a dump of both topics; what
it exports equals the report of a replay of that dump.
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from daemon_process import Daemon, Samples
from event_streams import closing_events, produce_events
from kafka import KafkaConsumer, TopicPartition
from kafka_broker import create_topics
from recount_counts import bin_of, plain_columns
from recount_vectors import count_rows, row_columns_of

from streamcal.maps.document import decode
from streamcal.runtime.config import Config, load_config
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.serve.metrics import FIGURES

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Topics = Callable[..., tuple[str, ...]]
FLIGHTS = Path(__file__).parents[2] / "examples" / "flights"
PARTITIONS = 4
WHOLE_YEAR = "400d"
CLOSING_MS = 1_388_800_000_000  # 2014-01-04: more than a horizon after the last flight
N, POSITIVES = 300_948, 71_629  # of the table


@dataclass(frozen=True)
class Run:
    """What was left when the daemon had read everything."""

    config: Config
    counts: dict[str, Any]
    samples: Samples
    topics: dict[str, dict[int, list[Any]]]
    """Records per topic role and partition."""
    maps: list[bytes]
    dump: Path


def flights_config(**further: Any) -> dict[str, Any]:
    return {
        "join": {"horizon": "24h"},
        "windows": {"time": "prediction", "lengths": ["24h", WHOLE_YEAR], "pane": "15m"},
        "segments": {"cuts": [["carrier"], ["carrier", "origin"]]},
        "metrics": {"export": "full"},
        **further,
    }


def read_topic(kafka: str, topic: str) -> dict[int, list[Any]]:
    """All records per partition."""
    consumer = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False, metrics_enabled=False)
    try:
        parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: dict[int, list[Any]] = {part.partition: [] for part in parts}
        while any(consumer.position(part) < ends[part] for part in parts):
            for part, records in consumer.poll(timeout_ms=1000, max_records=20_000).items():
                found[part.partition] += records
        return found
    finally:
        consumer.close()


def write_dump(path: Path, topics: Mapping[str, Mapping[int, Sequence[Any]]]) -> None:
    """An events file for `replay`: every record of every log, each log in its own order."""
    with path.open("wb") as file:
        for topic, logs in topics.items():
            for number, records in logs.items():
                head = b'{"topic":"%s","partition":%d,"timestamp_ms":' % (topic.encode(), number)
                file.writelines(head + b'%d,"value":%s}\n' % (record.timestamp, record.value) for record in records)


@pytest.fixture(scope="module")
def streamed(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, run = tmp_path_factory.mktemp("flights"), uuid4().hex[:10]
    names = {"predictions": f"predictions-{run}", "outcomes": f"outcomes-{run}", "maps": f"maps-{run}"}
    # Records are as old as the flights: by default the broker would delete them for their age.
    create_topics(kafka, {names[role]: PARTITIONS for role in ("predictions", "outcomes")}, {"retention.ms": "-1"})
    config = flights_config(
        kafka={"bootstrap_servers": kafka, "group_id": f"flights-{run}", "start_from": "earliest"}, topics=names
    )
    with Daemon(config, folder) as daemon:
        daemon.wait_ready()
        produce = [sys.executable, str(FLIGHTS / "produce.py"), "--bootstrap-servers", kafka]
        produce += [part for role, name in names.items() for part in (f"--{role}", name)]
        subprocess.run(produce, check=True, stdin=subprocess.DEVNULL, timeout=300)
        roles = {"p": names["predictions"], "o": names["outcomes"]}
        produce_events(kafka, roles, closing_events(PARTITIONS, CLOSING_MS))
        daemon.wait_watermarks(PARTITIONS, CLOSING_MS - 60_000, timeout_s=600)
        counts, samples = daemon.counts(), daemon.samples()
        assert daemon.terminate() == 0
        assert daemon.errors == ""
    topics = {role: read_topic(kafka, names[role]) for role in ("predictions", "outcomes")}
    maps = [record.value for record in read_topic(kafka, names["maps"])[0]]
    write_dump(folder / "dump.jsonl", topics)
    quiet = folder / "replay.yaml"
    quiet.write_text(json.dumps(flights_config(refit={"mode": "off"})), encoding="utf-8")
    return Run(
        load_config(quiet, environ={}, require_kafka=False), counts, samples, topics, maps, folder / "dump.jsonl"
    )


def of_window(document: Mapping[str, Any], window: str, kind: str) -> dict[str, dict[int, list[int]]]:
    """Bins per segment."""
    segments = document["default"]["segments"]
    return {
        segment: {int(index): columns for index, columns in entry["windows"][window][kind].items()}
        for segment, entry in segments.items()
        if entry["windows"].get(window, {}).get(kind)
    }


def groups_of(flights: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Segment key of every flight in each cut."""
    return {
        "all": ["all"] * len(flights),
        "carrier": [f"carrier={flight['carrier']}" for flight in flights],
        "carrier,origin": [f"carrier={flight['carrier']},origin={flight['origin']}" for flight in flights],
    }


def test_the_counts_of_many_rows_are_those_of_single_ones() -> None:
    draw = np.random.default_rng(5)
    p, y = np.concatenate([draw.random(2000), [0.0, 1.0, 1e-9, 0.5]]), draw.integers(0, 2, 2004)
    bins, columns = row_columns_of(p, y)
    for score, label, index, row in zip(p.tolist(), y.tolist(), bins.tolist(), columns.tolist(), strict=True):
        assert (index, row) == (bin_of(score), plain_columns(score, label))


def test_raw_counts_equal_a_recount_of_the_table_to_the_bit(streamed: Run) -> None:
    with gzip.open(FLIGHTS / "flights.csv.gz", "rt", encoding="utf-8", newline="") as table:
        flights = list(csv.DictReader(table))
    scores = np.array([float(flight["score"]) for flight in flights])
    labels = np.array([int(flight["label"]) for flight in flights])
    assert (len(labels), labels.sum()) == (N, POSITIVES)
    truth = count_rows(scores, labels, groups_of(flights))
    assert len(truth) == 1 + 16 + 35
    assert of_window(streamed.counts, WHOLE_YEAR, "raw") == truth
    assert of_window(streamed.counts, "all", "raw") == {"all": truth["all"]}


@pytest.mark.parametrize(("kind", "field"), [("raw", "raw_score"), ("served", "score")])
def test_counts_equal_a_recount_of_the_dump_to_the_bit(streamed: Run, kind: str, field: str) -> None:
    read = msgspec.json.Decoder().decode
    labels = {
        outcome["id"]: outcome["label"]
        for records in streamed.topics["outcomes"].values()
        for outcome in (read(record.value) for record in records)
    }
    rows = [
        row
        for records in streamed.topics["predictions"].values()
        for row in (read(record.value) for record in records)
        if row["id"] in labels
    ]
    assert len(rows) == N
    truth = count_rows(
        np.array([row[field] for row in rows]),
        np.array([labels[row["id"]] for row in rows]),
        groups_of([row["segments"] for row in rows]),
    )
    assert of_window(streamed.counts, WHOLE_YEAR, kind) == truth


def test_scraped_gauges_equal_the_report_of_the_dump(streamed: Run) -> None:
    result = replay(streamed.config, ReplayOptions(events=streamed.dump, apply=False))
    assert result.pending == streamed.samples["streamcal_pending_predictions", frozenset()] == PARTITIONS
    compared = 0
    for segment, held in result.models["default"].segments.items():
        cut = ",".join(part.partition("=")[0] for part in segment.split(","))
        for kind, figures in held["windows"].get(WHOLE_YEAR, {}).items():
            labels = {"model": "default", "cut": cut, "segment": segment, "window": WHOLE_YEAR, "score_kind": kind}
            scraped = {
                name: streamed.samples.get((metric, frozenset(labels.items()))) for name, (metric, _) in FIGURES.items()
            }
            assert scraped == {name: figures.get(name) for name in FIGURES}
            compared += sum(value is not None for value in scraped.values())
    assert compared > 52 * 2 * 15


def test_served_scores_come_from_the_map_they_name(streamed: Run) -> None:
    maps = {document.version: document.to_map() for document in map(decode, streamed.maps)}
    read = msgspec.json.Decoder().decode
    used = set()
    for records in streamed.topics["predictions"].values():
        for record in records[:-1]:  # the last one is a closing event
            value = read(record.value)
            if (version := value["map_version"]) not in used:
                used.add(version)
                raw = value["raw_score"]
                assert value["score"] == (maps[version].apply_one(raw) if version else raw)
    assert len(used - {0}) >= 1
    assert used - {0} <= maps.keys()
