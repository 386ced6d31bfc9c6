"""Hypothesis strategies: pairs of logs full of collisions and boundaries, their interleavings and their batchings.

Times are milliseconds within a few horizons of `EPOCH_MS`, and most lie exactly on, or one millisecond beside, a
boundary of the join rules relative to a few common base times. Two or three ids, two models and one or two partitions
make duplicates, corrections, early, late and orphan events frequent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st
from recount_events import Event, Labels, Log, Rules

EPOCH_MS = 1_700_000_000_000
"""Any recent time will do; panes cut the range of times wherever they fall."""
CUTS = (("country",), ("country", "device"))
MODELS = ("m1", "m2")
IDS = ("a", "a", "a", "b", "c")
SCORES = (0.0, 1e-8, 0.01, 0.05, 0.2, 0.3, 1 / 3, 0.5, 0.6, 2 / 3, 0.95, 0.999, 1 - 1e-8, 1.0)
WEIGHTS = (0.0, 0.25, 0.1, 1.0, 1.0, 3.0, 1000.0)

Item = TypeVar("Item")
Records = Mapping[Log, Sequence[Event]]
"""Every log's records in its own order."""


@dataclass(frozen=True)
class LogPair:
    """Rules and the logs they are to be applied to."""

    rules: Rules
    logs: Records

    @property
    def size(self) -> int:
        return sum(len(log) for log in self.logs.values())


@st.composite
def join_rules(draw: st.DrawFn, *, labels: Labels | None = None, overrides: bool = True) -> Rules:
    """Small horizons; with `overrides` the second model may have its own label mode and horizon."""
    both: tuple[Labels, ...] = ("both", "positives_only")
    modes = st.sampled_from((labels,) if labels else both)
    horizons = st.sampled_from((10, 20, 50))
    models: dict[str, Any] = {}
    if overrides and draw(st.integers(0, 3)) == 0:
        models = {MODELS[1]: (draw(modes), draw(horizons))}
    return Rules(
        horizon_ms=draw(horizons),
        skew_ms=draw(st.sampled_from((0, 0, 3, 10))),
        out_of_order_ms=draw(st.sampled_from((0, 0, 5, 20, 60))),
        labels=draw(modes),
        pane_ms=draw(st.sampled_from((1, 7, 25, 1000))),
        models=models,
        max_future_ms=draw(st.sampled_from((None, None, 15))),
    )


def boundary_offsets(rules: Rules) -> list[int]:
    """Distances at which some rule changes its mind, each with the milliseconds around it."""
    horizons = {rules.horizon_ms, *(horizon for _, horizon in rules.models.values())}
    points = {0, rules.skew_ms, -rules.skew_ms, rules.out_of_order_ms, -rules.out_of_order_ms}
    for horizon in horizons:
        for multiple in (1, 2, 3):
            points |= {
                multiple * horizon,
                multiple * horizon + rules.out_of_order_ms,
                multiple * horizon + rules.skew_ms,
            }
    return sorted({point + near for point in points for near in (-1, 0, 1)}, key=lambda x: (abs(x), x))


def prediction_times(rules: Rules, bases: Sequence[int]) -> st.SearchStrategy[int]:
    """Half of the predictions are made at a base itself, so that outcomes placed around it meet them."""
    return around(bases, [0, 0, 1, *boundary_offsets(rules)], [0])


def outcome_times(rules: Rules, bases: Sequence[int]) -> st.SearchStrategy[int]:
    """Half of the outcomes lie within the horizon of a prediction made at a base, or on its borders."""
    inside = [rules.horizon_ms // 2, 1, rules.horizon_ms, -rules.skew_ms, rules.horizon_ms + rules.out_of_order_ms]
    return around(bases, boundary_offsets(rules), inside)


def around(bases: Sequence[int], anywhere: Sequence[int], often: Sequence[int]) -> st.SearchStrategy[int]:
    offsets = st.one_of(st.sampled_from(often), st.sampled_from(anywhere))
    return st.builds(lambda base, offset: EPOCH_MS + base + offset, st.sampled_from(bases), offsets)


@st.composite
def segment_values(draw: st.DrawFn) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    country = draw(st.sampled_from(("GB", "DE", "a=b,c%", None, "")))
    if country != "":  # the empty choice leaves the key out
        values["country"] = country
    if draw(st.booleans()):
        values["device"] = draw(st.sampled_from(("ios", "web")))
    return values


def scores() -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from(SCORES), st.floats(0, 1, allow_nan=False, allow_subnormal=False))


