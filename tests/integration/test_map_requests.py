"""Requests through `streamcal maps` to a daemon on a real broker: what was told of as done survives it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from daemon_process import Daemon, wait_until
from event_streams import MINUTE_MS, produce_events
from kafka import KafkaConsumer
from recount_events import Event

pytestmark = pytest.mark.kafka

START_MS = 1_700_006_400_000
HOUR = 60


def hours(first: int, count: int, *, offset: float) -> list[Event]:
    """A prediction a minute whose outcome follows a minute later; the scores' logits are too low by `offset`."""
    draw = random.Random(first)
    events: list[Event] = []
    for minute in range(first * HOUR, (first + count) * HOUR):
        at_ms = START_MS + minute * MINUTE_MS
        x = draw.gauss(-0.5, 1.0)
        score, true = (1 / (1 + 2.718281828 ** -(x + shift)) for shift in (0.0, offset))
        label = int(draw.random() < true)
        events.append(("p", 0, {"id": f"i{minute}", "ts": at_ms, "score": score}, at_ms))
        events.append(("o", 0, {"id": f"i{minute}", "ts": at_ms + MINUTE_MS - 1, "label": label}, at_ms + MINUTE_MS))
    return events


class Commands:
    """The command line, as an operator uses it."""

    def __init__(self, daemon: Daemon, url: str) -> None:
        self._config, self.url = str(daemon.path), url

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = ("--config", self._config, "--url", self.url)
        command = [sys.executable, "-m", "streamcal", "maps", *arguments, *where]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60
        )

    def done(self, *arguments: str) -> str:
        said = self(*arguments)
        assert (said.returncode, said.stderr) == (0, ""), said
        return said.stdout


def url_of(daemon: Daemon) -> str:
    daemon.wait_ready()
    served = daemon.event("serving")
    assert served is not None
    return str(served["url"])


def maps_of(daemon: Daemon) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(daemon.get("/api/v1/maps?model=default"))
    return told


def wait_hours(daemon: Daemon, count: int) -> None:
    """Wait until event time has come to the end of so many hours, and is shown."""
    until_ms = START_MS + (count * HOUR - 3) * MINUTE_MS

    def come() -> bool:
        return (json.loads(daemon.get("/api/v1/status"))["event_time_ms"] or 0) >= until_ms

    wait_until(come)


def published(kafka: str, topic: str) -> list[dict[str, Any]]:
    consumer = KafkaConsumer(topic, bootstrap_servers=kafka, auto_offset_reset="earliest", consumer_timeout_ms=2000)
    try:
        return [json.loads(record.value) for record in consumer]
    finally:
        consumer.close()


def config_of(kafka: str, names: dict[str, str], token: Path) -> dict[str, Any]:
    return {
        "kafka": {
            "bootstrap_servers": kafka,
            "group_id": f"group-{uuid4().hex[:10]}",
            "start_from": "earliest",
            "commit_interval": "200ms",
            "consumer": {"session_timeout_ms": 6000},  # a killed member is missed sooner
        },
        "topics": {"predictions": names["p"], "outcomes": names["o"], "maps": f"maps-{uuid4().hex[:10]}"},
        "join": {"horizon": "60m", "out_of_order": "60s"},
        "segments": {"cuts": []},
        "refit": {"every": "1h", "fit_window": "7d", "min_count": 20, "families": ["platt", "cir"]},
        "maps": {"cut_offs": [0.5]},
        "serve": {"admin_token_file": str(token)},
    }


