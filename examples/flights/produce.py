"""Send the flights to Kafka as a live service would: scores through the map in force, outcomes as they become known.

python examples/flights/produce.py --bootstrap-servers localhost:9092 [--predictions T] [--outcomes T] [--maps T]

Needs streamcal installed, and both topics with the same number of partitions. Events go out in the order of their time
and as fast as they can; each record's timestamp is the time of its event, so topics that delete by age need
retention.ms=-1. With `streamcal run` beside it the scores sent become better within the first seconds.
"""

import argparse
import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from streamcal.transform import CalibratingProducer, CalibrationTransformer
from streamcal.transform.kafka_source import KafkaMapSource

SOURCE = Path(__file__).with_name("flights.csv.gz")


class EventTime:
    """A Kafka producer whose records carry the time of their event, `now_ms`, in place of the time of sending."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self.now_ms = 0

    def send(self, topic: str, *, key: bytes, value: bytes) -> Any:
        return self._producer.send(topic, key=key, value=value, timestamp_ms=self.now_ms)


def events() -> list[tuple[int, int, dict[str, str]]]:
    """Time, 0 for a prediction or 1 for an outcome, and the flight; in order of time."""
    with gzip.open(SOURCE, "rt", encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    both = [(int(row["scored_ms"]), 0, row) for row in rows] + [(int(row["known_ms"]), 1, row) for row in rows]
    return sorted(both, key=lambda event: event[:2])


def send(producer: KafkaProducer, transformer: CalibrationTransformer, predictions: str, outcomes: str) -> Counter[int]:
    """Send everything; returns how many scores went through each map version."""
    clock = EventTime(producer)
    calibrating = CalibratingProducer(clock, transformer, predictions)
    used: Counter[int] = Counter()
    for now_ms, is_outcome, row in events():
        clock.now_ms = now_ms
        if is_outcome:
            outcome = {"id": row["id"], "ts": now_ms, "label": int(row["label"])}
            clock.send(outcomes, key=row["id"].encode(), value=json.dumps(outcome).encode())
        else:
            segments = {"carrier": row["carrier"], "origin": row["origin"]}
            sent = calibrating.send(id=row["id"], score=float(row["score"]), ts_ms=now_ms, segments=segments)
            used[sent.map_version] += 1
    producer.flush()
    return used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--predictions", default="predictions")
    parser.add_argument("--outcomes", default="outcomes")
    parser.add_argument("--maps", default="streamcal.maps")
    args = parser.parse_args()
    producer = KafkaProducer(bootstrap_servers=args.bootstrap_servers, acks="all", linger_ms=20, batch_size=200_000)
    try:
        with CalibrationTransformer(KafkaMapSource(args.bootstrap_servers, args.maps)) as transformer:
            transformer.wait_caught_up(30.0)
            used = send(producer, transformer, args.predictions, args.outcomes)
    finally:
        producer.close()
    print(f"{used.total():,} predictions, {used[0]:,} of them unchanged; map versions used: {len(used.keys() - {0})}")


if __name__ == "__main__":
    main()