@st.composite
def prediction_values(draw: st.DrawFn, times: st.SearchStrategy[int], *, weighted: bool) -> dict[str, Any]:
    value: dict[str, Any] = {"id": draw(st.sampled_from(IDS)), "ts": draw(times), "score": draw(scores())}
    model = draw(st.sampled_from((MODELS[0], MODELS[0], MODELS[1], None)))
    if model is not None:
        value["model"] = model
    form = draw(st.sampled_from(("raw", "raw", "both", "raw_score", "served_only")))
    if form in ("both", "raw_score"):
        value["raw_score"] = draw(scores())
    if form in ("both", "served_only"):
        value["map_version"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        value["segments"] = draw(segment_values())
    if weighted:
        value["weight"] = draw(st.sampled_from(WEIGHTS))
    return value


@st.composite
def outcome_values(draw: st.DrawFn, times: st.SearchStrategy[int]) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": draw(st.sampled_from(IDS)),
        "ts": draw(times),
        "label": draw(st.sampled_from((0, 1))),
    }
    if draw(st.integers(0, 3)) == 0:
        value["model"] = draw(st.sampled_from((*MODELS, "default")))
    return value


@st.composite
def ordered(draw: st.DrawFn, log: list[Event], out_of_order_ms: int) -> list[Event]:
    """The log as drawn, or sorted by time, or sorted with disorder around what the rules allow."""
    order = draw(st.sampled_from(("time", "jitter", "jitter", "drawn")))
    if order == "drawn" or not log:
        return log
    reach = 0 if order == "time" else out_of_order_ms + 2
    jitter = [draw(st.integers(0, reach)) if reach else 0 for _ in log]
    places = sorted(range(len(log)), key=lambda i: log[i][2]["ts"] + jitter[i])
    return [log[i] for i in places]


@st.composite
def log_pairs(
    draw: st.DrawFn,
    *,
    labels: Labels | None = None,
    overrides: bool = True,
    max_partitions: int = 2,
    max_predictions: int = 8,
    max_outcomes: int = 12,
) -> LogPair:
    """Rules with logs of both topics; `max_*` bound the records of each partition."""
    rules = draw(join_rules(labels=labels, overrides=overrides))
    weighted = draw(st.integers(0, 3)) == 0
    bases = draw(st.lists(st.integers(0, 5 * rules.horizon_ms), min_size=1, max_size=2))
    logs: dict[Log, Sequence[Event]] = {}
    for partition in range(draw(st.integers(1, max_partitions))):
        for topic, values, most in (
            ("p", prediction_values(prediction_times(rules, bases), weighted=weighted), max_predictions),
            ("o", outcome_values(outcome_times(rules, bases)), max_outcomes),
        ):
            size = draw(st.integers(0, most))  # lists by themselves stay short
            log: list[Event] = [
                (topic, partition, value, draw(record_timestamps(value["ts"])) if rules.max_future_ms else None)
                for value in draw(st.lists(values, min_size=size, max_size=size))
            ]
            logs[topic, partition] = draw(ordered(log, rules.out_of_order_ms))
    return LogPair(rules, logs)


def record_timestamps(t: int) -> st.SearchStrategy[int | None]:
    """A record's own timestamp, at times so early that `max_future_ms` (15) is just kept or just broken."""
    return st.sampled_from((None, t, t + 1000, t - 15, t - 16))


def interleaved(logs: Records, turns: Sequence[Log]) -> list[Event]:
    """One arrival order: `turns` names the log whose next record arrives."""
    heads = {log: iter(records) for log, records in logs.items()}
    return [next(heads[log]) for log in turns]


@st.composite
def interleavings(draw: st.DrawFn, logs: Records) -> list[Event]:
    """Any arrival order that keeps the order within each log; log after log is often among them."""
    turns = [log for log, records in logs.items() for _ in records]
    shape = draw(st.sampled_from(("any", "any", "predictions first", "outcomes first")))
    if shape == "any":
        turns = draw(st.permutations(turns))
    else:
        turns.sort(key=lambda log: log[0], reverse=shape == "predictions first")
    return interleaved(logs, turns)


def batchings(size: int) -> st.SearchStrategy[list[int]]:
    """Cut points strictly inside a list of `size` items, ascending; none, some or all."""
    if size < 2:
        return st.just([])
    inner = range(1, size)
    some = st.lists(st.sampled_from(inner), unique=True).map(sorted)
    return st.one_of(st.just(list[int]()), st.just(list(inner)), some)


def split(items: Sequence[Item], cut_points: Sequence[int]) -> list[Sequence[Item]]:
    """The batches between the cut points; their concatenation is `items`."""
    ends = [0, *cut_points, len(items)]
    return [items[low:high] for low, high in pairwise(ends)]


@st.composite
def shuffled_within(draw: st.DrawFn, log: Sequence[Event], reach_ms: int) -> list[Event]:
    """The log in an order in which no record is more than `reach_ms` older than any before it."""
    jitter = [draw(st.integers(0, reach_ms)) for _ in log]
    places = sorted(range(len(log)), key=lambda i: (log[i][2]["ts"] + jitter[i], i))
    return [log[i] for i in places]
