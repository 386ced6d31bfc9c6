"""Memory while catching up: a million predictions wait, and the outcomes are read an hour behind.

    python benchmarks/catch_up.py [--rows 1000000] [--ahead BYTES]

The log is in memory and makes its records as they are read, so that what is measured is the monitor: its join, its
state written every commit, its aggregator. Predictions are offered four times as fast as outcomes, so they run ahead
unless they are held back. Both label modes, each with and without back-pressure, each in a process of its own; printed
are the largest memory of the process, of the join, and what became of the predictions. With positives only a quarter of
the predictions has an outcome, and the others must be counted as negatives: none before its time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from streamcal.runtime.back_pressure import AHEAD_BYTES
from streamcal.runtime.cluster import Fetched, Part
from streamcal.runtime.config import Config
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.monitor import Monitor
from streamcal.runtime.monitor_wiring import monitor_settings
from streamcal.runtime.pacing import PacingSettings
from streamcal.state.memory_log import MemoryCounts

START_MS = 1_700_006_400_000
SPAN_MS = 2 * 3_600_000
"""Event time of all predictions, however many: outcomes an hour behind are half of them."""
DELAY_MS = 30_000
COMMIT_EVERY = 4
"""Polls between two commits: about a second's work."""
LIMIT_BYTES = 450_000_000
"""Stated: the process stays below it, numpy and the client's modules included."""


class OneTopicAhead:
    """A group of one member; polls drain predictions first, as the client drains one partition after the other."""

    parts = frozenset({("predictions", 0), ("outcomes", 0), ("counts", 0)})
    generation = 1

    def __init__(self, rows: int, counts: MemoryCounts, *, positives_only: bool) -> None:
        self.rows = rows
        self._positives_only = positives_only
        self._counts = counts
        self._next: dict[Part, int] = {}
        self._paused: set[Part] = set()

    def poll(self, timeout_s: float) -> Fetched:  # noqa: ARG002
        found = {}
        for part, most in ((("predictions", 0), 20_000), (("outcomes", 0), 5_000)):
            start = self._next.get(part)
            if start is None or part in self._paused:
                continue
            records = [self._record(part[0], at) for at in range(start, min(start + most, self.rows + 1))]
            if records:
                self._next[part] = start + len(records)
                found[part] = (records, self._next[part])
        if ("counts", 0) in self._next:
            start = self._next["counts", 0]
            held = [LogRecord(value, key=key, offset=at) for at, key, value in self._counts.since(start)]
            if held:
                self._next["counts", 0] = held[-1].offset + 1
                found["counts", 0] = (held, self._next["counts", 0])
        return found

    def _record(self, topic: str, at: int) -> LogRecord:
        time_ms = START_MS + at * SPAN_MS // self.rows
        if at == self.rows:  # the last of each log settles what came before
            time_ms, name = time_ms + 86_400_000, b"last-" + topic.encode()
        else:
            name = b"prediction-%012d" % at
        if topic == "predictions":
            return LogRecord(b'{"id":"%s","ts":%d,"score":0.%03d}' % (name, time_ms, 1 + at % 998), offset=at)
        if self._positives_only and at % 4:
            name = b"nobody-%012d" % at
        return LogRecord(b'{"id":"%s","ts":%d,"label":%d}' % (name, time_ms + DELAY_MS, at % 4 == 0), offset=at)

    def open(self, part: Part, offset: int | None) -> int:
        self._next[part] = offset or 0
        return self._next[part]

    def pause(self, parts: Sequence[Part], *, paused: bool) -> None:
        (self._paused.update if paused else self._paused.difference_update)(parts)

    def commit(self, offsets: Mapping[Part, int]) -> bool:  # noqa: ARG002
        return True

    def say(self, notes: Mapping[Part, str]) -> None:
        pass

    def said(self) -> Mapping[Part, str]:
        return {}

    def lag(self) -> Mapping[Part, int]:
        return {part: self.rows + 1 - at for part, at in self._next.items() if part[0] != "counts"}

    def close(self) -> None:
        pass


