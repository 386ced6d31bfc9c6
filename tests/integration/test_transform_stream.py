"""`streamcal transform` on a real broker: what it writes, what it lets pass, and what it refuses."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import wait_until
from kafka import KafkaProducer
from kafka_settings import free_ports
from prometheus_client.parser import text_string_to_metric_families
from transform_process import (
    Raw,
    TransformProcess,
    assert_each_once_in_order,
    group_position,
    produce_raw,
    publish_map,
    random_raw,
    served_by_platt,
    stored_records,
    transform_config,
)

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]
PARTITIONS = 2


def three_topics(topics: Topics, **options: Any) -> tuple[str, str, str]:
    raw, served = topics("raw", "served", partitions=PARTITIONS, **options)
    (maps,) = topics("maps", configs={"cleanup.policy": "compact"})
    return raw, served, maps


def written(kafka: str, config: dict[str, Any], count: int) -> Callable[[], bool]:
    return lambda: group_position(kafka, config, PARTITIONS) == count


POISON: list[tuple[bytes | None, str | None]] = [
    (b"no json", "malformed"),
    (b'{"score": 1.3}', "bad_score"),
    (b'{"id": "x"}', "bad_score"),
    (b'{"score": 0.5, "map_version": 9}', "without_raw"),
    (b'{"score": 0.5, "pad": "' + b"x" * 3000 + b'"}', "too_large"),
    (None, None),
    (b"", "malformed"),
]

RECORDS = "streamcal_transform_records_total"


def test_each_prediction_is_served_and_all_else_passes_as_it_came(kafka: str, topics: Topics, tmp_path: Path) -> None:
    names = three_topics(topics)
    publish_map(kafka, names[2], "a", 3)
    good = random_raw(300, PARTITIONS, seed=1)
    bad = [Raw(1, b"bad", value, (("trace", b"bad"),), 5) for value, _ in POISON]
    produce_raw(kafka, names[0], [*good, *bad])
    config = transform_config(kafka, *names)
    config["events"] = {"max_bytes": 2000}
    config["transform"]["metrics_port"] = port = free_ports(1)[0]
    total = len(good) + len(bad)
    with TransformProcess(config, tmp_path) as process:
        wait_until(lambda: process.process.poll() is not None or written(kafka, config, total)())
        # counted once they are committed, which a reader may see first
        wait_until(lambda: process.process.poll() is not None or scrape(port)[RECORDS, "tombstone"] > 0)
        scraped = scrape(port)
        assert scraped[RECORDS, "tombstone"] == 1
        assert scraped[RECORDS, "without_raw"] == 1
        assert scraped["streamcal_transform_lag", None] == 0
        assert scraped["streamcal_transformer_scores_total", None] > 0
        publish_map(kafka, names[2], "b", 8)
        # The followed topic has no clock of its own: what shows that the map is there is a score served by it.
        sent = 0
        while sent < 600 and newest_version(kafka, names[1], "b") != 8:
            sent += 1
            produce_raw(kafka, names[0], [Raw(0, b"n", b'{"score": 0.5, "model": "b"}', (), 9)])
            wait_until(written(kafka, config, total + sent))
        assert process.terminate() == 0, process.errors
        assert process.errors == ""
        stopped = process.event("stopped")
    assert stopped is not None
    assert stopped["maps"] == {"a": 3, "b": 8}
    counts = stopped["records"]
    assert sum(counts.values()) == total + sent
    reasons = [reason for _, reason in POISON if reason is not None]
    assert {reason: counts[reason] for reason in set(reasons)} == {r: reasons.count(r) for r in set(reasons)}
    assert counts["tombstone"] == 1
    assert counts["unmapped"] > 0

    found = stored_records(kafka, names[1], PARTITIONS)
    for number in range(PARTITIONS):
        wanted = [raw for raw in good if raw.partition == number]
        for raw, record in zip(wanted, found[number], strict=False):
            assert record.key == raw.key
            assert tuple(record.headers) == raw.headers
            assert record.timestamp == raw.timestamp
            assert_served(json.loads(raw.value or b""), json.loads(record.value))
    passed = found[1][-len(POISON) :]
    assert [record.value for record in passed] == [value for value, _ in POISON]
    assert [dict(record.headers).get("streamcal-unserved") for record in passed] == [
        None if reason is None else reason.encode() for _, reason in POISON
    ]
    assert all(dict(record.headers)["trace"] == b"bad" for record in passed)


def scrape(port: int) -> dict[tuple[str, str | None], float]:
    """Values by name and outcome."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(s.name, s.labels.get("outcome")): s.value for family in families for s in family.samples}


def assert_served(raw: dict[str, Any], served: dict[str, Any]) -> None:
    version, score = (3, served_by_platt(raw["score"])) if raw["model"] == "a" else (0, raw["score"])
    assert served == {
        **raw,
        "score": pytest.approx(score, rel=1e-12),
        "raw_score": raw["score"],
        "map_version": version,
    }
    assert list(served) == [*raw, "raw_score", "map_version"]


