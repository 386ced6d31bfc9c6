"""Alarms of the whole machine: a detector fed with the recount's panes says the same, whatever the batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from alarm_events import calibrated_events
from alarm_streams import scores
from engine_streams import DAY_MS, HOUR_MS, START_MS, engine, over_confident, slices
from recount import recount
from recount_events import Event, Log, Rules
from test_engine import ORDERS, run, shifted, some_cuts

from streamcal.detect.detector import Detector
from streamcal.engine import Engine
from streamcal.snapshot import AlarmState, Series

ALL = Series("all", "all")
BOTH = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000)
AT_MATURITY = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000, labels="positives_only")
MIXED = Rules(
    horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000, models={"m2": ("positives_only", 5 * HOUR_MS)}
)

Alarms = list[tuple[int, int | None, Series, str, float]]


def alarms(machine: Engine) -> dict[str, Alarms]:
    """(raised, ended, series, fault, evidence) of every alarm, per model."""
    return {
        machine.names.models[model]: [(a.at_ms, a.ended_ms, a.series, a.fault, a.evidence) for a in watch.alarms]
        for model, watch in machine.watches.items()
    }


def stands(machine: Engine) -> dict[str, dict[Series, AlarmState]]:
    return {model.name: dict(model.alarms) for model in machine.snapshot().models}


def sealed_before(events: Sequence[Event], rules: Rules, model: str) -> int:
    """First pane that some partition has not sealed."""
    watermarks: dict[Log, float] = {}
    for topic, partition, value, _ in events:
        at = topic, partition
        watermarks[at] = max(watermarks.get(at, -math.inf), value["ts"] - rules.out_of_order_ms)
    partitions = {partition for _, partition in watermarks}
    return min(
        pane
        for partition in partitions
        for pane in (
            watermarks["p", partition] // rules.pane_ms,
            (watermarks["o", partition] - rules.horizon_of(model) - 1) // rules.pane_ms,
        )
    )  # fmt: skip


def restarts(events: Sequence[Event], rules: Rules, model: str) -> list[int]:
    """Panes in which a map version higher than any before begins to serve."""
    highest: dict[int, int] = {}
    watermark: dict[int, int] = {}
    for topic, partition, value, _ in events:
        if topic == "p":
            if value["model"] == model and watermark.get(partition, 0) <= value["ts"]:
                pane = value["ts"] // rules.pane_ms
                highest[pane] = max(highest.get(pane, 0), value.get("map_version", 0))
            watermark[partition] = max(watermark.get(partition, 0), value["ts"] - rules.out_of_order_ms)
    versions = sorted(highest.items())
    return [pane for i, (pane, version) in enumerate(versions) if i and version > max(v for _, v in versions[:i])]


def retold(
    machine: Engine, events: Sequence[Event], rules: Rules, model: str
) -> tuple[Alarms, dict[Series, tuple[float, float]]]:
    """What a detector of its own says that is given the recount's panes in order, begun again with each new map."""
    settings = machine.watches[machine.names.model(model)].settings
    afresh = restarts(events, rules, model)
    by_pane: dict[int, dict[Series, dict[int, list[int]]]] = {}
    for (name, cut, segment, pane), bins in (
        recount(events, rules).counts([("country",)], "prediction", "served").items()
    ):
        if name == model and pane < sealed_before(events, rules, model):
            by_pane.setdefault(pane, {})[Series(cut, segment)] = {b: columns[:9] for b, columns in bins.items()}
    number = {series: i for i, series in enumerate(sorted({s for found in by_pane.values() for s in found}))}
    detector, told, in_force = Detector(settings.detector), [], {}
    for pane, found in sorted(by_pane.items()):
        while afresh and afresh[0] <= pane:
            afresh.pop(0)
            detector.restart(np.arange(len(number)))
        cells = [(number[s], b, columns) for s in sorted(found) for b, columns in sorted(found[s].items())]
        series, bins, values = (np.array(column) for column in zip(*cells, strict=True))
        at_ms = (pane + 1) * rules.pane_ms + rules.horizon_of(model)
        for event in detector.update_cells(pane, series, bins, values):
            name = list(number)[event.series]
            if event.raised:
                in_force[name] = len(told)
                told.append([at_ms, None, name, event.fault, event.evidence])
            else:
                told[in_force.pop(name)][1] = at_ms
    found = detector.evidence(np.arange(len(number)))
    evidence = {s: (float(found.evidence[i]), float(found.phi[i])) for s, i in number.items()}
    return [tuple(alarm) for alarm in told], evidence


STREAMS: dict[str, tuple[Rules, dict[str, Any]]] = {
    "both": (BOTH, {}),
    "at maturity": (AT_MATURITY, {}),
    "mixed, weighted from the middle on": (MIXED, {"weights": True}),
}


