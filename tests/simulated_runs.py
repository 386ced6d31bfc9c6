"""Simulated runs: the events, the run, and its comparison with a recount and with an undisturbed run."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from engine_streams import engine, slices
from recount import COUNTERS, recount
from recount_events import Event, Rules
from simulated_cluster import World

from streamcal.engine import Engine
from streamcal.maps.document import MapDocument, decode
from streamcal.maps.loop import PublishMap
from streamcal.parts.mark import MarkKey
from streamcal.parts.part import Part, StoredKey
from streamcal.runtime.cluster import Part as LogPart
from streamcal.runtime.held_roles import MonitorSettings
from streamcal.runtime.idle import IdleRules
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.monitor import Monitor
from streamcal.runtime.monitor_wiring import count_settings, source_settings
from streamcal.runtime.pacing import PacingSettings
from streamcal.state.packing import pack
from streamcal.state.trees import dump
from streamcal.stats.layout import N_BINS

SOURCES = 2
CUTS = ((), ("country",))
PANE_MS = 60_000
START_MS = 1_700_006_400_000
TOPIC = {"p": "predictions", "o": "outcomes"}
RUN_S = 40.0
"""Simulated seconds over which the records come."""
SPAN_MS = 26 * PANE_MS
"""Event time that goes by meanwhile."""
IDLE_S = 0.8


def rules_of(seed: int) -> Rules:
    """Both label modes; horizons of a few panes."""
    chance = random.Random(seed)
    return Rules(
        horizon_ms=chance.choice((2, 5)) * PANE_MS,
        skew_ms=chance.choice((0, 5_000)),
        out_of_order_ms=chance.choice((0, 20_000)),
        labels=chance.choice(("both", "positives_only")),
        pane_ms=PANE_MS,
    )


def events_of(seed: int, rules: Rules, count: int = 120) -> list[Event]:
    """Predictions and outcomes with duplicates, corrections, disorder and late ones, in an order of arrival."""
    chance = random.Random(seed)
    timed: list[tuple[float, Event]] = []
    for i in range(count):
        t = START_MS + i * 20 * PANE_MS // count
        at = t + chance.randrange(-30_000, 30_000) * (chance.random() < 0.2)
        partition = chance.randrange(SOURCES)
        score = chance.choice((0.02, 0.2, 0.5, 0.7, 0.97))
        value = {"id": f"i{i}", "ts": at, "score": score, "segments": {"country": chance.choice("abc")}}
        copies = 2 if chance.random() < 0.08 else 1
        timed += [(t + 40_000 * n, ("p", partition, value, None)) for n in range(copies)]
        label = int(chance.random() < score)
        for n in range(chance.choice((0, 1, 1, 1, 2))):
            known = at + chance.randrange(-5_000, int(1.3 * rules.horizon_ms))
            outcome = {"id": f"i{i}", "ts": known, "label": label ^ (n and chance.random() < 0.5)}
            timed.append((known + chance.randrange(40_000), ("o", partition, outcome, None)))
    end = START_MS + 60 * PANE_MS
    for partition in range(SOURCES):
        for topic in "po":
            value = {"id": "end", "ts": end, "score": 0.5, "label": 0}
            timed.append((end, (topic, partition, value, None)))
    return [event for _, event in sorted(timed, key=lambda entry: entry[0])]


def logs_of(events: Sequence[Event]) -> dict[LogPart, list[LogRecord]]:
    logs: dict[LogPart, list[LogRecord]] = {(topic, n): [] for topic in TOPIC.values() for n in range(SOURCES)}
    for topic, partition, value, timestamp in events:
        log = logs[TOPIC[topic], partition]
        log.append(LogRecord(json.dumps(value).encode(), timestamp=timestamp, offset=len(log)))
    return logs


def undisturbed(events: Sequence[Event], rules: Rules) -> tuple[Engine, list[PublishMap]]:
    """One process that nothing happens to, advances of idle logs among its events; and every map it published."""
    maps: list[PublishMap] = []
    direct = engine(rules, range(SOURCES), cuts=CUTS, **OPTIONS)
    waiting: list[Event] = []
    for event in events:
        topic, partition, value, _ = event
        if "advance" not in value:
            waiting.append(event)
        if "advance" in value or len(waiting) == 50:
            maps += direct.handle(slices(waiting))
            waiting = []
        if "advance" in value:
            maps += direct.advance_idle(TOPIC[topic], partition, value["advance"])
    maps += direct.handle(slices(waiting))
    return direct, maps


def with_advances(events: Sequence[Event], monitor: Monitor) -> list[Event]:
    """The events, and before them what the state says of advances."""
    short = {name: topic for topic, name in TOPIC.items()}
    due = {
        (short[name], number): task.source.advances.of(name)
        for number, task in monitor.tasks.items()
        for name in TOPIC.values()
    }
    found: list[Event] = []
    at: Counter[Any] = Counter()
    for event in events:
        log = event[:2]
        while due[log] and due[log][0][0] <= at[log]:
            found.append((*log, {"advance": due[log].pop(0)[1]}, None))
        found.append(event)
        at[log] += 1
    return found + [(*log, {"advance": to_ms}, None) for log, held in due.items() for _, to_ms in held]


def arrivals_of(seed: int, events: Sequence[Event], world: World) -> dict[LogPart, list[float]]:
    """When each record comes: over the run in order, but some logs are silent for a while."""
    chance = random.Random(f"arrivals {seed}")
    found: dict[LogPart, list[float]] = {(topic, n): [] for topic in TOPIC.values() for n in range(SOURCES)}
    silent: dict[LogPart, tuple[float, float]] = {}
    for part in found:
        if chance.random() < 0.5:
            start = chance.uniform(0, 0.7) * RUN_S
            silent[part] = (start, start + chance.uniform(0.2, 0.6) * RUN_S)
            world.hit["silence"] += 1
    for place, (topic, number, _, _) in enumerate(events):
        part = TOPIC[topic], number
        at, (start, stop) = place * RUN_S / len(events), silent.get(part, (0.0, 0.0))
        found[part].append(stop if start <= at < stop else at)
    return {part: sorted(times) for part, times in found.items()}


OPTIONS: dict[str, Any] = {
    "windows": (("20m", 20), ("100m", 100)),
    "refit": {
        "every_ms": 5 * PANE_MS,
        "fit_window_ms": 40 * PANE_MS,
        "min_count": 3,
        "dimensions": ("country",),
    },
}


def world_of(seed: int, events: Sequence[Event], rules: Rules) -> World:
    settings = engine(rules, range(SOURCES), cuts=CUTS, **OPTIONS)._settings
    monitor = MonitorSettings(
        settings,
        source_settings(settings),
        count_settings(settings),
        about=b"test",
        retry_s=0.5,
        chunk_bytes=500,
        snapshot_after=5_000,
    )
    world = World(seed, logs_of(events), monitor, SOURCES)
    world.arrivals = arrivals_of(seed, events, world)
    idle = IdleRules(timeout_s=IDLE_S, behind_clock_ms=2 * PANE_MS if seed % 4 == 0 else None, steady_ms=10**15)
    pacing = PacingSettings(idle, ahead_bytes=2_000, wall_ms=lambda: START_MS + int(world.seconds / RUN_S * SPAN_MS))
    world.settings = replace(monitor, pacing=pacing)
    return world


def run(seed: int, *, steps: int = 120, count: int = 120) -> tuple[World, Monitor, Sequence[Event], Rules]:
    """One schedule, to its end."""
    rules = rules_of(seed)
    events = events_of(seed, rules, count)
    world = world_of(seed, events, rules)
    world.start()
    for _ in range(steps):
        world.act()
    return world, world.finish().monitor, events, rules


def differences(seed: int, **sizes: int) -> tuple[list[str], Counter[str]]:
    """What differs from the recount and from the undisturbed run; and which faults were hit."""
    world, monitor, events, rules = run(seed, **sizes)
    events = with_advances(events, monitor)
    world.hit["idle advance"] += sum("advance" in value for _, _, value, _ in events)
    truth = recount(events, rules)
    found = []
    (aggregation,) = monitor.aggregations.values()
    counters = aggregation.tally.total()
    wrong = {
        name: (counters[name], truth.counters[name]) for name in COUNTERS if counters[name] != truth.counters[name]
    }
    if wrong:
        found.append(f"counters (ours, recount): {wrong}")
    world.counts.compact()
    if read_afresh(world) != expected_panes(truth):
        found.append("counts read afresh from the compacted topic")
    direct, maps = undisturbed(events, rules)
    found += differences_from(direct, aggregation.aggregator)
    if told(world.maps) != told(maps):
        found.append("maps published")
    return found, world.hit


def differences_from(direct: Engine, aggregator: Any) -> list[str]:
    """Windows, evidence, alarms and map decisions against those of an engine that nothing happened to."""
    found = []
    ours = {(c.model, c.window): c for c in aggregator.published.counts()}
    for theirs in direct.published.counts():
        mine = ours.get((theirs.model, theirs.window))
        if mine is None or list(mine.series) != list(theirs.series) or not np.array_equal(mine.counts, theirs.counts):
            found.append(f"window {theirs.window} of {theirs.model}")
    if direct.event_time_ms != aggregator.event_time_ms:
        found.append(f"event time {aggregator.event_time_ms}, not {direct.event_time_ms}")
    for model, watch in direct.watches.items():
        mine = aggregator.watches[aggregator.names.model(direct.names.models[model])]
        if evidence(direct, model) != evidence(aggregator, aggregator.names.model(direct.names.models[model])):
            found.append("evidence")
        if mine.alarms != watch.alarms or mine.weighed_before != watch.weighed_before:
            found.append("alarms")
    for model, loop in direct.loops.items():
        mine = aggregator.loops[aggregator.names.model(direct.names.models[model])]
        if loop.results != mine.results or decisions(loop) != decisions(mine):
            found.append(f"refits {mine.results}, not {loop.results}")
        if pack(dump(loop.corrections)) != pack(dump(mine.corrections)):
            found.append("corrections per segment")
    return found


def decisions(loop: Any) -> list[Any]:
    """When, what and why; versions are numbers only."""
    return [
        (e.at_ms, e.until_ms, e.attempts, e.family, e.promoted, e.reason, e.document and _what_it_does(e.document))
        for e in loop.history
    ]


def _what_it_does(document: MapDocument) -> tuple[dict[str, Any], dict[str, Any]]:
    return dict(document.parameters), dict(document.segments)


def evidence(holder: Any, model: int) -> dict[Any, Any]:
    """State of the detector by segment: its numbers are given by arrival."""
    panes = (holder._aggregator if isinstance(holder, Engine) else holder).watch_panes[model]
    state = holder.watches[model].detector.state()
    numbers = panes.labelled(model)
    return {
        label: {name: rows[n].tolist() for name, rows in state.items() if n < len(rows)} for label, n in numbers.items()
    }


def read_afresh(world: World) -> dict[Any, list[int]]:
    """Sum over sources of every window cell, by a reader that starts now; of several claims the highest."""
    best: dict[Any, tuple[int, Part]] = {}
    for _, key, value in world.counts.records:
        if value is None or MarkKey.from_bytes(key) is not None:
            continue
        stored = StoredKey.from_bytes(key)
        if stored.part.family == "window":
            place = (stored.source, stored.part)
            if stored.claim >= best.get(place, (-1, None))[0]:
                best[place] = (stored.claim, Part.from_bytes(value))
    cells: dict[Any, list[int]] = defaultdict(lambda: [0] * 9)
    for (_, key), (_, part) in best.items():
        for place, code, values in zip(part.place.tolist(), part.code.tolist(), part.values.tolist(), strict=True):
            series = part.series[place]
            at = (key.model, key.pane, series, code // N_BINS, code % N_BINS)
            cells[at] = [a + b for a, b in zip(cells[at], values, strict=True)]
    return {at: values for at, values in cells.items() if any(values)}


def expected_panes(truth: Any) -> dict[Any, list[int]]:
    """The same from the recount, by prediction time."""
    expected = {}
    for kind, name in enumerate(("raw", "served")):
        for (model, cut, segment, pane), bins in panes_of(truth, name).items():
            values = () if cut == "all" else tuple(part.split("=", 1)[1] for part in segment.split(","))
            for index, columns in bins.items():
                if any(columns):
                    expected[model, pane, (0 if cut == "all" else 1, values), kind, index] = list(columns)
    return expected


def panes_of(truth: Any, kind: str) -> Mapping[Any, Any]:
    return truth.counts(CUTS[1:], "prediction", kind)


def told(commands: Sequence[PublishMap]) -> dict[str, list[Any]]:
    """What was published under each key, in order, repetitions left out."""
    found: dict[str, dict[int, Any]] = {}
    for command in commands:
        document = decode(command.document)
        found.setdefault(command.key, {}).setdefault(document.version, (document.at_ms, *_what_it_does(document)))
    return {key: list(documents.values()) for key, documents in found.items()}
