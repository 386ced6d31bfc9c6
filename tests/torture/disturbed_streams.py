"""Predictions and outcomes with everything that goes wrong in a join, in quantity; and a feeder in its own process.

Of each of the kinds named in `KINDS` there is at least one in twenty pairs; `shares` counts them in a recount.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Any, Self

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kafka import KafkaProducer
from recount import Recount
from recount_events import Event, Rules

__all__ = ["START_MS", "Feeder", "StreamPlan", "closing", "disturbed_events", "shares"]

START_MS = 1_699_999_200_000
"""A full UTC hour."""
MINUTE_MS = 60_000
COUNTRIES = ("GB", "DE", "FR", "a=b,c")
DEVICES = ("ios", "web")
DRIFT = (0.6, 0.9, 0.6, 0.2)
"""Logit by which labels are off the scores in each quarter: enough to alarm, small enough for a map to follow."""
BLOCK = 500
"""Records the feeder sends at a time."""


@dataclass(frozen=True)
class StreamPlan:
    """What a stream is made of.

    Attributes
    ----------
    pairs : int
    gap_ms : int
        Event time between two predictions.
    """

    pairs: int
    partitions: int
    seed: int
    gap_ms: int = 500
    horizon_ms: int = 10 * MINUTE_MS
    out_of_order_ms: int = 30_000
    labels: str = "both"

    @property
    def rules(self) -> Rules:
        """As the recount takes them."""
        return Rules(
            horizon_ms=self.horizon_ms,
            out_of_order_ms=self.out_of_order_ms,
            labels="both" if self.labels == "both" else "positives_only",
            max_future_ms=5 * MINUTE_MS,
        )

    @property
    def end_ms(self) -> int:
        """When the last prediction is made."""
        return START_MS + self.pairs * self.gap_ms


def disturbed_events(plan: StreamPlan) -> list[Event]:
    """Events in their order of arrival; scores are over-confident, and too low by more or less, by country too."""
    draw = random.Random(plan.seed)
    arriving: list[tuple[float, int, Event]] = []
    for number in range(plan.pairs):
        for delay_ms, event in _of_one(draw, number, plan):
            arriving.append((event[2]["ts"] + delay_ms, len(arriving), event))
    return [event for *_, event in sorted(arriving, key=lambda entry: entry[:2])]


def _of_one(draw: random.Random, number: int, plan: StreamPlan) -> Iterator[tuple[float, Event]]:
    """Events of one pair, and how much later than their own time each arrives."""
    at, partition, late = START_MS + number * plan.gap_ms, number % plan.partitions, number * 2 > plan.pairs
    logit = draw.gauss(-0.5, 1.8)
    score = 1 / (1 + exp(-logit))
    value: dict[str, Any] = {"id": f"id-{number}", "ts": at, "score": score, "model": draw.choice(("a", "b"))}
    country = draw.choice(COUNTRIES)
    value["segments"] = {"country": country, "device": draw.choice(DEVICES)}
    if number % 3 == 0:
        value |= {"raw_score": score, "score": score * 0.7 + 0.1, "map_version": 2 if late else 1}
    yield _delay(draw, plan), ("p", partition, value, at)
    if draw.random() < 0.07:
        again = {**value, "ts": at + 5, "score": draw.random()}
        yield _delay(draw, plan), ("p", partition, again, at + 5)
    drift = DRIFT[4 * number // plan.pairs] + (0.6 if plan.labels != "both" else 0.0)  # what is lost reads negative
    drift += 0.8 * (COUNTRIES.index(country) / (len(COUNTRIES) - 1) - 0.5)
    label = int(draw.random() < 1 / (1 + exp(-0.9 * logit - drift)))
    known = at + int(plan.horizon_ms * draw.choice((draw.random() ** 3, draw.random() ** 3, 1.2 * draw.random())))
    outcome = {"id": f"id-{number}" if draw.random() > 0.05 else f"nobody-{number}", "ts": known, "label": label}
    if plan.labels == "both" or label or draw.random() < 0.3:
        yield _delay(draw, plan), ("o", partition, outcome, known)
    for share, other in ((0.15, 1 - label), (0.07, label)):
        if draw.random() < share:
            later = known + draw.randrange(plan.horizon_ms // 3)
            yield _delay(draw, plan), ("o", partition, {**outcome, "ts": later, "label": other}, later)


def _delay(draw: random.Random, plan: StreamPlan) -> float:
    """One in ten in disorder, one in ten beyond what is waited for."""
    kind = draw.random()
    if kind < 0.1:
        return plan.out_of_order_ms * (1.0 + 2 * draw.random())
    return plan.out_of_order_ms * 0.9 * draw.random() if kind < 0.2 else 0.0


def closing(plan: StreamPlan) -> list[Event]:
    """One event per log that belongs to nothing and settles everything before it."""
    at = plan.end_ms + 3 * plan.horizon_ms + 10 * MINUTE_MS
    events: list[Event] = []
    for partition in range(plan.partitions):
        prediction = {"id": f"closing-{partition}", "ts": at, "score": 0.5, "model": "a"}
        events.append(("p", partition, prediction, at))
        events.append(("o", partition, {"id": f"no-closing-{partition}", "ts": at, "label": 0}, at))
    return events


def shares(events: Sequence[Event], truth: Recount, pairs: int) -> dict[str, float]:
    """Events of each kind per pair."""
    counters, reached, disorder = truth.counters, dict[tuple[str, int], int](), 0
    for topic, partition, value, _ in events:
        highest = reached.get((topic, partition), 0)
        disorder += value["ts"] < highest
        reached[topic, partition] = max(highest, value["ts"])
    return {
        "duplicates": (counters["duplicate_prediction"] + counters["duplicate_outcome"]) / pairs,
        "corrections": counters["revised_outcome"] / pairs,
        "out of order": disorder / pairs,
        "late": (counters["late_prediction"] + counters["late_outcome"]) / pairs,
    }


class Feeder:
    """Sends the events of a plan from its own process, as far as it is told; leaving the context ends it.

    Its own process, because the client leaves sockets behind when it loses its broker.

    Parameters
    ----------
    bootstrap : str
    topics : dict
        Names of "p" and "o".
    plan : StreamPlan
    """

    def __init__(self, bootstrap: str, topics: dict[str, str], plan: StreamPlan) -> None:
        self._command = [sys.executable, __file__, json.dumps([bootstrap, topics, asdict(plan)])]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def send(self, share: float, seconds: float) -> None:
        """Go on to this share of the events, evenly over so many seconds; `wait` for it before the next."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([share, seconds]) + "\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        """Return once everything asked for is stored."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "stored\n", "the feeder has failed"


def _feed(bootstrap: str, topics: dict[str, str], plan: StreamPlan) -> None:
    import time

    events = disturbed_events(plan)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=5, batch_size=200_000, reconnect_backoff_max_ms=500
    )
    done = 0
    for line in sys.stdin:
        share, seconds = json.loads(line)
        goal = round(share * len(events))
        begin, first, sent = time.monotonic(), done, []
        while done < goal:
            block = events[done : min(done + BLOCK, goal)]
            for topic, partition, value, at in block:
                body = json.dumps(value).encode()
                sent.append(producer.send(topics[topic], body, key=b"-", partition=partition, timestamp_ms=at))
            done += len(block)
            time.sleep(max(0.0, begin + seconds * (done - first) / (goal - first) - time.monotonic()))
        producer.flush()
        for one in sent:
            one.get(timeout=120)
        print("stored", flush=True)


if __name__ == "__main__":
    _bootstrap, _topics, _plan = json.loads(sys.argv[1])
    _feed(_bootstrap, _topics, StreamPlan(**_plan))
