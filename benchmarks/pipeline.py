"""Messages per CPU second of the whole monitor on a real Kafka, beside the same client that only polls and counts.

    python benchmarks/pipeline.py [--pairs 300000] [--rounds 5] [--profile]
    python benchmarks/pipeline.py --together 2 [--pairs 600000]

The monitor decodes, joins, counts, refits, commits a second (state and counts in their topics), aggregates, takes a
picture a second and renders it as a scrape would. The
drain is the yardstick: no program on this client can be faster. Each run is a process of its own; CPU is that of all
its threads from the first poll to the last record. With `--together` so many monitors share the partitions as one
group, each measured from the moment it has its share, beside one that has them all. Seeded; needs what the tests need
for a broker.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from streamcal.roles.aggregation import Aggregation
from streamcal.runtime.config import Config
from streamcal.runtime.logs.kafka_clients import TUNED
from streamcal.runtime.logs.kafka_cluster import KafkaCluster
from streamcal.runtime.loop import Readers
from streamcal.runtime.monitor import Monitor
from streamcal.runtime.monitor_wiring import monitor_settings
from streamcal.runtime.running import Running
from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector
from streamcal.serve.metrics import ExportSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kafka_broker import create_topics, running_broker

PARTITIONS = 4
BEHIND = 20_000
"""Predictions between one and its outcome."""
QUIET_S = 8.0
"""Without a record for so long a member of a group takes the work for done."""
STEP_MS = 20
START_MS = 1_700_000_000_000
BEST_DRAIN = ({}, {"check_crcs": False})
"""Settings tried for the drain over those of the monitor; the faster one counts."""


def values(pairs: int) -> list[tuple[str, bytes, bytes, int]]:
    """Topic role, key, value and time of every record, about 150 bytes each."""
    draw = random.Random(7)
    ids = [f"{draw.getrandbits(128):032x}" for _ in range(pairs)]
    records = []
    for place, name in enumerate(ids):
        at_ms = START_MS + place * STEP_MS
        segments = {"country": draw.choice(("GB", "DE", "FR", "US", "BR")), "device": draw.choice(("ios", "web"))}
        score = round(draw.betavariate(1, 6), 6)
        event = {"id": name, "ts": at_ms, "score": score, "model": "ctr", "segments": segments, "host": "eu-7-0042"}
        records.append(("predictions", name.encode(), json.dumps(event, separators=(",", ":")).encode(), at_ms))
        known_ms = at_ms + BEHIND * STEP_MS
        outcome = {
            "id": name,
            "ts": known_ms,
            "label": int(draw.random() < score),
            "source": "billing",
            "pad": "x" * 50,
        }
        records.append(("outcomes", name.encode(), json.dumps(outcome, separators=(",", ":")).encode(), known_ms))
    return sorted(records, key=lambda record: record[3])


def fill(bootstrap: str, names: dict[str, str], pairs: int) -> float:
    """Produce all records; returns their mean size in bytes."""
    records = values(pairs)
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=50, batch_size=200_000)
    for role, key, value, at_ms in records:
        producer.send(names[role], key=key, value=value, timestamp_ms=at_ms)
    producer.close()
    return sum(len(value) for _, _, value, _ in records) / len(records)


def drain(bootstrap: str, names: dict[str, str], total: int, settings: dict[str, Any]) -> None:
    """Poll and count."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", **TUNED, **settings)
    parts = [TopicPartition(names[role], n) for role in ("predictions", "outcomes") for n in range(PARTITIONS)]
    consumer.assign(parts)
    for part in parts:
        consumer.seek(part, 0)
    count, clock = 0, Clock()
    while count < total:
        count += sum(map(len, consumer.poll(timeout_ms=250).values()))
    clock.report(total)
    consumer.close()


def joined(bootstrap: str, names: dict[str, str], group: str) -> tuple[KafkaCluster, Monitor]:
    """A monitor of the group, with its cluster."""
    kafka = {"bootstrap_servers": bootstrap, "group_id": group, "start_from": "earliest"}
    config = Config.model_validate({"kafka": kafka, "topics": names})
    cluster = KafkaCluster(config)
    return cluster, Monitor(monitor_settings(config, "bench"), cluster, time.monotonic)


def monitor(bootstrap: str, names: dict[str, str], total: int, *, group: str, profile: bool) -> None:
    """The daemon's own loop until everything is counted and durable."""
    readers = Readers()
    process = ProcessCollector(BuildInfo("", ""), readers.readiness, readers.commits)
    exporter = Exporter(readers.holder, ExportSettings(), process)
    cluster, held = joined(bootstrap, names, group)
    running, merging = Running(held, readers, 1.0, 45.0), Merging()
    clock: list[Clock] = []
    profiler = cProfile.Profile()

    def finished() -> bool:
        """Whether all is counted; called before each step."""
        exporter.text()  # renders when there is a new picture, a second at most
        if held.tasks and not clock:
            clock.append(Clock())
            if profile:
                profiler.enable()
        latest = readers.holder.latest
        return latest is not None and sum(model.counters["matched"] for model in latest.models) >= total // 2

    running.run(finished)
    profiler.disable()
    clock[0].report(total, commit_s=readers.commits.taken().total_s, merge_s=merging.seconds)
    cluster.close()
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(40)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumulative").print_stats(60)


class Merging:
    """Times `Aggregation.follow`: figures from parts, work of the pipeline that is done, and timed, in commits."""

    def __init__(self) -> None:
        self.seconds, follow = 0.0, Aggregation.follow

        def timed(aggregation: Aggregation) -> None:
            began = time.monotonic()
            follow(aggregation)
            self.seconds += time.monotonic() - began

        Aggregation.follow = timed  # type: ignore[method-assign]


