"""`streamcal run` on a real broker: counts equal an independent recount, whatever happens to the broker or to it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from daemon_process import Daemon, wait_until
from event_streams import MINUTE_MS, START_MS, closing_events, feeding, produce_events, random_events
from join_cases import raw_values_never_fatal
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka_broker import Broker
from recount import Recount, recount
from recount_events import Event, Rules

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]
CUTS = (("country",), ("country", "device"))
RULES = Rules(horizon_ms=60 * MINUTE_MS, out_of_order_ms=MINUTE_MS, max_future_ms=5 * MINUTE_MS)
DAY_MS = 24 * 60 * MINUTE_MS
WINDOW = "60d"


def daemon_config(kafka: str, names: Mapping[str, str], group: str | None = None) -> dict[str, Any]:
    return {
        "kafka": {
            "bootstrap_servers": kafka,
            "group_id": group or f"group-{uuid4().hex[:10]}",
            "start_from": "earliest",
            "commit_interval": "200ms",
        },
        "topics": {"predictions": names["p"], "outcomes": names["o"], "maps": f"maps-{uuid4().hex[:10]}"},
        "join": {"horizon": "60m", "out_of_order": "60s"},
        # One prediction comes a minute: a pane of an hour holds sixty, as it would of a busier stream.
        "windows": {"lengths": ["24h", WINDOW], "time": "prediction", "pane": "60m"},
        "segments": {"cuts": [list(cut) for cut in CUTS]},
        "refit": {"mode": "off"},
    }


def served_counts(document: Mapping[str, Any], window: str) -> dict[tuple[str, str, str, str], dict[int, list[int]]]:
    """Bins per (model, cut, segment, kind), without empty ones."""
    found = {}
    for model, held in document.items():
        for segment, entry in held["segments"].items():
            for kind, bins in entry["windows"].get(window, {}).items():
                if bins:
                    found[model, entry["cut"], segment, kind] = {int(b): columns for b, columns in bins.items()}
    return found


def true_counts(truth: Recount) -> dict[tuple[str, str, str, str], dict[int, list[int]]]:
    kinds = ("raw", "served")
    return {(*key, kind): bins for kind in kinds for key, bins in truth.totals(CUTS, cast("Any", kind)).items()}


def assert_equals_recount(daemon: Daemon, truth: Recount) -> None:
    assert served_counts(daemon.counts(), WINDOW) == true_counts(truth)
    samples = daemon.samples()
    totals = {
        "streamcal_predictions_accepted_total": "accepted_prediction",
        "streamcal_outcomes_accepted_total": "accepted_outcome",
        "streamcal_predictions_matched_total": "matched",
        "streamcal_predictions_expired_total": "expired",
        "streamcal_predictions_duplicate_total": "duplicate_prediction",
        "streamcal_predictions_late_total": "late_prediction",
        "streamcal_outcomes_duplicate_total": "duplicate_outcome",
        "streamcal_outcomes_revised_total": "revised_outcome",
        "streamcal_outcomes_late_total": "late_outcome",
        "streamcal_outcomes_orphan_total": "orphan_outcome",
    }
    summed = {metric: sum(v for (name, _), v in samples.items() if name == metric) for metric in totals}
    assert summed == {metric: truth.counters[counter] for metric, counter in totals.items()}
    assert samples["streamcal_pending_predictions", frozenset()] == truth.pending


def poison(partitions: int) -> list[tuple[str, int, bytes | None, int]]:
    values: list[bytes | None] = [text.encode("latin-1") for text in raw_values_never_fatal()]
    values += [b"\xff\xfe\xfd", None, b"\x00", b'"text"', b'{"id":"x","score":1.3,"label":2,"ts":1700000000000}']
    values += [b'{"id":"x","score":0.5,"label":1,"ts":1700000000000000}']
    return [(topic, number % partitions, value, START_MS) for topic in "po" for number, value in enumerate(values)]


REJECTED = {
    # of `poison`: six raw values and three further ones are no JSON objects, two have no id; both topics see each
    "malformed": 9,
    "missing_id": 2,
    "bad_time": 1,
}


def test_counts_equal_the_recount_and_poison_is_counted_by_reason(kafka: str, topics: Topics, tmp_path: Path) -> None:
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    good = random_events(1500, 2, seed=1)
    closing = closing_events(2, START_MS + 10 * DAY_MS)
    # One value of the poison is a sound prediction: its id is the number 7.
    sound: Event = ("p", 0, {"id": "7", "score": 0.5, "ts": START_MS}, START_MS)
    draw, mixed = random.Random(2), [*good, *closing]
    for bad in reversed(poison(2)):
        at = draw.randrange(0, len(good))
        if bad[0] == "p" and bad[2] is not None and b'"id":7' in bad[2]:
            at, good = 0, [sound, *good]
        mixed.insert(at, cast("Any", bad))
    produce_events(kafka, names, mixed)
    with Daemon(daemon_config(kafka, names), tmp_path) as daemon:
        daemon.wait_watermarks(2, START_MS + 10 * DAY_MS - MINUTE_MS)
        assert_equals_recount(daemon, recount([*good, *closing], RULES))
        samples = daemon.samples()
        for topic, further in (("predictions", {"bad_score": 1}), ("outcomes", {"bad_label": 2})):
            assert {
                reason: samples[
                    "streamcal_events_rejected_total", frozenset({"topic": topic, "reason": reason}.items())
                ]
                for reason in (REJECTED | further)
            } == REJECTED | further
        assert samples["streamcal_events_ignored_total", frozenset()] == 2
        assert daemon.terminate() == 0
        assert daemon.errors == ""


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_restart_in_mid_run_loses_and_repeats_nothing(
    kafka_broker: Broker, topics: Topics, tmp_path: Path, how: str
) -> None:
    kafka = kafka_broker.bootstrap
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    first, second = random_events(10_000, 2, seed=3), random_events(1000, 2, seed=4, first=10_000)
    closing = closing_events(2, START_MS + 20 * DAY_MS)
    produce_events(kafka, names, first[: len(first) // 2])
    # Small fetches, so that the broker goes while there is much to read.
    config = daemon_config(kafka, names)
    config["kafka"]["consumer"] = {"max_poll_records": 2000, "max_partition_fetch_bytes": 100_000}
    with Daemon(config, tmp_path) as daemon:
        with feeding(kafka, names, first[len(first) // 2 :], tmp_path):
            wait_until(lambda: daemon.event("partitions assigned") is not None)
            getattr(kafka_broker, how)()
            kafka_broker.start()
        produce_events(kafka, names, [*second, *closing])
        daemon.wait_watermarks(2, START_MS + 20 * DAY_MS - MINUTE_MS)
        assert_equals_recount(daemon, recount([*first, *second, *closing], RULES))
        assert daemon.terminate() == 0
        assert daemon.errors == ""


def committed(kafka: str, group: str, names: Sequence[str], partitions: int) -> tuple[dict[str, int], dict[str, int]]:
    """Group offsets and log ends per ``topic[partition]``."""
    consumer = KafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    try:
        parts = [TopicPartition(name, number) for name in names for number in range(partitions)]
        ends = consumer.end_offsets(parts)
        at = {f"{part.topic}[{part.partition}]": consumer.committed(part) or 0 for part in parts}
        return at, {f"{part.topic}[{part.partition}]": ends[part] for part in parts}
    finally:
        consumer.close()


def test_sigterm_commits_what_was_folded_and_a_restart_goes_on_from_there(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    config = daemon_config(kafka, names, group := f"group-{uuid4().hex[:10]}")
    role = {names["p"]: "predictions", names["o"]: "outcomes"}
    with (
        Daemon(config, tmp_path / "first") as daemon,
        feeding(kafka, names, random_events(20_000, 2, seed=5), tmp_path),
    ):
        daemon.wait_counted()
        assert daemon.terminate() == 0
        stopped = daemon.event("stopped")
        assert stopped is not None
    at, _ = committed(kafka, group, list(names.values()), 2)
    by_role = {f"{role[name.partition('[')[0]]}[{name.partition('[')[2]}": offset for name, offset in at.items()}
    assert by_role == stopped["read"]
    produce_events(kafka, names, closing := closing_events(2, START_MS + 50 * DAY_MS))
    with Daemon(config, tmp_path / "second") as daemon:
        daemon.wait_watermarks(2, START_MS + 50 * DAY_MS - MINUTE_MS)
        assert_equals_recount(daemon, recount([*random_events(20_000, 2, seed=5), *closing], RULES))
        assert daemon.terminate() == 0
        again = daemon.event("stopped")
        assert again is not None
    now, ends = committed(kafka, group, list(names.values()), 2)
    assert now == ends
    assert sum(again["read"].values()) == sum(ends.values()) - sum(at.values()) > 0


def test_a_maps_topic_is_made_compacted_where_there_is_none(kafka: str, topics: Topics, tmp_path: Path) -> None:
    config = daemon_config(kafka, dict(zip("po", topics("predictions", "outcomes"), strict=True)))
    with Daemon(config, tmp_path) as daemon:
        daemon.wait_ready()
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    maps = config["topics"]["maps"]
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, maps)])
    admin.close()
    assert described["topic"][maps]["cleanup.policy"]["value"] == "compact"


def test_partitions_move_to_a_second_member_and_back_and_each_record_counts_once(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    config = daemon_config(kafka, names, group := f"group-{uuid4().hex[:10]}")
    # A fast heartbeat, by which a member learns that the group has changed.
    config["kafka"]["consumer"] = {"heartbeat_interval_ms": 200}
    parts = [random_events(200, 2, seed=part, first=200 * part) for part in range(3)]
    closing = closing_events(2, START_MS + 10 * DAY_MS)

    def settled() -> bool:
        now, ends = committed(kafka, group, list(names.values()), 2)
        return now == ends

    def owned(daemon: Daemon) -> list[int]:
        assigned = daemon.event("partitions assigned")
        return [] if assigned is None else list(assigned["partitions"])

    with Daemon(config, tmp_path / "one") as one:
        produce_events(kafka, names, parts[0])
        wait_until(settled)
        with Daemon(config, tmp_path / "two") as two:
            wait_until(lambda: sorted(owned(one) + owned(two)) == [0, 1] and len(owned(one)) == 1)
            produce_events(kafka, names, parts[1])
            wait_until(settled)
            assert two.terminate() == 0
            assert two.errors == ""
        wait_until(lambda: owned(one) == [0, 1])
        produce_events(kafka, names, [*parts[2], *closing])
        one.wait_watermarks(2, START_MS + 10 * DAY_MS - MINUTE_MS)
        assert_equals_recount(one, recount([event for part in parts for event in part] + closing, RULES))
        wait_until(settled)
        assert one.terminate() == 0
        assert one.errors == ""


def members(kafka: str, group: str) -> int:
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        return len(admin.describe_groups([group])[group]["members"])
    finally:
        admin.close()


def test_a_member_that_was_thrown_out_goes_on_where_nobody_went_on(kafka: str, topics: Topics, tmp_path: Path) -> None:
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    config = daemon_config(kafka, names, group := f"group-{uuid4().hex[:10]}")
    config["kafka"]["consumer"] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    first, second = random_events(500, 2, seed=11), random_events(500, 2, seed=12, first=500)
    closing = closing_events(2, START_MS + 10 * DAY_MS)
    with Daemon(config, tmp_path) as daemon:
        produce_events(kafka, names, first)
        daemon.wait_counted()
        daemon.process.send_signal(signal.SIGSTOP)
        produce_events(kafka, names, [*second, *closing])
        wait_until(lambda: members(kafka, group) == 0)
        daemon.process.send_signal(signal.SIGCONT)
        daemon.wait_watermarks(2, START_MS + 10 * DAY_MS - MINUTE_MS)
        assert_equals_recount(daemon, recount([*first, *second, *closing], RULES))
        assert daemon.terminate() == 0
        assert daemon.errors == ""


def test_a_member_that_was_thrown_out_gives_way_where_others_went_on(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    config = daemon_config(kafka, names, group := f"group-{uuid4().hex[:10]}")
    config["kafka"]["consumer"] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
    parts = [random_events(200, 2, seed=13 + part, first=200 * part) for part in range(3)]
    closing = closing_events(2, START_MS + 10 * DAY_MS)

    def settled() -> bool:
        now, ends = committed(kafka, group, list(names.values()), 2)
        return now == ends

    with Daemon(config, tmp_path / "one") as one:
        produce_events(kafka, names, parts[0])
        wait_until(settled)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: members(kafka, group) == 0)
        with Daemon(config, tmp_path / "two") as two:
            produce_events(kafka, names, parts[1])
            wait_until(settled)
            one.process.send_signal(signal.SIGCONT)
            wait_until(lambda: members(kafka, group) == 2)
            produce_events(kafka, names, parts[2])
            wait_until(settled)
            assert two.terminate() == 0
        produce_events(kafka, names, closing)
        one.wait_watermarks(2, START_MS + 10 * DAY_MS - MINUTE_MS)
        assert_equals_recount(one, recount([event for part in parts for event in part] + closing, RULES))
        assert one.terminate() == 0
        assert one.errors == two.errors == ""
