"""Engines as tests want them, and seeded streams that make them refit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from recount_events import Event, Rules

from streamcal.detect.detector import DetectorSettings
from streamcal.detect.watch import WatchSettings
from streamcal.engine import Engine, Slice
from streamcal.maps.families import Map
from streamcal.maps.loop import LoopSettings
from streamcal.runtime.logs.base import LogRecord
from streamcal.settings import EngineSettings
from streamcal.stats.aggregate import EVERYTHING, AggregateSettings, WindowSpec
from streamcal.stats.cells import KINDS
from streamcal.stream.classes import ClassSets
from streamcal.stream.fields import OutcomeFields, PredictionFields
from streamcal.stream.join import ModelRules

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_699_999_200_000
"""A full UTC hour."""
TOPIC = {"p": "predictions", "o": "outcomes"}


def watched(rules: Rules, alarms: Mapping[str, Any]) -> Callable[[str], WatchSettings]:
    """How models are watched: one alarm a month, over-dispersion fixed at none, no change triggers; or as `alarms`."""
    chosen: dict[str, Any] = {"panes_per_day": DAY_MS // rules.pane_ms, "false_alarms_per_month": 1.0, "share": 1}
    chosen |= {"clear_after": 10, "dispersion": 1.0, "change_triggers": False} | dict(alarms)
    change_triggers = chosen.pop("change_triggers")

    def watch(name: str) -> WatchSettings:
        return WatchSettings(DetectorSettings(**chosen), rules.pane_ms, rules.horizon_of(name), change_triggers)

    return watch


def engine(
    rules: Rules,
    partitions: Iterable[int] = (0,),
    *,
    refit: Mapping[str, Any] | None = None,
    loops: Mapping[str, Mapping[str, Any]] | None = None,
    priors: Mapping[str, Map] | None = None,
    cuts: Sequence[tuple[str, ...]] = ((), ("country",)),
    max_segments: int = 100,
    windows: Sequence[tuple[str, int]] = (("6h", 36), ("24h", 144)),
    by_outcome_time: bool = False,
    keep_everything: bool = False,
    apply_maps: bool = False,
    alarms: Mapping[str, Any] | None = None,
    classes: ClassSets | None = None,
    **options: Any,
) -> Engine:
    """An engine with these rules; `refit` and `alarms` are for every model, `loops` for single ones."""
    priors = priors or {}

    def of_model(name: str) -> ModelRules:
        return ModelRules(rules.horizon_of(name), rules.labels_of(name) == "positives_only")

    def loop(name: str) -> LoopSettings:
        maturity = rules.horizon_of(name) if rules.labels_of(name) == "positives_only" else 0
        chosen: dict[str, Any] = {"mode": "auto", "every_ms": HOUR_MS, "fit_window_ms": DAY_MS, "min_count": 20}
        chosen |= {"pane_ms": rules.pane_ms, "maturity_ms": maturity, "prior": priors.get(name)}
        chosen |= {"horizon_ms": rules.horizon_of(name), "out_of_order_ms": rules.out_of_order_ms}
        return LoopSettings(**(chosen | dict(refit or {}) | dict((loops or {}).get(name, {}))))

    settings = EngineSettings(
        dimensions=("country", "device"),
        cuts=cuts,
        max_segments=max_segments,
        prediction_fields=PredictionFields(),
        outcome_fields=OutcomeFields(),
        model_filters=(),
        max_future_ms=10**12,
        max_weight=1000.0,
        max_bytes=10**6,
        sample_rate=1.0,
        positives_only_topic=rules.labels == "positives_only",
        skew_ms=rules.skew_ms,
        out_of_order_ms=rules.out_of_order_ms,
        aggregate=AggregateSettings(
            pane_ms=rules.pane_ms,
            windows=[WindowSpec(*window) for window in windows],
            by_outcome_time=by_outcome_time,
            keep_everything=keep_everything,
        ),
        ece_bins=10,
        min_count=20,
        rules=of_model,
        loop=loop,
        watch=watched(rules, alarms or {}),
        ece_threshold=lambda _: None,
        models=list(priors),
        apply_maps=apply_maps,
        classes=classes or ClassSets(),
    )
    return Engine(settings, partitions, **options)


def slices(batch: Sequence[Event]) -> list[Slice]:
    """A batch in arrival order as slices."""
    records: dict[tuple[str, int], list[LogRecord]] = {}
    places: dict[tuple[str, int], list[int]] = {}
    for place, (topic, partition, value, timestamp) in enumerate(batch):
        log = TOPIC[topic], partition
        records.setdefault(log, []).append(LogRecord(json.dumps(value).encode(), timestamp=timestamp))
        places.setdefault(log, []).append(place)
    return [Slice(*log, held, np.array(places[log])) for log, held in records.items()]


def totals(machine: Engine) -> dict[tuple[str, ...], dict[int, list[int]]]:
    """Counts by bin of everything read, by model, cut, segment and kind of score."""
    found, series = {}, machine.aggregate.series
    for (model, labels), numbers in series.published(machine.aggregate.alive(EVERYTHING)).items():
        counts = machine.aggregate.by_series(EVERYTHING, np.array(numbers)).sum(axis=0)
        for kind, name in enumerate(KINDS):
            bins = {int(b): counts[kind, b].tolist() for b in np.flatnonzero(counts[kind].any(axis=1))}
            found[machine.names.models[model], labels.cut, labels.segment, name] = bins
    return found


def over_confident(
    seed: int,
    *,
    hours: int,
    per_hour: int,
    partitions: int = 1,
    models: Sequence[str] = ("default",),
    weights: bool = False,
    gap: float = 0.0,
) -> list[Event]:
    """Events in the order of their times: logits twice too large, too low at first and too high from the middle on.

    Labels come up to two hours later, some twice.
    The second half has weights where asked. The four segments are up to 1.5 `gap` apart from the whole. The models take
    turns; each but the first begins a quarter later than the one before.
    """
    rng = np.random.default_rng(seed)
    timed: list[tuple[int, int, Event]] = []
    for i in range(hours * per_hour):
        t = START_MS + i * HOUR_MS // per_hour + int(rng.integers(0, 1000))
        partition = int(rng.integers(partitions))
        begun = 1 + min(len(models) - 1, 4 * i // (hours * per_hour))
        logit = rng.normal(-1.0, 2.0)
        value = {"id": f"i{i}", "ts": t, "score": 1 / (1 + np.exp(-logit)), "model": models[i % begun]}
        country = int(rng.integers(4))
        value["segments"] = {"country": f"c{country}"}
        if weights and i > hours * per_hour // 2:
            value["weight"] = float(rng.choice([0.5, 1.0, 3.0]))
        timed.append((t, len(timed), ("p", partition, value, None)))
        offset = 0.5 if i < hours * per_hour // 2 else -1.5
        offset += gap * (country - 1.5)
        label = int(rng.random() < 1 / (1 + np.exp(-0.5 * logit - offset)))
        for _ in range(2 if rng.random() < 0.05 else 1):
            known = t + int(rng.integers(1000, 2 * HOUR_MS))
            timed.append((known, len(timed), ("o", partition, {"id": f"i{i}", "ts": known, "label": label}, None)))
            label = 1 - label
    return [event for *_, event in sorted(timed, key=lambda entry: entry[:2])]