def with_versions(events: Sequence[Event]) -> list[Event]:
    """New maps begin to serve after 14 and 25 hours, in partition 1 twenty minutes later."""
    told = []
    for topic, partition, value, stamp in events:
        hours = (value["ts"] - START_MS) / HOUR_MS - partition / 3
        version = (hours >= 14) + (hours >= 25)
        mapped = {"raw_score": value["score"], "map_version": version} if topic == "p" and version else {}
        told.append((topic, partition, {**value, **mapped}, stamp))
    return told


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("phi", [1.0, None], ids=["phi 1", "phi estimated"])
@pytest.mark.parametrize("maps", [False, True], ids=["no map", "two maps"])
def test_alarms_are_those_of_the_recounts_panes_in_order(stream: str, phi: float | None, maps: bool) -> None:
    rules, options = STREAMS[stream]
    events = over_confident(3, hours=40, per_hour=80, partitions=2, models=("m1", "m2"), **options)
    events = with_versions(events) if maps else events
    machine = engine(rules, (0, 1), refit={"mode": "off"}, alarms={"dispersion": phi, "false_alarms_per_month": 1000.0})
    run(machine, events)
    assert len(restarts(events, rules, "m1")) == 2 * maps
    for model in ("m1", "m2"):
        told, evidence = retold(machine, events, rules, model)
        assert alarms(machine)[model] == told
        mine = stands(machine)[model]
        assert {series: (mine[series].evidence, mine[series].phi) for series in mine} == evidence
    if not maps and phi is not None:
        raised = alarms(machine)["m1"]
        assert any(ended is not None for _, ended, *_ in raised)
        assert {series.cut for _, _, series, *_ in raised} == {"all", "country"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stream", STREAMS)
def test_alarms_and_evidence_do_not_depend_on_batches_and_on_which_log_is_ahead(stream: str, order: str) -> None:
    rules, options = STREAMS[stream]
    events = over_confident(4, hours=40, per_hour=100, partitions=2, models=("m1", "m2"), **options)
    events = with_versions(events)
    made: dict[str, Any] = {"alarms": {"dispersion": None, "false_alarms_per_month": 1000.0}, "max_segments": 2}
    straight = engine(rules, (0, 1), **made)
    run(straight, events)
    assert sum(map(len, alarms(straight).values())) > 2
    arrived = ORDERS[order](events)
    other = engine(rules, (0, 1), **made)
    run(other, arrived, some_cuts(len(arrived), 5))
    assert alarms(other) == alarms(straight)
    assert stands(other) == stands(straight)


def test_a_segment_that_comes_back_after_a_month_begins_anew_whatever_the_batches() -> None:
    """Folding runs ahead of weighing: what is folded already must not keep a series from being forgotten."""
    first = over_confident(5, hours=12, per_hour=100)
    later = shifted(over_confident(6, hours=12, per_hour=100), 33 * DAY_MS)
    only = [("c0", {"c0"}), ("c1", {"c1"}), ("all", {"c0", "c1", "c2", "c3"})]
    middle = shifted(over_confident(7, hours=12, per_hour=100), 16 * DAY_MS)
    events = [*first, *kept(middle, dict(only)["c0"]), *later]
    settings: dict[str, Any] = {"refit": {"mode": "off"}, "max_segments": 3}
    whole, steps = engine(BOTH, **settings), engine(BOTH, **settings)
    run(whole, events)
    run(steps, events, range(50, len(events), 50))
    assert alarms(whole) == alarms(steps)
    assert stands(whole) == stands(steps)
    quiet = [a for a in alarms(whole)["default"] if a[2].segment == "country=c1" and a[0] < START_MS + 2 * DAY_MS]
    assert quiet
    ended = quiet[-1][1]
    assert ended is not None
    assert ended % DAY_MS == BOTH.horizon_ms, "known with the first pane of a day"
    assert 30 <= (ended - quiet[-1][0]) / DAY_MS <= 34
    alone = engine(BOTH, **settings)
    run(alone, later)
    for segment in ("country=c1", "country=c2"):
        series = Series("country", segment)
        assert stands(whole)["default"].get(series) == stands(alone)["default"].get(series)


def kept(events: Sequence[Event], countries: set[str]) -> list[Event]:
    """The events of some countries' predictions, ids renamed apart."""
    ids = {v["id"] for topic, _, v, _ in events if topic == "p" and v["segments"]["country"] in countries}
    return [(t, p, {**v, "id": f"m{v['id']}"}, s) for t, p, v, s in events if v["id"] in ids]


def test_segments_beyond_the_cap_are_weighed_together() -> None:
    events = over_confident(8, hours=30, per_hour=100)
    machine = engine(BOTH, refit={"mode": "off"}, max_segments=2)
    run(machine, events)
    segments = {series.segment for series in stands(machine)["default"]}
    assert segments == {"all", "country=__other__", *sorted(segments - {"all", "country=__other__"})[:2]}
    own = {segment.partition("=")[2] for segment in segments - {"all", "country=__other__"}}
    renamed = [
        (t, p, {**v, "segments": {"country": name if (name := v["segments"]["country"]) in own else "rest"}}, s)
        if t == "p" else (t, p, v, s)
        for t, p, v, s in events
    ]  # fmt: skip
    roomy = engine(BOTH, refit={"mode": "off"})
    run(roomy, renamed)
    other, rest = Series("country", "country=__other__"), Series("country", "country=rest")
    assert stands(machine)["default"][other] == stands(roomy)["default"][rest]


def test_a_partition_without_data_holds_the_panes_and_is_named() -> None:
    machine = engine(BOTH, (0, 3), refit={"mode": "off"})
    events = over_confident(9, hours=12, per_hour=100)
    run(machine, events)
    (model,) = machine.snapshot().models
    assert (model.blocking_partition, model.sealed_until_ms) == (3, None)
    assert model.alarms[ALL].evidence == -math.inf
    for topic in ("predictions", "outcomes"):
        machine.advance_idle(topic, 3, START_MS + 6 * HOUR_MS + 1)
    (model,) = machine.snapshot().models
    assert (model.blocking_partition, model.sealed_until_ms) == (3, START_MS + 3 * HOUR_MS)
    assert model.alarms[ALL].evidence > -math.inf


def test_a_partition_that_joins_late_and_behind_changes_no_evidence_given() -> None:
    events = over_confident(10, hours=24, per_hour=100, partitions=2)
    here, there = ([event for event in events if event[1] == partition] for partition in (0, 1))
    machine, alone = engine(BOTH, (0,), refit={"mode": "off"}), engine(BOTH, (0,), refit={"mode": "off"})
    half = len(here) // 2
    run(machine, here[:half])
    run(alone, here[:half])
    reached = machine.watches[0].weighed_before
    machine.assign([0, 1])
    run(machine, [event for event in there if event[2]["ts"] <= here[half][2]["ts"]])
    assert alarms(machine) == alarms(alone)
    assert stands(machine)["default"][ALL] == stands(alone)["default"][ALL]
    run(machine, [event for event in events if event[2]["ts"] > here[half][2]["ts"]])
    assert machine.watches[0].weighed_before > reached + 50


def test_draining_weighs_the_rest_and_ends_no_alarm() -> None:
    events = over_confident(11, hours=30, per_hour=150)
    machine = engine(BOTH, refit={"mode": "off"})
    run(machine, events)
    before = alarms(machine)["default"]
    machine.drain()
    after = alarms(machine)["default"]
    assert len(after) >= len(before)
    assert all(ended is None or ended <= START_MS + 40 * HOUR_MS for _, ended, *_ in after)
    assert any(ended is None for _, ended, *_ in after)


# --- streams whose truth is known ----------------------------------------------------------------------------


@pytest.mark.parametrize("positives_only", [False, True], ids=["both", "positives only"])
@pytest.mark.parametrize("phi", [1.0, None], ids=["phi 1", "phi estimated"])
@pytest.mark.parametrize("seed", range(2))
def test_slow_positives_and_a_daily_cycle_raise_no_alarm(seed: int, phi: float | None, positives_only: bool) -> None:
    labels = "positives_only" if positives_only else "both"
    rules = Rules(horizon_ms=DAY_MS, out_of_order_ms=60_000, pane_ms=900_000, labels=labels)
    events = calibrated_events(seed, 3, 400, positives_only=positives_only)
    machine = engine(rules, refit={"mode": "off"}, alarms={"dispersion": phi, "change_triggers": True})
    run(machine, events, range(5_000, len(events), 5_000))
    assert alarms(machine) == {"default": []}
    weighed = machine.watches[0].weighed_before
    assert weighed is not None
    assert weighed - START_MS // rules.pane_ms > 90


@pytest.mark.parametrize("panes", [1, 40])
def test_triple_over_prediction_of_rare_events_alarms(panes: int) -> None:
    rules = Rules(horizon_ms=HOUR_MS, pane_ms=60_000)
    grid, draw, count = scores(0.03), np.random.default_rng(8), 20_000
    at = draw.choice(len(grid.p), count, p=grid.share)
    made = START_MS + np.sort(draw.integers(0, panes * rules.pane_ms, count))
    label = draw.random(count) < grid.p[at] / 3
    predictions: list[Event] = [
        ("p", 0, {"id": f"{i}", "ts": int(t), "score": float(grid.p[k])}, None)
        for i, (t, k) in enumerate(zip(made, at, strict=True))
    ]
    outcomes: list[Event] = [
        ("o", 0, {"id": f"{i}", "ts": int(t) + 1000, "label": int(y)}, None)
        for i, (t, y) in enumerate(zip(made, label, strict=True))
    ]
    machine = engine(rules, refit={"mode": "off"}, alarms={"dispersion": None, "share": 1000})
    machine.handle(slices(predictions))
    machine.handle(slices(outcomes))
    machine.drain()
    (first, *_) = alarms(machine)["default"]
    assert (first[2], first[3]) == (ALL, "scores_too_high")
    assert 0.01 < machine.snapshot().models[0].windows[0].served["ece"][0] < 0.03
