"""Seeded streams of models with several classes, beside one with a single score on the same ids."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from recount_events import Event

from streamcal.stream.classes import ClassSets

MINUTE_MS = 60_000
START_MS = 1_700_000_000_000
CLASSES = {"pets": ("cat", "dog", "1"), "zoo": ("1", "yak"), "farm": ("yak", "1"), "ctr": ()}
"""The label 1 is a class of three models and a yes for the fourth."""
SETS = ClassSets(of_model={name: names for name, names in CLASSES.items() if names})


def class_events(count: int, partitions: int, *, seed: int) -> list[Event]:
    """`count` ids, a minute apart, in the order of arrival: early, late, doubled, corrected, orphan ones too.

    Horizon and disorder meant: one hour and one minute.
    """
    draw = random.Random(seed)
    timed = [event for number in range(count) for event in _of_one(draw, number, partitions)]
    arrivals = [(value["ts"] + draw.expovariate(1 / 20_000), place) for place, (_, _, value, _) in enumerate(timed)]
    return [timed[place] for _, place in sorted(arrivals)]


def _of_one(draw: random.Random, number: int, partitions: int) -> Iterator[Event]:
    name, at_ms, partition = f"id-{number}", START_MS + number * MINUTE_MS, number % partitions
    for model in draw.sample(sorted(CLASSES), draw.randint(1, 3)):
        value: dict[str, Any] = {"id": name, "ts": at_ms + draw.randrange(3), "model": model}
        value["segments"] = {"country": draw.choice(("GB", "DE"))}
        if number % 5 == 0:
            value["weight"] = draw.choice((0.5, 2.0))
        value |= scores(draw, CLASSES[model])
        yield "p", partition, value, value["ts"]
        if number % 7 == 0:
            yield "p", partition, {**value, "ts": value["ts"] + 5}, value["ts"] + 5
    known_ms = at_ms + draw.randrange(-1000 * (number % 11 == 0), 150 * MINUTE_MS)
    outcome = {"id": name if number % 13 else f"nobody-{number}", "ts": known_ms, **label(draw)}
    yield "o", partition, outcome, known_ms
    if number % 3 == 0:
        later_ms = known_ms + draw.randrange(0, 10 * MINUTE_MS)
        yield "o", partition, {**outcome, "ts": later_ms, **label(draw)}, later_ms


def scores(draw: random.Random, names: tuple[str, ...]) -> dict[str, Any]:
    """Raw alone, raw and served, or served alone; some just out of [0, 1]."""

    def one() -> float:
        return draw.choice((0.0, 1e-9, 1.0 + 5e-7, draw.random(), draw.random(), draw.random()))

    if not names:
        return {"score": draw.random()}
    found: dict[str, Any] = {"scores": {name: one() for name in names} | {names[0]: 0.25, "unknown": 7}}
    kind = draw.randrange(4)
    if kind == 1:
        found |= {"raw_scores": {name: one() for name in names} | {names[-1]: 0.5}, "map_versions": {names[0]: 3}}
    elif kind == 2:
        found |= {"map_versions": {names[1]: 2}}
    elif kind == 3:
        found |= {"map_version": 5, "score": "nobody looks"}
    return found


def label(draw: random.Random) -> dict[str, Any]:
    """A class of some models, or what is a class of some and a yes for others."""
    model = draw.choice((None, None, "pets", "zoo", "ctr"))
    if model is None:
        return {"label": draw.choice(("cat", "dog", "yak", 1, "1", 0))}
    said: Any = draw.choice((0, 1)) if model == "ctr" else draw.choice(CLASSES[model])
    return {"label": said, "model": model}
