"""Records of the state and counts topics as this release writes them, to be read by later ones.

Run as a script it writes ``tests/data/state_format_<name>``; done once per format, of the parts too, and the files are
never made anew.
What they must be read as is said by the recount, which imports nothing of the product.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from recount import COUNTERS, recount
from recount_events import Event, Rules
from simulated_cluster import OwnedLog, World
from simulated_runs import PANE_MS, events_of, expected_panes, logs_of, with_advances, world_of
from state_topics import run_to_end

from streamcal.runtime.monitor import Monitor
from streamcal.state.about import About
from streamcal.state.memory_log import MemoryCounts

__all__ = ["FOLDER", "fixture_world", "read_counts", "read_log", "rest_of_the_run"]

FOLDER = Path(__file__).parent / "data"
SEED, EVENTS = 4, 60
RULES = Rules(horizon_ms=2 * PANE_MS, skew_ms=5_000, out_of_order_ms=20_000, labels="positives_only", pane_ms=PANE_MS)
ABOUT = About(version="fixture", who="tests/state_fixtures.py", settings={"join.horizon": RULES.horizon_ms}).to_bytes()


def fixture_world(events: Sequence[Event], rules: Rules) -> World:
    """The world of these events, in which nothing goes wrong and little is a snapshot."""
    world = world_of(1, events, rules)
    world.calm = True
    world.settings = replace(world.settings, about=ABOUT, chunk_bytes=900_000, snapshot_after=10**9)
    return world


def half_way(events: Sequence[Event], rules: Rules) -> tuple[World, Monitor]:
    """Two thirds of the events read: a snapshot after one third, deltas since."""
    world = fixture_world(events, rules)
    world.logs = logs_of(events[: len(events) // 3])
    monitor = run_to_end(world).monitor
    for task in monitor.tasks.values():
        task.snapshot()
    for aggregation in monitor.aggregations.values():
        aggregation.snapshot()
    world.logs = logs_of(events[: 2 * len(events) // 3])
    return world, run_to_end(world).monitor


def rest_of_the_run(world: World, events: Sequence[Event]) -> Monitor:
    """Let a fresh process take up what `world` holds, and read all events to their end."""
    world.logs = logs_of(events)
    return run_to_end(world).monitor


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    events = events_of(SEED, RULES, EVENTS)
    world, monitor = half_way(events, RULES)
    for number, log in world.state.items():
        _write_lines(folder / f"state-{number}.jsonl.gz", ([at, _text(value)] for at, value in log.records))
    counts = ([at, _text(key), _text(value)] for at, key, value in world.counts.records)
    _write_lines(folder / "counts.jsonl.gz", counts)
    read = events[: 2 * len(events) // 3]
    truth = recount(with_advances(read, monitor), RULES)
    expected = {
        "rules": asdict(RULES),
        "events": events,
        "read": len(read),
        "advances": [event for event in with_advances(read, monitor) if "advance" in event[2]],
        "counters": {name: truth.counters[name] for name in COUNTERS},
        "pending": truth.pending,
        "watermarks": [[*log, mark] for log, mark in truth.watermarks.items()],
        "panes": [[key, values] for key, values in expected_panes(truth).items()],
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=None), encoding="utf-8")


def read_log(path: Path) -> OwnedLog:
    """One partition of the state topic."""
    log = OwnedLog()
    log.records = [(at, base64.b64decode(value)) for at, value in _lines(path)]
    log.next_offset = log.records[-1][0] + 1
    return log


def read_counts(path: Path) -> MemoryCounts:
    """The counts topic."""
    counts = MemoryCounts()
    counts.records = [
        (at, base64.b64decode(key), None if value is None else base64.b64decode(value))
        for at, key, value in _lines(path)
    ]
    counts.next_offset = counts.records[-1][0] + 1
    return counts


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _write_lines(path: Path, lines: Any) -> None:
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as out:
        for line in lines:
            out.write(json.dumps(line).encode() + b"\n")


def _lines(path: Path) -> list[Any]:
    with gzip.open(path, "rb") as stream:
        return [json.loads(line) for line in stream]


if __name__ == "__main__":
    write(FOLDER / f"state_format_{sys.argv[1]}")
