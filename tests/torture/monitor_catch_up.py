"""`streamcal run` catching up after an outage of one side: its memory, and what becomes of every prediction.

A million predictions wait, two hours of them by event time. Of the outcomes the first hour is there and the second is
not: they are an hour behind when the monitor starts. Once it has read what there is, the others come, and it is killed
in the middle of them and started again. Outcomes are many times as large as predictions, so that the client brings
fewer of them in the same time. With positives only, a quarter of the predictions has an outcome and the others are
negatives, none before its time. Each mode runs twice: with the back-pressure of the product, and without it.

    python tests/torture/monitor_catch_up.py --rows 1000000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_process import wait_until
from kafka import KafkaProducer
from kafka_broker import running_broker
from torture.disturbed_streams import START_MS, StreamPlan
from torture.monitor_arena import Member, MonitorArena

from streamcal.runtime.back_pressure import AHEAD_BYTES

__all__ = ["CaughtUp", "catch_up", "expected"]

SPAN_MS = 2 * 3_600_000
"""Event time of all predictions, however many: outcomes an hour behind are half of them."""
DELAY_MS = 30_000
HORIZON_MS = 5 * 60_000
PARTITIONS = 2
LIMIT_BYTES = 600_000_000
"""Stated: the process stays below it, numpy and the client's modules included."""
NOTE = b"-" * 600
NO_LIMIT = 10**12
Sent = tuple[int, int, bytes]
"""Partition, time and value of an event."""
SIZES = ("streamcal_pending_bytes", "streamcal_pending_predictions")
COUNTERS = {
    "matched": "streamcal_predictions_matched_total",
    "expired": "streamcal_predictions_expired_total",
    "negative_at_maturity": "streamcal_predictions_negative_at_maturity_total",
    "late_outcome": "streamcal_outcomes_late_total",
}


class CaughtUp(NamedTuple):
    """What a monitor took, and how every prediction ended."""

    resident_bytes: int
    """The most of any process."""
    join_bytes: int
    """The most it said that it remembers."""
    counters: dict[str, int]
    pending: int
    """The most predictions that it said are pending."""


def expected(rows: int, labels: str) -> dict[str, int]:
    """How `rows` predictions, a multiple of eight, have to end."""
    labelled = rows if labels == "both" else rows // 4
    return {"matched": labelled, "expired": 0, "negative_at_maturity": rows - labelled, "late_outcome": 0}