def newest_version(kafka: str, topic: str, model: str) -> int | None:
    """Map version of the last record of partition 0, if it is of `model`."""
    values = [json.loads(record.value) for record in stored_records(kafka, topic, 1)[0] if record.key == b"n"]
    return values[-1]["map_version"] if values and values[-1]["model"] == model else None


def test_a_record_with_neither_key_nor_value_passes(kafka: str, topics: Topics, tmp_path: Path) -> None:
    """The client refuses to send one unless a serializer makes it; Kafka stores it all the same."""
    from streamcal.runtime.transforming.clients import NOTHING, _Values

    names = three_topics(topics)
    producer = KafkaProducer(bootstrap_servers=kafka, value_serializer=_Values())
    producer.send(names[0], NOTHING, headers=[("a", b"1")], partition=1, timestamp_ms=7).get(timeout=60)
    producer.close()
    config = transform_config(kafka, *names)
    with TransformProcess(config, tmp_path) as process:
        wait_until(lambda: process.process.poll() is not None or written(kafka, config, 1)())
        assert process.terminate() == 0, process.errors
    (record,) = stored_records(kafka, names[1], PARTITIONS)[1]
    assert (record.key, record.value, record.headers, record.timestamp) == (None, None, [("a", b"1")], 7)


def test_a_group_that_was_killed_before_its_first_record_begins_where_it_stood(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = three_topics(topics)
    before, after = random_raw(50, PARTITIONS, seed=2), random_raw(60, PARTITIONS, seed=3, first=50)
    produce_raw(kafka, names[0], before)
    config = transform_config(kafka, *names)
    config["kafka"]["start_from"] = "latest"
    with TransformProcess(config, tmp_path) as process:
        wait_until(lambda: process.process.poll() is not None or written(kafka, config, len(before))())
        process.kill()
        produce_raw(kafka, names[0], after)
        process.start()
        wait_until(lambda: process.process.poll() is not None or written(kafka, config, len(before) + len(after))())
        assert process.terminate() == 0, process.errors
    assert_each_once_in_order(kafka, names[1], PARTITIONS, after)


def test_it_can_be_told_to_stop_at_a_record_it_cannot_serve(kafka: str, topics: Topics, tmp_path: Path) -> None:
    names = three_topics(topics)
    good = [raw._replace(partition=0) for raw in random_raw(20, PARTITIONS, seed=4)]
    produce_raw(kafka, names[0], [*good, Raw(0, b"k", b"{}", (), 1), *random_raw(5, 1, seed=5, first=20)])
    with TransformProcess(transform_config(kafka, *names, invalid="stop"), tmp_path) as process:
        assert process.wait() == 1
    assert "partition 0, offset 20: the record cannot be served: bad_score" in process.errors
    assert_each_once_in_order(kafka, names[1], PARTITIONS, good)


def test_a_record_the_output_does_not_take_ends_it_with_nothing_of_its_transaction_visible(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    (raw, maps), (served,) = topics("raw", "maps"), topics("served", configs={"max.message.bytes": "2000"})
    # More than fit into one batch there: the client splits them.
    good = random_raw(300, 1, seed=6)
    produce_raw(kafka, raw, good)
    config = transform_config(kafka, raw, served, maps)
    with TransformProcess(config, tmp_path) as process:
        wait_until(lambda: process.process.poll() is not None or group_position(kafka, config, 1) == len(good))
        assert process.process.poll() is None, process.errors
        long = Raw(0, b"k", b'{"score":0.5,"p":"' + b"x" * 4000 + b'"}', (), 1)
        produce_raw(kafka, raw, [*random_raw(5, 1, seed=7, first=300), long])
        assert process.wait() == 4
    assert "does not take records as long as the input's" in process.errors
    assert "max.message.bytes" in process.errors
    assert process.errors.count("\n") == 1
    assert_each_once_in_order(kafka, served, 1, good)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"input": None}, 2, "transform.input: is required"),
        ({"input": "same", "output": "same"}, 2, "transform.input: is the topic written to"),
        ({"output": "nowhere"}, 4, "there is no topic 'nowhere'"),
    ],
)
def test_what_it_cannot_do_is_said_before_it_begins(
    kafka: str, topics: Topics, tmp_path: Path, change: dict[str, Any], code: int, words: str
) -> None:
    config = transform_config(kafka, *topics("raw", "served", "maps"))
    config["transform"] |= change
    with TransformProcess(config, tmp_path) as process:
        assert process.wait() == code
    assert words in process.errors


def test_unequal_partition_counts_are_refused(kafka: str, topics: Topics, tmp_path: Path) -> None:
    (raw,), (served,) = topics("raw", partitions=3), topics("served", partitions=2)
    with TransformProcess(transform_config(kafka, raw, served, "no-maps"), tmp_path) as process:
        assert process.wait() == 4
    assert f"topic {raw!r} has 3 partitions and {served!r} has 2" in process.errors
