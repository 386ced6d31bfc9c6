"""The shared join cases, read into events, rules and single expectations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recount import Recount
from recount_counts import CENTRES
from recount_events import Event, Rules

PATH = Path(__file__).parent / "cases" / "join.json"
DECODE_CASES = ("labels", "scores", "times")
"""Cases about what an event is; the recount takes well-formed events only."""
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Expectation:
    drained: bool
    """Asserted once time has moved past every horizon, else once all events were read."""
    figure: str
    """A counter, ``pending``, ``n``, ``positives``, ``mean_score`` or ``rejected.<reason>``."""
    model: str | None
    """None sums over models."""
    value: float


def load_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))["cases"]
    return cases


def raw_values_never_fatal() -> list[str]:
    values: list[str] = json.loads(PATH.read_text(encoding="utf-8"))["raw_values_never_fatal"]
    return values


def duration_ms(text: str) -> int:
    number = text.rstrip("dhms")
    return int(number) * UNITS_MS[text[len(number) :]]


def rules_of(case: dict[str, Any]) -> Rules:
    join = case["join"]
    return Rules(
        horizon_ms=duration_ms(join["horizon"]),
        skew_ms=duration_ms(join["skew"]),
        out_of_order_ms=duration_ms(join["out_of_order"]),
        labels=join["labels"],
    )


def events_of(case: dict[str, Any]) -> list[Event]:
    return [(topic, 0, value, None) for topic, value in case["events"]]


def expectations(case: dict[str, Any]) -> Iterator[Expectation]:
    for phase in ("before_drain", "after_drain"):
        drained = phase == "after_drain"
        for figure, value in case.get(phase, {}).items():
            if figure == "per_model":
                for model, figures in value.items():
                    for name, expected in figures.items():
                        yield Expectation(drained, name, model, expected)
            elif figure == "rejected":
                for reason, expected in value.items():
                    yield Expectation(drained, f"rejected.{reason}", None, expected)
            else:
                yield Expectation(drained, figure, None, value)


def observed(result: Recount, expectation: Expectation) -> float:
    """The figure of a recount that `expectation` speaks of; scores are read from the binned counts."""
    figure, model = expectation.figure, expectation.model
    if figure in result.counters:
        return result.counters[figure] if model is None else result.model_counters[model][figure]
    if figure == "pending":
        return result.pending
    bins = [
        (index, columns)
        for key, by_bin in result.totals((), "raw").items()
        if model in (None, key[0])
        for index, columns in by_bin.items()
    ]
    n = sum(columns[0] for _, columns in bins)
    if figure == "n":
        return n
    if figure == "positives":
        return sum(columns[1] for _, columns in bins)
    if figure == "mean_score":
        return sum(columns[0] * CENTRES[index] + columns[2] / 2**38 for index, columns in bins) / n
    raise KeyError(figure)
