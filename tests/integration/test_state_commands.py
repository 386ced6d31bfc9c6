"""`streamcal state` and what a start refuses, on a real broker, against a recount."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from daemon_process import Daemon, wait_until
from event_streams import MINUTE_MS, START_MS, closing_events, produce_events, random_events
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from recount import recount
from recount_events import Rules

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]
RULES = Rules(horizon_ms=60 * MINUTE_MS, out_of_order_ms=MINUTE_MS, max_future_ms=5 * MINUTE_MS)
DAY_MS = 24 * 60 * MINUTE_MS
COUNTED = {
    "streamcal_predictions_accepted_total": "accepted_prediction",
    "streamcal_outcomes_accepted_total": "accepted_outcome",
    "streamcal_predictions_matched_total": "matched",
    "streamcal_predictions_expired_total": "expired",
    "streamcal_outcomes_late_total": "late_outcome",
    "streamcal_outcomes_orphan_total": "orphan_outcome",
}


def config_of(kafka: str, names: Mapping[str, str], **join: Any) -> dict[str, Any]:
    return {
        "kafka": {
            "bootstrap_servers": kafka,
            "group_id": f"group-{uuid4().hex[:10]}",
            "start_from": "earliest",
            "commit_interval": "200ms",
            "consumer": {"heartbeat_interval_ms": 200},
        },
        "topics": {"predictions": names["p"], "outcomes": names["o"], "maps": f"maps-{uuid4().hex[:10]}"},
        "join": {"horizon": "60m", "out_of_order": "60s"} | join,
        "windows": {"lengths": ["24h", "60d"], "time": "prediction"},
        "refit": {"mode": "off"},
    }


def state(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamcal", "state", *arguments, "--config", str(daemon.path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def wait_read(daemon: Daemon, last_ms: int) -> None:
    """Wait until every log has been read up to its event at `last_ms`."""
    daemon.wait_ready()
    daemon.wait_watermarks(2, last_ms - MINUTE_MS)


def counted(daemon: Daemon) -> dict[str, float]:
    samples = daemon.samples()
    return {name: sum(v for (metric, _), v in samples.items() if metric == name) for name in COUNTED}


def expected(truth: Any) -> dict[str, int]:
    return {metric: truth.counters[name] for metric, name in COUNTED.items()}


def refused(daemon: Daemon, code: int) -> str:
    assert daemon.process.wait(timeout=60) == code, daemon.errors
    return daemon.errors


@pytest.fixture
def names(topics: Topics) -> dict[str, str]:
    return dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))


def test_a_state_is_shown_written_out_reset_and_rebuilt(kafka: str, names: dict[str, str], tmp_path: Path) -> None:
    events = [*random_events(1000, 2, seed=21), *closing_events(2, START_MS + 10 * DAY_MS)]
    produce_events(kafka, names, events)
    config = config_of(kafka, names)
    truth = expected(recount(events, RULES))
    with Daemon(config, tmp_path / "first") as daemon:
        wait_read(daemon, START_MS + 10 * DAY_MS)
        assert counted(daemon) == truth
        report = json.loads(state(daemon, "inspect", "--json").stdout)
        assert report["members"] == 1
        done = state(daemon, "reset", "--yes")
        assert done.returncode == 1
        assert "1 process is in the group" in done.stderr
        assert daemon.terminate() == 0
    # Looking
    report = json.loads(state(daemon, "inspect", "--json").stdout)
    assert report["members"] == 0
    assert sum(sum(source["offsets"].values()) for source in report["sources"]) == len(events)
    assert all(source["unread"] == {"predictions": 0, "outcomes": 0} for source in report["sources"])
    assert sum(source["pending"] for source in report["sources"]) == recount(events, RULES).pending
    assert all("process" in source["log"]["claim"]["who"] for source in report["sources"])
    shown = state(daemon, "inspect")
    assert shown.returncode == 0, shown.stderr
    assert "partition 1\n" in shown.stdout
    assert "aggregator 0\n" in shown.stdout
    # Writing out
    out = tmp_path / "events.jsonl"
    done = state(daemon, "dump", "--out", str(out))
    assert done.returncode == 0, done.stderr
    short = {"predictions": "p", "outcomes": "o"}
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    back = [
        (
            short[line["topic"]],
            line["partition"],
            line.get("value") or {"advance": line["advance_ms"]},
            line.get("timestamp_ms"),
        )
        for line in lines
    ]
    assert expected(recount(back, RULES)) == truth
    # Beginning anew
    done = state(daemon, "rebuild", "--from", "earliest")
    assert (done.returncode, "nothing was done" in done.stderr) == (1, True)
    assert "(2 partitions) become void" in done.stdout
    done = state(daemon, "rebuild", "--from", "earliest", "--yes")
    assert done.returncode == 0, done.stderr
    with Daemon(config, tmp_path / "second") as daemon:
        wait_read(daemon, START_MS + 10 * DAY_MS)
        assert counted(daemon) == truth
        assert daemon.terminate() == 0
    assert state(daemon, "rebuild", "--from", "yesterday", "--yes").returncode == 2


def test_a_gap_is_refused_accepted_and_shown(kafka: str, names: dict[str, str], tmp_path: Path) -> None:
    first = [*random_events(300, 2, seed=22), *closing_events(2, START_MS + 700 * MINUTE_MS)]
    second = random_events(300, 2, seed=23, first=800)
    closing = closing_events(2, START_MS + 10 * DAY_MS)
    config = config_of(kafka, names)
    produce_events(kafka, names, first)
    with Daemon(config, tmp_path / "first") as daemon:
        wait_read(daemon, START_MS + 700 * MINUTE_MS)
        assert daemon.terminate() == 0
    produce_events(kafka, names, [*second, *closing])
    at = sum(event[:2] == ("p", 1) for event in first)
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_records({TopicPartition(names["p"], 1): at + 25})
    admin.close()
    with Daemon(config, tmp_path / "second") as daemon:
        said = refused(daemon, 4)
    assert re.search(rf"{names['p']}\[1\] goes on at offset {at}, the log holds {at + 25} to ", said), said
    assert "streamcal state accept-gap" in said
    done = state(daemon, "accept-gap")
    assert done.returncode == 1
    assert f"predictions[1]: offsets {at} to {at + 24} are gone, 25 records that were not counted" in done.stdout
    assert state(daemon, "accept-gap", "--yes").returncode == 0
    with Daemon(config, tmp_path / "third") as daemon:
        wait_read(daemon, START_MS + 10 * DAY_MS)
        place = iter(range(10**6))
        kept = [
            event for event in [*first, *second, *closing] if event[:2] != ("p", 1) or not at <= next(place) < at + 25
        ]
        assert counted(daemon) == expected(recount(kept, RULES))
        gap = "streamcal_windows_incomplete", frozenset({"topic": "predictions", "partition": "1"}.items())
        assert daemon.samples()[gap] == 25
        assert daemon.terminate() == 0
    assert "nothing is missing" in state(daemon, "accept-gap", "--yes").stdout


def test_what_the_state_cannot_follow_is_refused_with_the_remedy(
    kafka: str, names: dict[str, str], tmp_path: Path
) -> None:
    events = [*random_events(200, 2, seed=24), *closing_events(2, START_MS + 10 * DAY_MS)]
    produce_events(kafka, names, events)
    config = config_of(kafka, names)
    truth = expected(recount(events, RULES))
    with Daemon(config, tmp_path / "first") as daemon:
        wait_read(daemon, START_MS + 10 * DAY_MS)
        assert daemon.terminate() == 0
    with Daemon({**config, "join": {**config["join"], "horizon": "30m"}}, tmp_path / "second") as daemon:
        said = refused(daemon, 2)
    assert "join.horizon: 3600000 before, 1800000 now" in said
    assert "streamcal state rebuild" in said
    with Daemon(config, tmp_path / "third") as daemon:
        wait_read(daemon, START_MS + 10 * DAY_MS)
        assert counted(daemon) == truth
        assert daemon.terminate() == 0
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_topics([f"{config['kafka']['group_id']}-state"])
    admin.close()
    with Daemon(config, tmp_path / "fourth") as daemon:
        said = refused(daemon, 4)
    assert "it was deleted and made anew" in said
    done = state(daemon, "reset", "--yes")
    assert done.returncode == 0, done.stderr
    with Daemon(config, tmp_path / "fifth") as daemon:
        wait_read(daemon, START_MS + 10 * DAY_MS)
        assert counted(daemon) == truth
        assert daemon.terminate() == 0


def test_a_silent_partition_follows_one_that_another_process_reads(
    kafka: str, names: dict[str, str], tmp_path: Path
) -> None:
    config = config_of(kafka, names, idle_timeout="1s")

    def assigned(daemon: Daemon) -> list[int]:
        found = daemon.event("partitions assigned")
        return [] if found is None else list(found["partitions"])

    def lowest(*daemons: Daemon) -> float:
        found = [
            value
            for daemon in daemons
            for (name, _), value in daemon.samples().items()
            if name == "streamcal_watermark_timestamp_seconds"
        ]
        return min(found) if len(found) == 4 else 0.0

    with Daemon(config, tmp_path / "one") as one, Daemon(config, tmp_path / "two") as two:
        one.wait_ready()
        two.wait_ready()
        wait_until(lambda: sorted(assigned(one) + assigned(two)) == [0, 1] and len(assigned(one)) == 1)
        produce_events(kafka, names, closing_events(2, START_MS))
        sent = iter(range(1, 1000))

        def follows() -> bool:
            # A topic that is silent as a whole stands still: one partition goes on.
            more = closing_events(2, START_MS + DAY_MS + next(sent) * 1000)
            produce_events(kafka, names, [event for event in more if event[1] == 0])
            return lowest(one, two) * 1000 >= START_MS + DAY_MS - MINUTE_MS

        wait_until(follows)
        assert one.terminate() == two.terminate() == 0
        assert one.errors == two.errors == ""
    report = json.loads(state(one, "inspect", "--json").stdout)
    assert report["sources"][1]["advances"] == 2  # both logs, before one record each: the last says it all
