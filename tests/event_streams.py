"""Seeded streams of predictions and outcomes with all that goes wrong in a join, spread over partitions."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from recount_events import Event

__all__ = ["closing_events", "feeding", "produce_events", "random_events"]

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000
COUNTRIES = ("GB", "DE", "FR", "a=b,c")
DEVICES = ("ios", "web")


def random_events(count: int, partitions: int, *, seed: int, first: int = 0) -> list[Event]:
    """Twice `count` events, one minute apart per prediction: early, late, doubled, corrected, orphan ones too.

    Horizon and disorder meant: one hour and one minute.
    """
    draw = random.Random(seed)
    timed = [event for number in range(first, first + count) for event in _of_one(draw, number, partitions)]
    # Arrival order: event time with a jitter that passes the minute of disorder now and then.
    arrivals = [(value["ts"] + draw.expovariate(1 / 20_000), place) for place, (_, _, value, _) in enumerate(timed)]
    return [timed[place] for _, place in sorted(arrivals)]


def _of_one(draw: random.Random, number: int, partitions: int) -> Iterator[Event]:
    name, at_ms = f"id-{number}", START_MS + number * MINUTE_MS
    partition, score = number % partitions, draw.random()
    value: dict[str, Any] = {"id": name, "ts": at_ms, "score": score, "model": draw.choice(("a", "b"))}
    value["segments"] = {"country": draw.choice(COUNTRIES), "device": draw.choice(DEVICES)}
    if number % 3 == 0:
        value |= {"raw_score": score, "score": score * 0.7 + 0.1, "map_version": 4}
    yield "p", partition, value, at_ms
    if number % 17 == 0:
        yield "p", partition, {**value, "ts": at_ms + 5}, at_ms + 5
    known_ms = at_ms + draw.randrange(-1000 * (number % 29 == 0), 70 * MINUTE_MS)
    outcome = {"id": name if number % 23 else f"nobody-{number}", "ts": known_ms, "label": int(draw.random() < score)}
    yield "o", partition, outcome, known_ms
    if number % 13 == 0:
        later_ms = known_ms + draw.randrange(0, 10 * MINUTE_MS)
        yield "o", partition, {**outcome, "ts": later_ms, "label": draw.randrange(2)}, later_ms


def closing_events(partitions: int, at_ms: int) -> list[Event]:
    """One event per log at `at_ms` that belongs to nothing: with it all that came before is settled and inside."""
    events: list[Event] = []
    for partition in range(partitions):
        name = f"closing-{partition}-{at_ms}"
        events.append(("p", partition, {"id": name, "ts": at_ms, "score": 0.5}, at_ms))
        events.append(("o", partition, {"id": f"no-{name}", "ts": at_ms, "label": 0}, at_ms))
    return events


def produce_events(bootstrap: str, topics: dict[str, str], events: Sequence[Event]) -> None:
    """Send each event to its partition, its value as JSON (bytes as they are, None a tombstone)."""
    options = {"acks": "all", "linger_ms": 20, "batch_size": 200_000, "reconnect_backoff_max_ms": 1000}
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    try:
        sent = [
            producer.send(topics[topic], _encoded(value), key=b"-", partition=partition, timestamp_ms=timestamp)
            for topic, partition, value, timestamp in events
        ]
        producer.flush()
        for one in sent:
            one.get(timeout=60)
    finally:
        producer.close()


def _encoded(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


@contextlib.contextmanager
def feeding(bootstrap: str, topics: dict[str, str], events: Sequence[Event], folder: Path) -> Iterator[None]:
    """Produce `events` from a process of its own meanwhile: all of them are stored when the block has ended.

    Its own process, because the client leaves sockets behind when it loses its broker.
    """
    work = folder / "feed.json"
    work.write_text(json.dumps([bootstrap, topics, events]), encoding="utf-8")
    with subprocess.Popen([sys.executable, __file__, str(work)], stdin=subprocess.DEVNULL) as feeder:
        try:
            yield
        except BaseException:
            feeder.kill()
            raise
    assert feeder.returncode == 0


if __name__ == "__main__":
    produce_events(*json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
