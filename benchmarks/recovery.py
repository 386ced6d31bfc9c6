"""Seconds from claim to resumption with a million pending predictions, on a real Kafka; bytes they take.

    python benchmarks/recovery.py [--pending 1000000] [--partitions 4]

Predictions are read and committed by one monitor, which is then dropped as a kill would drop it; another takes over.
Seeded; needs what the tests need for a broker.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from pathlib import Path

from kafka import KafkaProducer

from streamcal.runtime.config import Config
from streamcal.runtime.logs.kafka_cluster import KafkaCluster
from streamcal.runtime.monitor import Monitor
from streamcal.runtime.monitor_wiring import monitor_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kafka_broker import create_topics, running_broker

START_MS = 1_700_000_000_000


def fill(bootstrap: str, topic: str, pending: int) -> None:
    draw = random.Random(5)
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=50, batch_size=200_000)
    for place in range(pending):
        name = f"{draw.getrandbits(128):032x}"
        event = {"id": name, "ts": START_MS + 40 * place, "score": round(draw.betavariate(1, 6), 6)}
        producer.send(topic, key=name.encode(), value=json.dumps(event).encode(), timestamp_ms=event["ts"])
    producer.close()


def until(monitor: Monitor, pending: int) -> None:
    """Read and commit until so many are pending."""
    last = time.monotonic()
    while sum(task.source.pending for task in monitor.tasks.values()) < pending:
        monitor.step(0.25)
        if time.monotonic() - last > 1:
            monitor.commit()
            last = time.monotonic()
    monitor.commit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    args = parser.parse_args()
    with running_broker() as broker:
        names = {role: f"recovery-{role}" for role in ("predictions", "outcomes", "maps")}
        inputs = {names[role]: args.partitions for role in ("predictions", "outcomes")}
        create_topics(broker.bootstrap, inputs, {"retention.ms": "-1"})
        fill(broker.bootstrap, names["predictions"], args.pending)
        group = {"bootstrap_servers": broker.bootstrap, "group_id": "recovery", "start_from": "earliest"}
        config = Config.model_validate({"kafka": group, "topics": names})
        settings = monitor_settings(config, "bench")
        first = KafkaCluster(config)
        monitor = Monitor(settings, first, time.monotonic)
        until(monitor, args.pending)
        held = sum(task.source.nbytes for task in monitor.tasks.values())
        first.close()
        del monitor
        second = KafkaCluster(config)
        monitor = Monitor(settings, second, time.monotonic)
        while not monitor.roles.recovering:
            monitor.step(0.25)
        start, cpu = time.monotonic(), time.process_time()
        while monitor.roles.recovering or len(monitor.tasks) < args.partitions:
            monitor.step(0.0)
        seconds = time.monotonic() - start
        found = sum(task.source.pending for task in monitor.tasks.values())
        second.close()
    assert found == args.pending
    print(f"{found:,} pending predictions in {args.partitions} partitions, {held / found:.0f} bytes each in memory")
    print(f"from claim to resumption: {seconds:.1f} s ({time.process_time() - cpu:.1f} s of CPU)")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"largest resident memory of both monitors together: {most:.0f} MB")


if __name__ == "__main__":
    main()
