"""`streamcal transform` beside a bare consume-and-produce loop of the same client: messages per CPU second.

Both read the same topic of predictions and write each record to the same partition of another. The bare loop copies
bytes, without transactions, groups or offsets: it is what the client itself costs, and the most anyone can have with
it. Each runs in a process of its own; its CPU time is that of the whole process less what the same process takes on
an empty topic. A ratio of 1 would mean that serving and exactly-once are free.

    python benchmarks/transform_stream.py --messages 200000
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka_broker import create_topics, running_broker
from transform_process import group_position, produce_raw, publish_map, random_raw, stored_records, transform_config

PARTITIONS = 4
SHARED = {"metrics_enabled": False}


def bare(bootstrap: str, source: str, target: str, count: int) -> None:
    """Copy `count` records."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=5_000,
        max_partition_fetch_bytes=4 * 1024 * 1024,
        **SHARED,
    )
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", batch_size=256 * 1024, linger_ms=100, **SHARED)
    consumer.assign([TopicPartition(source, number) for number in range(PARTITIONS)])
    done = 0
    while done < count:
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                producer.send(
                    target,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
            done += len(records)
        producer.flush()
    producer.close()
    consumer.close()


def run(command: list[str], finished: Callable[[], bool] | None) -> float:
    """CPU seconds of a process; it ends by itself, or by SIGTERM once `finished`."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if finished is not None:
        while not finished():
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


class Bench:
    """One broker, one full and one empty topic."""

    def __init__(self, bootstrap: str, folder: Path, count: int) -> None:
        self.bootstrap, self.folder, self.count = bootstrap, folder, count
        self.runs = 0
        create_topics(bootstrap, {"raw": PARTITIONS, "empty": PARTITIONS, "maps": 1})
        for model in ("a", "b"):
            publish_map(bootstrap, "maps", model, 1)
        produce_raw(bootstrap, "raw", random_raw(count, PARTITIONS, seed=1))

    def target(self) -> str:
        """A new topic to write to."""
        self.runs += 1
        create_topics(self.bootstrap, {f"out-{self.runs}": PARTITIONS})
        return f"out-{self.runs}"

    def bare(self, source: str, count: int) -> float:
        """CPU seconds of the bare loop."""
        target = self.target()
        used = run([sys.executable, __file__, "--bare", self.bootstrap, source, target, str(count)], None)
        self.check(target, count)
        return used

    def transform(self, source: str, count: int) -> float:
        """CPU seconds of the command."""
        target = self.target()
        config: dict[str, Any] = transform_config(self.bootstrap, source, target, "maps")
        path = self.folder / f"{target}.yaml"
        path.write_text(json.dumps(config), encoding="utf-8")
        command = [sys.executable, "-m", "streamcal", "transform", "--config", str(path)]
        started = time.monotonic()
        used = run(
            command,
            lambda: group_position(self.bootstrap, config, PARTITIONS) == count and time.monotonic() - started > 6,
        )
        self.check(target, count)
        return used

    def check(self, target: str, count: int) -> None:
        """All of it must have been written."""
        found = sum(map(len, stored_records(self.bootstrap, target, PARTITIONS).values()))
        if found != count:
            raise SystemExit(f"{target} holds {found} of {count} records")


def main() -> None:
    """Run both, alternately, and print the rates and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bare", nargs=4, metavar=("BROKER", "SOURCE", "TARGET", "COUNT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        bare(*given.bare[:3], int(given.bare[3]))
        return
    with running_broker() as broker, tempfile.TemporaryDirectory(prefix="streamcal-bench-") as folder:
        bench = Bench(broker.bootstrap, Path(folder), given.messages)
        idle_bare, idle = bench.bare("empty", 0), bench.transform("empty", 0)
        ratios = []
        for _ in range(given.repeats):
            theirs = given.messages / (bench.bare("raw", given.messages) - idle_bare)
            ours = given.messages / (bench.transform("raw", given.messages) - idle)
            ratios.append(ours / theirs)
            print(
                f"bare loop {theirs:8,.0f} messages/CPU s   transform {ours:8,.0f}   ratio {ours / theirs:.2f}",
                flush=True,
            )
        print(f"transform / bare loop: median ratio {sorted(ratios)[len(ratios) // 2]:.2f} of {given.repeats} runs")


if __name__ == "__main__":
    main()