def member(bootstrap: str, names: dict[str, str], group: str, share: int) -> None:
    """One monitor of a group, until nothing more comes; counted from the moment `share` partitions are its own."""
    cluster, held = joined(bootstrap, names, group)
    running = Running(held, Readers(), 1.0, 45.0)
    began: tuple[int, Clock] | None = None
    last, rates = (0, time.monotonic()), {"cpu": 0.0, "wall": 0.0, "read": 0.0}

    def finished() -> bool:
        """Whether nothing has come for a while; called before each step."""
        nonlocal began, last, rates
        read = sum(held.read.values())
        if len(held.tasks) != share:
            began = None
        elif began is None:
            began = read, Clock()
        elif read > last[0]:
            rates = began[1].rates(read - began[0])
        if read > last[0]:
            last = read, time.monotonic()
        return bool(read) and time.monotonic() - last[1] > QUIET_S

    running.run(finished)
    print(json.dumps(rates), flush=True)
    cluster.close()


class Clock:
    """CPU of all threads of this process, and the wall clock, from now on."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def rates(self, total: int) -> dict[str, float]:
        cpu, wall = time.process_time() - self._cpu, time.monotonic() - self._wall
        return {"cpu": total / cpu, "wall": total / wall, "read": total, "seconds": wall}

    def report(self, total: int, commit_s: float = 0.0, merge_s: float = 0.0) -> None:
        rates = self.rates(total)
        shares = {"commit": commit_s / rates["seconds"], "merge": merge_s / rates["seconds"]}
        print(json.dumps(rates | shares), flush=True)


def side_by_side(args: argparse.Namespace, bootstrap: str) -> None:
    """One monitor, then several that share the work."""
    names = {role: f"bench-{role}-together" for role in ("predictions", "outcomes", "maps")}
    create_topics(bootstrap, {names[role]: PARTITIONS for role in ("predictions", "outcomes")}, {"retention.ms": "-1"})
    fill(bootstrap, names, args.pairs)
    found = {}
    for count in (1, args.together):
        options = ["--group", f"bench-{count}-{os.getpid()}", "--share", str(PARTITIONS // count)]
        command = [sys.executable, __file__, "--child", "member", "--bootstrap", bootstrap]
        command += ["--names", json.dumps(names), *options]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
        said = [process.communicate()[0].splitlines()[-1] for process in running]
        found[count] = [json.loads(line) for line in said]
    (alone,) = found[1]
    for count, members in found.items():
        for rates in members:
            told = f"{rates['read']:10,.0f} messages, {rates['cpu']:10,.0f} per CPU second"
            share = f"{rates['cpu'] / alone['cpu']:.2f} of one alone"
            print(f"one of {count}: {told}, {rates['wall']:10,.0f} per second, {share}")


def measured(
    args: argparse.Namespace, bootstrap: str, names: dict[str, str], what: str, *more: str
) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", what, "--bootstrap", bootstrap, "--names", json.dumps(names)]
    done = subprocess.run([*command, "--pairs", str(args.pairs), *more], stdout=subprocess.PIPE, check=True)
    rates: dict[str, float] = json.loads(done.stdout.splitlines()[-1])  # log lines come before
    return rates


def compare(args: argparse.Namespace, bootstrap: str) -> None:
    run = f"{time.time_ns():x}"
    names = {role: f"bench-{role}-{run}" for role in ("predictions", "outcomes", "maps")}
    inputs = {names[role]: PARTITIONS for role in ("predictions", "outcomes")}
    create_topics(bootstrap, inputs, {"retention.ms": "-1"})
    size = fill(bootstrap, names, args.pairs)
    print(f"{2 * args.pairs:,} records of {size:.0f} bytes, {PARTITIONS} partitions, outcomes {BEHIND:,} behind")
    if args.profile:
        measured(args, bootstrap, names, "monitor", "--profile")
        return
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        found.setdefault("monitor", []).append(measured(args, bootstrap, names, "monitor"))
        for settings in BEST_DRAIN:
            text = json.dumps(settings)
            found.setdefault(f"drain {text}", []).append(measured(args, bootstrap, names, "drain", "--settings", text))
    medians = {what: float(np.median([rates["cpu"] for rates in runs])) for what, runs in found.items()}
    for what, runs in found.items():
        wall = float(np.median([rates["wall"] for rates in runs]))
        share, merging = (float(np.median([rates[name] for rates in runs])) for name in ("commit", "merge"))
        told = f", {share:.1%} of the time in commits, {merging:.1%} for figures in them" if share else ""
        print(f"{what:32} {medians[what]:10,.0f} messages per CPU second, {wall:10,.0f} per second{told}")
    best = max(rate for what, rate in medians.items() if what != "monitor")
    print(f"monitor / best drain: {medians['monitor'] / best:.2f} of the messages per CPU second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="one run of the monitor under cProfile")
    parser.add_argument("--together", type=int, help="so many monitors share the work, beside one alone")
    for inner in ("--child", "--bootstrap", "--names", "--settings", "--group", "--share"):
        parser.add_argument(inner, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child == "drain":
        drain(args.bootstrap, json.loads(args.names), 2 * args.pairs, json.loads(args.settings))
    elif args.child == "monitor":
        group = f"bench-{os.getpid()}"
        monitor(args.bootstrap, json.loads(args.names), 2 * args.pairs, group=group, profile=args.profile)
    elif args.child == "member":
        member(args.bootstrap, json.loads(args.names), args.group, int(args.share))
    else:
        with running_broker() as broker:
            (side_by_side if args.together else compare)(args, broker.bootstrap)


if __name__ == "__main__":
    main()