def test_what_an_operator_asks_is_done_told_kept_and_survives_the_daemon(
    kafka: str, topics: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes"), strict=True))
    token = tmp_path / "token"
    token.write_text("f3b1c2d4e5a69788\n", encoding="ascii")
    config = config_of(kafka, names, token)
    produce_events(kafka, names, hours(0, 24, offset=1.2))
    with Daemon(config, tmp_path / "first") as daemon:
        maps = Commands(daemon, url_of(daemon))
        wait_hours(daemon, 24)
        before = maps_of(daemon)["champion"]["version"]
        said = maps("refit", "--who", "ada", "--why", "first look")
        assert (said.returncode == 0) == (maps_of(daemon)["champion"]["version"] > before), said
        assert said.returncode == 0 or "refused: " in said.stderr
        before = maps_of(daemon)["champion"]["version"]
        shown = maps.done("promote", "--family", "cir", "--who", "ada", "--why", "bends at the top", "--yes")
        assert "share at or above 0.5" in shown
        assert shown.endswith(f"default: promote: done, version {before + 1}\n")
        assert f"done, version {before + 2}\n" in maps.done("rollback", "--who", "bob", "--why", "too bent")
        assert maps.done("pin", "--who", "bob", "--why", "inquiry") == "default: pin: done, pinned\n"
        # What was told of as done is in the topic before anybody is told.
        versions = {document["version"]: document for document in published(kafka, config["topics"]["maps"])}
        assert max(versions) == before + 2
        assert versions[before + 2]["parameters"] == versions[before]["parameters"]
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
    said = maps("list")
    assert (said.returncode, "this is what the maps topic holds" in said.stderr) == (0, True)
    assert f" {before + 2} " in said.stdout
    produce_events(kafka, names, hours(24, 12, offset=-1.0))
    with Daemon(config, tmp_path / "second") as daemon:
        maps = Commands(daemon, url_of(daemon))
        wait_hours(daemon, 36)
        told = maps_of(daemon)
        # The labels have turned, and nothing has changed by itself.
        assert (told["pinned"], told["champion"]["version"]) == (True, before + 2)
        newest = told["maps"][0]
        assert (newest["reason"], newest["promoted"]) == ("pinned", False)
        assert newest["attempts"] >= 10
        asked = [(e["reason"], e["who"], e["why"]) for e in reversed(told["maps"]) if e["trigger"] == "manual"]
        assert asked[-3:] == [
            ("", "ada", "bends at the top"),
            ("rollback", "bob", "too bent"),
            ("pin", "bob", "inquiry"),
        ]
        row = json.loads(maps.done("list", "--json"))
        assert (row["version"], row["by"], row["pinned"]) == (
            str(before + 2),
            "bob (rolled back): too bent",
            "yes, by bob: inquiry",
        )
        assert maps.done("unpin", "--who", "ada") == "default: unpin: done, unpinned\n"
        assert daemon.terminate() == 0
        assert daemon.errors == ""


def test_a_process_that_does_not_aggregate_names_the_one_that_does(
    kafka: str, topics: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    names = dict(zip("po", topics("predictions", "outcomes", partitions=2), strict=True))
    token = tmp_path / "token"
    token.write_text("f3b1c2d4e5a69788\n", encoding="ascii")
    config = config_of(kafka, names, token)
    events = hours(0, 2, offset=0.0)
    # One partition for each process; a process without any has nothing to be asked for.
    produce_events(kafka, names, events + [(topic, 1, value, at_ms) for topic, _, value, at_ms in events])
    with Daemon(config, tmp_path / "one") as one:
        wait_hours(one, 2)
        with Daemon(config, tmp_path / "other") as other:

            def apart() -> bool:
                status = [json.loads(daemon.get("/api/v1/status")) for daemon in (one, other)]
                assigned = [daemon.event("partitions assigned") for daemon in (one, other)]
                if sum(held["sequence"] > 0 for held in status) != 1 or None in assigned:
                    return False
                # whoever has just taken over shows no model before it has read the counts
                return any(held["models"] for held in status)

            url_of(other)
            wait_until(apart)
            shows = {json.loads(daemon.get("/api/v1/status"))["sequence"] > 0: daemon for daemon in (one, other)}
            said = Commands(shows[False], url_of(shows[False]))("pin", "--why", "x")
            assert said.returncode == 10
            assert "does not aggregate" in said.stderr
            assert "the group's aggregator is streamcal on 127.0.0.1" in said.stderr
            assert Commands(shows[True], url_of(shows[True])).done("pin", "--why", "x")