class Forgetting:
    """A partition of the state topic that keeps nothing: the broker's memory is not ours."""

    def __init__(self) -> None:
        self._next = 0

    def send(self, values: Sequence[bytes]) -> Callable[[], list[int]]:
        self._next += len(values)
        offsets = list(range(self._next - len(values), self._next))
        return lambda: offsets

    def read(self, start: int | None, stop: int) -> Iterator[tuple[int, bytes] | None]:  # noqa: ARG002
        yield from ()

    def delete_before(self, offset: int) -> None:
        pass


class InMemory:
    """Everything outside."""

    sources = shards = 1

    def __init__(self, rows: int, *, positives_only: bool) -> None:
        self.counts = MemoryCounts()
        self.group = OneTopicAhead(rows, self.counts, positives_only=positives_only)
        self._state = {number: Forgetting() for number in range(2)}
        self._authors = 0

    def state(self, number: int) -> Forgetting:
        return self._state[number]

    def new_author(self) -> bytes:
        self._authors += 1
        return str(self._authors).encode()

    def publish_maps(self, commands: Sequence[Any]) -> None:
        pass

    def published_maps(self) -> Mapping[str, Sequence[bytes]]:
        return {}

    def trim(self) -> None:
        """The broker's memory is not ours."""
        self.counts.compact()

    def close(self) -> None:
        pass


def run(rows: int, labels: str, ahead_bytes: int) -> dict[str, Any]:
    """Read everything; what was remembered at most, and what became of it."""
    config = Config.model_validate(
        {
            "join": {"labels": labels, "horizon": "5m", "out_of_order": "10s"},
            "windows": {"lengths": ["1h", "48h"]},
            "segments": {"cuts": []},
            "refit": {"mode": "off"},
        }
    )
    cluster = InMemory(rows, positives_only=labels == "positives_only")
    seconds = iter(range(10**9))
    settings = monitor_settings(config, "bench")
    pacing = PacingSettings(ahead_bytes=ahead_bytes)
    monitor = Monitor(replace(settings, pacing=pacing), cluster, lambda: next(seconds) / 1000)
    largest = polls = 0
    while any(at > 0 for at in cluster.group.lag().values()) or polls == 0:
        monitor.step(0.0)
        polls += 1
        largest = max(largest, *(task.source.nbytes for task in monitor.tasks.values()), 0)
        if polls % COMMIT_EVERY == 0:
            monitor.commit()
            cluster.trim()
    for _ in range(3):
        monitor.commit()
        monitor.step(0.0)
    (task,) = monitor.tasks.values()
    total = task.source.tally.total()
    return {
        "rows": rows,
        "labels": labels,
        "ahead_bytes": ahead_bytes,
        "join_bytes": largest,
        "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "counters": {name: total[name] for name in ("matched", "expired", "negative_at_maturity", "late_outcome")},
        "pending": task.source.pending,
    }


def main() -> int:
    """Print the runs; 1 if one is wrong or over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ahead", type=int, default=AHEAD_BYTES)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one is not None:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
        print(json.dumps(run(chosen.rows, chosen.one, chosen.ahead)))
        return 0
    wrong = False
    for labels in ("both", "positives_only"):
        for ahead in (chosen.ahead, 10**12):
            command = [sys.executable, __file__, "--one", labels, "--rows", str(chosen.rows), "--ahead", str(ahead)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            found = json.loads(done.stdout)
            counters = found["counters"]
            labelled = chosen.rows if labels == "both" else -(-chosen.rows // 4)
            ended = {
                "matched": labelled,
                "negative_at_maturity": chosen.rows - labelled,
                "expired": 0,
                "late_outcome": 0,
            }
            right = counters == ended
            fits = ahead != chosen.ahead or found["resident_bytes"] < LIMIT_BYTES
            wrong |= not (right and fits)
            held = "held back" if ahead == chosen.ahead else "run ahead"
            join, process = (found[name] / 1e6 for name in ("join_bytes", "resident_bytes"))
            became = ", ".join(f"{name} {count:,}" for name, count in counters.items())
            verdict = "" if right and fits else "  WRONG"
            print(
                f"{labels:>14}  {held}: join {join:6.1f} MB, process {process:6.1f} MB "
                f"(limit {LIMIT_BYTES / 1e6:.0f}), {became}{verdict}",
                flush=True,
            )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
