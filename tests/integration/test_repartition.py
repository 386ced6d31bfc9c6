"""Topics that are not keyed by id: refused with the way out, or written again so that every pair meets."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from daemon_process import Daemon, wait_until
from event_streams import START_MS
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.partitioner.default import murmur2
from recount import recount
from recount_events import Event, Rules
from topic_dump import read_all

from streamcal.errors import BrokerError
from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.repartition import Purge
from streamcal.runtime.repartition_purge import delete_what_was_read

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]
COUNT, PARTITIONS = 3000, 4
RULES = Rules(horizon_ms=3_600_000, out_of_order_ms=60_000, max_future_ms=300_000)


def prediction(number: int) -> dict[str, Any]:
    return {"id": f"id-{number}", "ts": START_MS + number * 1000, "score": (number % 97) / 97}


def outcome(number: int) -> dict[str, Any]:
    return {"id": f"id-{number}", "ts": START_MS + number * 1000 + 500_000, "label": int(number % 3 == 0)}


CLOSING_MS = START_MS + 100 * 3_600_000


def produce(kafka: str, names: Mapping[str, str], first: int = 0, last: int = COUNT, *, close: bool = True) -> None:
    """Predictions keyed by id, outcomes by customer, in order of time, and what closes every partition."""
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20, batch_size=200_000)
    draw = random.Random(first)
    try:
        for number in range(first, last):
            for short, value in (("p", prediction(number)), ("o", outcome(number))):
                key = value["id"] if short == "p" else f"customer-{draw.randrange(40)}"
                data = json.dumps(value).encode()
                producer.send(names[short], data, key=key.encode(), timestamp_ms=value["ts"])
        producer.flush()
        if close:
            for short, rest in (("p", {"score": 0.5}), ("o", {"label": 0})):
                for text in one_id_per_partition(f"closing-{short}"):
                    data = json.dumps({"id": text, "ts": CLOSING_MS, **rest}).encode()
                    producer.send(names[short], data, key=text.encode(), timestamp_ms=CLOSING_MS)
        producer.flush()
    finally:
        producer.close()


def one_id_per_partition(prefix: str) -> list[str]:
    """Ids that belong to nothing, one for each partition that is joined."""
    found: dict[int, str] = {}
    for number in itertools.count():
        found.setdefault(place_of(f"{prefix}-{number}"), f"{prefix}-{number}")
        if len(found) == PARTITIONS:
            break
    return list(found.values())


def place_of(text: str) -> int:
    return int((murmur2(text.encode()) & 0x7FFFFFFF) % PARTITIONS)


def config(kafka: str, names: Mapping[str, str], repartition: str) -> dict[str, Any]:
    group = f"group-{uuid4().hex[:10]}"
    return {
        "kafka": {
            "bootstrap_servers": kafka,
            "group_id": group,
            "start_from": "earliest",
            "commit_interval": "200ms",
        },
        "topics": {"predictions": names["p"], "outcomes": names["o"], "maps": f"maps-{group}"},
        "join": {"horizon": "1h", "out_of_order": "60s", "repartition": repartition},
        "windows": {"lengths": ["60d"], "time": "prediction"},
        "segments": {"cuts": []},
        "refit": {"mode": "off"},
    }


def refused(content: Mapping[str, Any], folder: Path) -> str:
    path = folder / "config.yaml"
    path.write_text(json.dumps({**content, "serve": {"port": 0}}), encoding="utf-8")
    command = [sys.executable, "-m", "streamcal", "run", "--config", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == BrokerError.exit_code, done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.fixture
def unlike(kafka: str, topics: Topics) -> dict[str, str]:
    """Predictions keyed by id in four partitions, outcomes keyed by customer in three."""
    (predictions,), (outcomes,) = topics("predictions", partitions=PARTITIONS), topics("outcomes", partitions=3)
    return {"p": predictions, "o": outcomes}


def test_without_it_topics_with_another_partition_count_or_key_are_refused_with_the_way_out(
    kafka: str, topics: Topics, unlike: dict[str, str], tmp_path: Path
) -> None:
    said = refused(config(kafka, unlike, "none"), tmp_path)
    assert f"{unlike['p']!r} has 4 partitions" in said
    assert "set join.repartition" in said
    (outcomes,) = topics("outcomes", partitions=PARTITIONS)
    produce(kafka, {"p": unlike["p"], "o": outcomes}, last=400)
    said = refused(config(kafka, {"p": unlike["p"], "o": outcomes}, "none"), tmp_path)
    assert f"{outcomes!r} is keyed by something else than its id" in said
    assert "set join.repartition: outcomes" in said


@pytest.mark.parametrize("repartition", ["outcomes", "both"])
def test_every_pair_meets_and_the_counts_are_those_of_a_recount(
    kafka: str, unlike: dict[str, str], tmp_path: Path, repartition: str
) -> None:
    settings = config(kafka, unlike, repartition)
    produce(kafka, unlike)
    with Daemon(settings, tmp_path) as daemon:
        daemon.wait_ready()
        daemon.wait_watermarks(PARTITIONS, CLOSING_MS - 60_000)
        samples = daemon.samples()
        matched = sum(value for (name, _), value in samples.items() if name == "streamcal_predictions_matched_total")
        assert matched == COUNT
        bins = daemon.counts()["default"]["segments"]["all"]["windows"]["60d"]["raw"]
        counted = {int(index): columns for index, columns in bins.items() if columns}
        assert daemon.terminate() == 0
        assert daemon.errors == ""
    group = settings["kafka"]["group_id"]
    internal = f"{group}-repartition-outcomes"
    events: list[Event] = []
    for short, topic in (("p", unlike["p"]), ("o", internal)):
        for record in read_all(kafka, topic):
            value = json.loads(record.value)
            place = place_of(value["id"])
            assert record.partition == place
            events.append((short, place, value, record.timestamp))
    assert counted == recount(events, RULES).totals(((),), "raw")["default", "all", "all"]


def test_what_is_written_again_is_what_was_there_in_order(kafka: str, unlike: dict[str, str], tmp_path: Path) -> None:
    """Three kill -9 in mid-run: nothing is missing, all is where its id belongs, in the order of its partition."""
    settings = config(kafka, unlike, "outcomes")
    settings["kafka"]["group_instance_id"] = "one"  # taken over at once, without waiting for a session to end
    internal = f"{settings['kafka']['group_id']}-repartition-outcomes"
    settings["kafka"]["consumer"] = {"max_poll_records": 200}
    step = COUNT // 3
    for round_ in range(3):
        produce(kafka, unlike, round_ * step, (round_ + 1) * step, close=False)
        with Daemon(settings, tmp_path / str(round_)) as daemon:
            daemon.wait_ready()
            wait_until(lambda d=daemon: written_again(d) > 0)
            daemon.process.kill()
            daemon.process.wait()
    produce(kafka, unlike, COUNT, COUNT)
    with Daemon(settings, tmp_path / "last") as daemon:
        daemon.wait_ready()
        daemon.wait_watermarks(PARTITIONS, CLOSING_MS - 60_000)
        assert daemon.terminate() == 0
    first_seen: dict[bytes, Any] = {}
    for record in read_all(kafka, internal):
        origin = dict(record.headers)["streamcal.origin"]
        first_seen.setdefault(origin, record)
    originals = read_all(kafka, unlike["o"])
    assert len(originals) == COUNT + PARTITIONS
    assert len(first_seen) == len(originals)
    last_of: dict[tuple[int, int], tuple[int, int]] = {}
    for record in sorted(originals, key=lambda one: (one.partition, one.offset)):
        copy = first_seen[f"{record.topic},{record.partition},{record.offset}".encode()]
        assert (copy.value, copy.key, copy.timestamp) == (record.value, record.key, record.timestamp)
        assert copy.partition == place_of(json.loads(record.value)["id"])
        path = record.partition, copy.partition
        assert last_of.get(path, (-1, -1)) < (record.offset, copy.offset)
        assert last_of.get(path, (-1, -1))[1] < copy.offset
        last_of[path] = record.offset, copy.offset


def test_offsets_that_are_gone_are_an_error_and_never_a_fresh_start(
    kafka: str, unlike: dict[str, str], tmp_path: Path
) -> None:
    settings = config(kafka, unlike, "outcomes")
    settings["kafka"]["start_from"] = "latest"
    produce(kafka, unlike, 0, 10, close=False)
    with Daemon(settings, tmp_path / "first") as daemon:
        daemon.wait_ready()
        wait_until(lambda: daemon.event("partitions to write again") is not None)
        produce(kafka, unlike, 10, 20, close=False)
        wait_until(lambda: written_again(daemon) == 10)  # none of those from before
        assert daemon.terminate() == 0
    group = f"{settings['kafka']['group_id']}-repartition"
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_groups([group])
    admin.close()
    said = refused(settings, tmp_path)
    assert f"group {group!r} has no offsets for topic {unlike['o']!r}" in said
    assert "kafka-consumer-groups --reset-offsets" in said


def test_what_the_daemon_read_is_deleted_an_hour_later(kafka: str, topics: Topics) -> None:
    (internal,) = topics("again", partitions=2)
    group = f"group-{uuid4().hex[:10]}"
    clients = KafkaClients(Kafka(bootstrap_servers=(kafka,), group_id=group))
    producer = KafkaProducer(bootstrap_servers=kafka)
    for number in range(20):
        producer.send(internal, b"%d" % number, partition=number % 2)
    producer.flush()
    producer.close()
    first, second = parts = [TopicPartition(internal, number) for number in range(2)]
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    consumer.assign(parts)
    purge = Purge()
    for minutes, committed, begins in ((0, 3, 0), (30, 7, 0), (60, 9, 3), (90, 9, 7)):
        consumer.commit({first: OffsetAndMetadata(committed, "", -1)})
        delete_what_was_read(clients, purge, parts, minutes * 60_000)
        assert consumer.beginning_offsets(parts) == {first: begins, second: 0}
    consumer.close()


def written_again(daemon: Daemon) -> float:
    return sum(value for (name, _), value in daemon.samples().items() if name == "streamcal_repartitioned_total")


def test_a_backlog_of_a_partition_that_waits_for_another_is_written_whole(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = dict(zip("po", (*topics("predictions", partitions=2), *topics("outcomes", partitions=2)), strict=True))
    producer = KafkaProducer(bootstrap_servers=kafka, linger_ms=20, batch_size=200_000)
    each = 30_000  # more than is held back of a partition
    for partition in (1, 0):
        for number in range(each):
            at = START_MS + partition * each + number
            data = b'{"id":"%d-%d","ts":%d,"label":1}' % (partition, number, at)
            producer.send(names["o"], data, key=b"customer", partition=1 - partition, timestamp_ms=at)
    producer.close()
    with Daemon(config(kafka, names, "outcomes"), tmp_path) as daemon:
        accepted = "streamcal_outcomes_accepted_total", frozenset[tuple[str, str]]()
        wait_until(lambda: daemon.samples().get(accepted) == 2 * each)
        assert daemon.terminate() == 0
        assert daemon.errors == ""
