"""Rejected events on a real broker: the original bytes and their origin, once each, before anything is committed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from daemon_process import Daemon, wait_until
from event_streams import START_MS, closing_events, produce_events, random_events
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka_broker import create_topics
from topic_dump import read_all

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]
MEGABYTE = 2**20
GOOD = {"p": {"id": "good", "ts": START_MS, "score": 0.5}, "o": {"id": "good", "ts": START_MS, "label": 1}}


def config(kafka: str, names: Mapping[str, str], letters: str | None, **further: Any) -> dict[str, Any]:
    group = f"group-{uuid4().hex[:10]}"
    return {
        "kafka": {
            "bootstrap_servers": kafka,
            "group_id": group,
            "start_from": "earliest",
            "commit_interval": "200ms",
            **further,
        },
        "topics": {"predictions": names["p"], "outcomes": names["o"], "maps": f"maps-{group}", "dead_letter": letters},
        "refit": {"mode": "off"},
    }


def of(topic: str, **fields: Any) -> bytes:
    return json.dumps({**GOOD[topic], **fields}).encode()


def bad_values(topic: str) -> list[tuple[bytes, str]]:
    """Values that no configuration takes, and the reason against each."""
    malformed = [b"", b'{"id":', b"\xff\xfe\xfd", b"\xef\xbb\xbf{}", b"\x00", b"[]", b"NaN", b'{"id":"\xc3\x28"}']
    bad: list[tuple[bytes, str]] = [(value, "malformed") for value in malformed]
    bad += [(of(topic, id=None), "missing_id"), (of(topic, id=""), "missing_id"), (of(topic, ts=None), "bad_time")]
    # Seconds, microseconds and nanoseconds where milliseconds are declared: never guessed.
    bad += [(of(topic, ts=ts), "bad_time") for ts in (START_MS // 1000, START_MS * 1000, START_MS * 10**6, 10**30)]
    bad += [(of(topic, ts=START_MS + 600_000), "future")]
    if topic == "p":
        bad += [(of(topic, score=score), "bad_score") for score in (1.7, -0.1, "0.5", True, None)]
        bad += [(b'{"id":"a","ts":1700000000000,"score":NaN}', "malformed"), (of(topic, weight=-1), "bad_weight")]
    else:
        bad += [(of(topic, label=label), "bad_label") for label in (-1, 2, "yes", None)]
    return bad


def send(kafka: str, topic: str, records: list[dict[str, Any]], **options: Any) -> list[int]:
    """Offsets."""
    producer = KafkaProducer(bootstrap_servers=kafka, **options)
    try:
        handles = [producer.send(topic, partition=0, **record) for record in records]
        producer.flush()
        return [handle.get(60).offset for handle in handles]
    finally:
        producer.close()


def value_of(daemon: Daemon, name: str, **labels: str) -> float:
    return daemon.samples().get((name, frozenset(labels.items())), 0.0)


def total(daemon: Daemon, name: str) -> float:
    return sum(value for (found, _), value in daemon.samples().items() if found == name)


def test_every_rejected_event_arrives_unchanged_with_reason_and_origin_and_once_for_both_reads(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes"), strict=True))
    letters, expected = f"dead-{uuid4().hex[:10]}", {}
    for short, topic in names.items():
        bad = bad_values(short)
        records: list[dict[str, Any]] = [
            {
                "value": value,
                "key": None if number % 3 == 0 else b"key \xff %d" % number,
                "headers": [("trace", b"\x00\xff"), ("streamcal.reason", b"theirs")] if number % 2 else [],
                "timestamp_ms": START_MS + number,
            }
            for number, (value, _) in enumerate(bad)
        ]
        # What is sound, and a tombstone, must not be there.
        sound = [{"value": of(short), "key": b"good", "timestamp_ms": START_MS}]
        sound += [{"value": None, "key": b"good", "timestamp_ms": START_MS}]
        offsets = send(kafka, topic, [*sound, *records, *sound])[2:]
        for (_, reason), record, offset in zip(bad, records, offsets, strict=False):
            expected[f"{topic},0,{offset}".encode()] = (record, reason)
    settings = config(kafka, names, letters)
    for run in ("first", "again"):  # of another group: everything is read once more, as after a lost commit
        settings["kafka"]["group_id"] = f"group-{uuid4().hex[:10]}"
        with Daemon(settings, tmp_path / run) as daemon:
            daemon.wait_ready()
            wait_until(lambda d=daemon: total(d, "streamcal_dead_letter_total") >= len(expected))
            counted = Counter(reason for _, reason in expected.values())
            wait_until(lambda d=daemon, c=counted: rejected(d, c) == c)
            assert daemon.terminate() == 0
    stored = read_all(kafka, letters)
    assert len(stored) == 2 * len(expected)
    assert {record.key for record in stored} == expected.keys()
    for record in stored:
        original, reason = expected[record.key]
        assert record.value == original["value"]
        theirs = original["headers"]
        assert record.headers[: len(theirs)] == theirs
        ours = dict(record.headers[len(theirs) :])
        topic, partition, offset = record.key.split(b",")
        stamp = str(original["timestamp_ms"]).encode()
        told = {"reason": reason.encode(), "topic": topic, "partition": partition, "offset": offset, "timestamp": stamp}
        if original["key"] is not None:
            told["key"] = original["key"]
        assert ours == {f"streamcal.{name}": value for name, value in told.items()}


def rejected(daemon: Daemon, reasons: Iterable[str]) -> dict[str, float]:
    name = "streamcal_events_rejected_total"
    roles = ("predictions", "outcomes")
    return {reason: sum(value_of(daemon, name, topic=role, reason=reason) for role in roles) for reason in reasons}


def test_an_event_of_twenty_megabytes_is_set_aside_whole(kafka: str, topics: Topics, tmp_path: Path) -> None:
    large = {"max.message.bytes": str(32 * MEGABYTE)}
    names = dict(zip("po", topics("predictions", "outcomes", configs=large), strict=True))
    letters = f"dead-{uuid4().hex[:10]}"
    value = of("p", padding="x" * 20 * MEGABYTE)
    send(kafka, names["p"], [{"value": value, "timestamp_ms": START_MS}], max_request_size=32 * MEGABYTE)
    with Daemon(config(kafka, names, letters), tmp_path) as daemon:
        daemon.wait_ready()
        wait_until(lambda: value_of(daemon, "streamcal_dead_letter_total", topic=names["p"], reason="too_large") == 1)
        assert daemon.terminate() == 0
    (stored,) = read_all(kafka, letters)
    assert stored.value == value


def test_nothing_is_committed_before_rejected_events_are_stored(kafka: str, topics: Topics, tmp_path: Path) -> None:
    names = dict(zip("po", topics("predictions", "outcomes"), strict=True))
    (letters,) = topics("dead")
    events = random_events(50, 1, seed=3)
    settings = config(kafka, names, letters)
    with Daemon(settings, tmp_path) as daemon:
        daemon.wait_ready()
        admin = KafkaAdminClient(bootstrap_servers=kafka)
        admin.delete_topics([letters])
        admin.close()
        bad: Any = ("p", 0, b"{", START_MS)
        produce_events(kafka, names, [*events, bad, *closing_events(1, START_MS + 86_400_000)])
        wait_until(lambda: daemon.event("rejected events could not be stored yet; trying again") is not None)
        # What came before it may be committed, and no more.
        bad_offset = len([event for event in events if event[0] == "p"])
        assert (committed(kafka, settings["kafka"]["group_id"], names["p"]) or 0) <= bad_offset
        assert rejected(daemon, ["malformed"]) == {"malformed": 0}
        create_topics(kafka, {letters: 1})
        wait_until(lambda: value_of(daemon, "streamcal_dead_letter_total", topic=names["p"], reason="malformed") == 1)
        wait_until(lambda: rejected(daemon, ["malformed"]) == {"malformed": 1})
        end = bad_offset + 2
        wait_until(lambda: committed(kafka, settings["kafka"]["group_id"], names["p"]) == end)
        assert daemon.terminate() == 0
    assert [record.value for record in read_all(kafka, letters)] == [b"{"]


def committed(kafka: str, group: str, topic: str) -> int | None:
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    try:
        offset: int | None = consumer.committed(TopicPartition(topic, 0))
        return offset
    finally:
        consumer.close(autocommit=False)


def test_without_a_topic_rejected_records_are_not_kept(kafka: str, topics: Topics, tmp_path: Path) -> None:
    names = dict(zip("po", topics("predictions", "outcomes"), strict=True))
    send(kafka, names["p"], [{"value": b"{", "timestamp_ms": START_MS}] * 5)
    with Daemon(config(kafka, names, None), tmp_path) as daemon:
        daemon.wait_ready()
        wait_until(lambda: rejected(daemon, ["malformed"]) == {"malformed": 5})
        assert total(daemon, "streamcal_dead_letter_total") == 0
        assert daemon.terminate() == 0


def test_letters_that_expired_while_their_topic_was_away_arrive_once_it_is_back(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes"), strict=True))
    letters = f"dead-{uuid4().hex[:10]}"
    settings = config(kafka, names, letters, producer={"request_timeout_ms": 2000, "delivery_timeout_ms": 3000})
    bad = [{"value": b"bad %d" % number, "timestamp_ms": START_MS} for number in range(20)]
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        with Daemon(settings, tmp_path) as daemon:
            daemon.wait_ready()
            send(kafka, names["p"], bad[:1])
            wait_until(lambda: total(daemon, "streamcal_dead_letter_total") == 1)
            admin.delete_topics([letters])
            wait_until(lambda: letters not in admin.list_topics())
            offsets = send(kafka, names["p"], bad[1:])
            wait_until(lambda: any("Expiring" in line.get("message", "") for line in daemon.logged))
            create_topics(kafka, {letters: 1})
            wait_until(lambda: total(daemon, "streamcal_dead_letter_total") >= len(bad))
            assert daemon.terminate() == 0
            assert daemon.errors == ""
    finally:
        admin.close()
    stored = {(record.key, record.value) for record in read_all(kafka, letters)}
    assert stored == {
        (f"{names['p']},0,{offset}".encode(), record["value"]) for offset, record in zip(offsets, bad[1:], strict=True)
    }
