"""Nanoseconds per message of the decoders, beside what one would write by hand, in one run.

Seeded, without network: ``python benchmarks/codec.py``. The yardsticks only parse the JSON, into objects;
the decoders also check every value, hash the id, intern the names and build the columns. The ratio is
yardstick time over decoder time: above 1, the whole decoder is faster than that parser alone.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from streamcal.stream.classes import ClassSets
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import Names
from streamcal.stream.fields import OutcomeFields, PredictionFields

MESSAGES = 200_000
SLICE = 5_000
"""Records of one poll; the columns of a slice stay in the cache."""
ROUNDS = 5
START_MS = 1_700_000_000_000
LIMITS = {"max_future_ms": 300_000, "max_weight": 1000.0, "sample_rate": 1.0, "max_bytes": 1_000_000}


@dataclass(slots=True)
class Message:
    """One log record."""

    value: bytes
    timestamp: int
    offset: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def messages(make: Callable[[random.Random, int], dict[str, Any]]) -> list[Message]:
    """`MESSAGES` records of one topic."""
    draw = random.Random(7)
    stamps = range(START_MS, START_MS + MESSAGES)
    return [
        Message(json.dumps(make(draw, t), separators=(",", ":")).encode(), t, offset) for offset, t in enumerate(stamps)
    ]


def prediction(draw: random.Random, at_ms: int) -> dict[str, Any]:
    """One prediction with two dimensions and one field nobody reads."""
    segments = {"country": draw.choice(("GB", "DE", "FR", "US")), "device": draw.choice(("ios", "android", "web"))}
    text = f"{draw.getrandbits(128):032x}"
    return {"id": text, "ts": at_ms, "score": draw.random(), "model": "ctr", "segments": segments, "shard": "eu-7"}


CLASSES = tuple(f"class-{i}" for i in range(10))


def by_class(draw: random.Random, at_ms: int) -> dict[str, Any]:
    """One prediction as above, with scores of ten classes."""
    event = prediction(draw, at_ms)
    del event["score"]
    return event | {"scores": {name: draw.random() for name in CLASSES}}


def class_label(draw: random.Random, at_ms: int) -> dict[str, Any]:
    """One outcome as below, whose label is a class."""
    return outcome(draw, at_ms) | {"label": draw.choice(CLASSES), "model": "ctr"}


def outcome(draw: random.Random, at_ms: int) -> dict[str, Any]:
    """One outcome that carries the same two dimensions, unread."""
    segments = {"country": draw.choice(("GB", "DE", "FR", "US")), "device": draw.choice(("ios", "android", "web"))}
    text = f"{draw.getrandbits(128):032x}"
    return {"id": text, "ts": at_ms, "label": draw.randint(0, 1), "segments": segments, "campaign": "autumn-2023"}


def nanoseconds(work: Callable[[Sequence[Message]], object], records: Sequence[Message]) -> float:
    """Best CPU time per message over `ROUNDS` passes, slice by slice."""
    slices = [records[i : i + SLICE] for i in range(0, len(records), SLICE)]
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        begin = time.process_time_ns()
        for part in slices:
            work(part)
        best = min(best, (time.process_time_ns() - begin) / len(records))
    return best


def report(topic: str, records: Sequence[Message], decode: Callable[[Sequence[Message]], object]) -> None:
    """Print the times of one topic."""
    size = sum(len(r.value) for r in records) / len(records)
    own = nanoseconds(decode, records)
    print(f"{topic}, {size:.0f} bytes a message")
    print(f"  streamcal, checked columns        {own:8.0f} ns")
    yardsticks: dict[str, Callable[[Sequence[Message]], object]] = {
        "json.loads, objects only": lambda part: [json.loads(r.value) for r in part],
        "msgspec untyped, objects only": lambda part: [msgspec.json.decode(r.value) for r in part],
    }
    for name, work in yardsticks.items():
        other = nanoseconds(work, records)
        print(f"  {name:32s}  {other:8.0f} ns   ratio {other / own:5.2f}")


def main() -> None:
    """Measure both topics, and the decoders without their fast half."""
    for fast in (True, False):
        names = Names(("country", "device"))
        print("--- fast half" if fast else "--- every event judged by itself")
        report(
            "predictions",
            messages(prediction),
            PredictionDecoder(PredictionFields(), names, **LIMITS, fast=fast).decode,
        )  # type: ignore[arg-type]
        report("outcomes", messages(outcome), OutcomeDecoder(OutcomeFields(), names, **LIMITS, fast=fast).decode)  # type: ignore[arg-type]
    print("--- ten classes: ten rows a message")
    sets, names = ClassSets(usual=CLASSES), Names(("country", "device"))
    report(
        "predictions",
        messages(by_class),
        PredictionDecoder(PredictionFields(), names, **LIMITS, classes=sets).decode,  # type: ignore[arg-type]
    )
    report(
        "outcomes",
        messages(class_label),
        OutcomeDecoder(OutcomeFields(), names, **LIMITS, classes=sets).decode,  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    main()