def catch_up(
    bootstrap: str, folder: Path, rows: int, labels: str, *, ahead_bytes: int = AHEAD_BYTES, fetch_bytes: int = 2**20
) -> CaughtUp:
    """Let a monitor catch up with `rows` predictions; it fetches so many bytes of a partition at once."""
    plan = StreamPlan(0, PARTITIONS, 1, horizon_ms=HORIZON_MS, out_of_order_ms=10_000, labels=labels)
    with MonitorArena(bootstrap, folder, plan, {"ahead_bytes": ahead_bytes}) as arena:
        arena.config["windows"] = {"lengths": ["1h", "48h"]}
        arena.config["segments"] = {"cuts": []}
        arena.config["refit"] = {"mode": "off"}
        arena.config["kafka"]["consumer"] |= {"max_poll_records": 20_000, "max_partition_fetch_bytes": fetch_bytes}
        halves = range(rows // 2), range(rows // 2, rows)
        sent = _send(arena, "p", _predictions(rows)) + _send(arena, "o", _outcomes(halves[0], rows, labels))
        sizes: list[tuple[int, int, int]] = []
        first = arena.member("one")
        _read_up_to(arena, first, sent, sizes)
        back = _send(arena, "o", _outcomes(halves[1], rows, labels))
        _read_up_to(arena, first, sent + back // 2, sizes)
        first.kill()
        second = arena.member("one")
        sent += back + _send(arena, "p", _closing("p")) + _send(arena, "o", _closing("o"))
        _read_up_to(arena, second, sent, sizes)
        goal = expected(rows, labels)
        found: dict[str, int] = {}

        def ended() -> bool:
            found.update(_counters(second))
            return sum(found.values()) >= rows

        wait_until(ended, 60)
        assert found == goal, f"{found} and not {goal}"
        arena.stop()
    resident, remembered, pending = (max(column) for column in zip(*sizes, strict=True))
    return CaughtUp(resident, remembered, found, pending)


def _read_up_to(arena: MonitorArena, member: Member, records: int, sizes: list[tuple[int, int, int]]) -> None:
    """Watch a member until the group has read so many records."""
    last = 0.0

    def reached() -> bool:
        nonlocal last
        arena.check()
        if member.event("serving") is not None:
            samples = member.samples()
            remembered, pending = (samples.get((name, frozenset()), 0.0) for name in SIZES)
            sizes.append((_most_resident(member), int(remembered), int(pending)))
        if time.monotonic() - last < 1:  # asking the broker costs more than looking at the process
            return False
        last = time.monotonic()
        return arena.position() >= records

    wait_until(reached, 600)


def _most_resident(member: Member) -> int:
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def _counters(member: Member) -> dict[str, int]:
    samples = member.samples()
    return {
        fate: int(sum(value for (name, _), value in samples.items() if name == metric))
        for fate, metric in COUNTERS.items()
    }


def _send(arena: MonitorArena, topic: str, events: Iterable[Sent]) -> int:
    """Send events to a topic; how many."""
    producer = KafkaProducer(bootstrap_servers=arena.bootstrap, acks="all", linger_ms=50, batch_size=200_000)
    count = 0
    for partition, time_ms, value in events:
        producer.send(arena.names[topic], value, key=b"-", partition=partition, timestamp_ms=time_ms)
        count += 1
    producer.flush()
    producer.close()
    return count


def _predictions(rows: int) -> Iterator[Sent]:
    for at in range(rows):
        time_ms = START_MS + at * SPAN_MS // rows
        yield at % PARTITIONS, time_ms, b'{"id":"id-%012d","ts":%d,"score":0.%03d}' % (at, time_ms, 1 + at % 998)


def _outcomes(rows: range, of: int, labels: str) -> Iterator[Sent]:
    for at in rows:
        time_ms = START_MS + at * SPAN_MS // of + DELAY_MS
        if labels == "both" or at // PARTITIONS % 4 == 0:
            label = int(labels != "both" or at % 4 == 0)
            yield (
                at % PARTITIONS,
                time_ms,
                b'{"id":"id-%012d","ts":%d,"label":%d,"note":"%s"}' % (at, time_ms, label, NOTE),
            )


def _closing(topic: str) -> Iterator[Sent]:
    """What settles everything before it."""
    time_ms = START_MS + SPAN_MS + 86_400_000
    rest = b'"score":0.5' if topic == "p" else b'"label":0'
    for partition in range(PARTITIONS):
        yield partition, time_ms, b'{"id":"last-%s-%d","ts":%d,%s}' % (topic.encode(), partition, time_ms, rest)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; prints a line per run, 1 where one is over its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args(argv)
    over = False
    with running_broker() as broker, tempfile.TemporaryDirectory(prefix="streamcal-torture-") as folder:
        for labels in ("both", "positives_only"):
            for ahead, how in ((AHEAD_BYTES, "held back"), (NO_LIMIT, "run ahead")):
                found = catch_up(
                    broker.bootstrap, Path(folder) / f"{labels} {how}", given.rows, labels, ahead_bytes=ahead
                )
                over |= ahead == AHEAD_BYTES and found.resident_bytes >= LIMIT_BYTES
                became = ", ".join(f"{name} {count:,}" for name, count in found.counters.items())
                print(
                    f"{labels:>14}, {how}: join {found.join_bytes / 1e6:6.1f} MB, {found.pending:,} pending, process "
                    f"{found.resident_bytes / 1e6:6.1f} MB (limit {LIMIT_BYTES / 1e6:.0f}); {became}",
                    flush=True,
                )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
