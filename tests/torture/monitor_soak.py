"""`streamcal run` on a steady stream for longer than its horizon and windows: memory, descriptors and threads.

Horizon and windows are minutes, so that everything that is ever forgotten is forgotten many times over: predictions,
marks of them, panes, parts on the counts topic, snapshots of the state; segments come and go. The slope of the resident
memory is that of a line through the samples of the second half.

    python tests/torture/monitor_soak.py --minutes 30 --rate 1000
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka_broker import running_broker
from torture.disturbed_streams import StreamPlan
from torture.monitor_arena import Member, MonitorArena

__all__ = ["Sample", "slope_mb_per_hour", "soak"]

HORIZON_MS = 60_000
MOST_MB_PER_HOUR = 60.0
"""What a heap that only fragments may show in half an hour; what leaks with the stream shows a hundred times it."""


class Sample(NamedTuple):
    """A monitor at one moment."""

    seconds: float
    resident_mb: float
    descriptors: int
    threads: int
    kept_records: int
    """On the state and counts topics together, first to last offset of what is kept."""


def sample(arena: MonitorArena, member: Member, began: float) -> Sample:
    """Look at the process and its topics."""
    process = Path(f"/proc/{member.process.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Sample(
        time.monotonic() - began,
        int(status["VmRSS"].split()[0]) / 1024,
        len(list((process / "fd").iterdir())),
        int(status["Threads"]),
        _kept(arena),
    )


def _kept(arena: MonitorArena) -> int:
    consumer = KafkaConsumer(bootstrap_servers=arena.bootstrap, enable_auto_commit=False)
    try:
        state = arena.config["topics"]["state"]
        parts = [TopicPartition(state, number) for number in sorted(consumer.partitions_for_topic(state) or ())]
        first, last = consumer.beginning_offsets(parts), consumer.end_offsets(parts)
        return sum(last[part] - first[part] for part in parts)
    finally:
        consumer.close()


def slope_mb_per_hour(samples: Sequence[Sample]) -> float:
    """Of a line through the second half."""
    half = samples[len(samples) // 2 :]
    seconds, resident = [one.seconds for one in half], [one.resident_mb for one in half]
    return float(np.polyfit(seconds, resident, 1)[0]) * 3600


def soak(bootstrap: str, folder: Path, seconds: float, rate: float, every_s: float) -> list[Sample]:
    """Run one monitor for so long; prints a line per sample."""
    plan = StreamPlan(0, 2, 1, horizon_ms=HORIZON_MS, out_of_order_ms=2_000)
    with MonitorArena(bootstrap, folder, plan) as arena:
        arena.config["windows"] = {"lengths": ["1m", "5m"], "pane": "10s", "time": "outcome"}
        arena.config["refit"] |= {"every": "1m", "fit_window": "5m"}
        command = [sys.executable, __file__, "--feed", json.dumps([bootstrap, arena.names, rate])]
        member = arena.member("one")
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as feeder:
            try:
                arena.wait_work()
                samples, began = [], time.monotonic()
                while time.monotonic() - began < seconds:
                    time.sleep(every_s)
                    arena.check()
                    assert feeder.poll() is None, "the feeder has failed"
                    samples.append(sample(arena, member, began))
                    print(json.dumps(samples[-1]._asdict()), flush=True)
            finally:
                feeder.kill()
        arena.stop()
    return samples


def feed(bootstrap: str, names: dict[str, str], rate: float) -> None:
    """Send pairs with times of now, for ever; outcomes come within the horizon and a little beyond."""
    draw = random.Random(1)
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
    waiting: list[tuple[float, int, dict[str, Any]]] = []
    number, began = 0, time.monotonic()
    while True:
        now_ms = time.time_ns() // 1_000_000
        while number < (time.monotonic() - began) * rate:
            score = draw.random()
            device = f"d{now_ms // 30_000 % 8}-{draw.randrange(5)}"  # all of them within four minutes
            value: dict[str, Any] = {"id": f"id-{number}", "ts": now_ms, "score": score, "model": "a"}
            value["segments"] = {"country": draw.choice(("GB", "DE")), "device": device}
            producer.send(names["p"], json.dumps(value).encode(), key=b"-", partition=number % 2)
            known = now_ms + int(1.1 * HORIZON_MS * draw.random() ** 3)
            waiting.append((known, number, {"id": f"id-{number}", "ts": known, "label": int(draw.random() < score)}))
            number += 1
        for _, place, outcome in (one for one in waiting if one[0] <= now_ms):
            producer.send(names["o"], json.dumps(outcome).encode(), key=b"-", partition=place % 2)
        waiting = [one for one in waiting if one[0] > now_ms]
        time.sleep(0.1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; fails where descriptors or threads grow, or memory by more than a heap does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=1000, help="pairs a second")
    parser.add_argument("--every", type=float, default=15, help="seconds between two samples")
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.feed:
        feed(*json.loads(given.feed))
    with running_broker() as broker, tempfile.TemporaryDirectory(prefix="streamcal-torture-") as folder:
        samples = soak(broker.bootstrap, Path(folder), given.minutes * 60, given.rate, given.every)
    half = samples[len(samples) // 2 :]
    slope = slope_mb_per_hour(samples)
    descriptors, threads = ({one[place] for one in half} for place in (2, 3))
    print(f"{given.minutes:g} minutes, {given.rate:g} pairs a second, horizon 1 min, windows up to 5 min:")
    print(f"resident {half[0].resident_mb:.0f} to {half[-1].resident_mb:.0f} MB, slope {slope:+.1f} MB an hour;")
    print(f"descriptors {min(descriptors)} to {max(descriptors)}, threads {min(threads)} to {max(threads)}")
    flat = slope <= MOST_MB_PER_HOUR and half[-1].descriptors <= max(one.descriptors for one in half[: len(half) // 2])
    return 0 if flat and half[-1].threads <= max(one.threads for one in half[: len(half) // 2]) else 1


if __name__ == "__main__":
    sys.exit(main())
