"""Several classes through the whole machine and through one source: what an independent recount of the logs says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from class_streams import CLASSES, MINUTE_MS, SETS, class_events
from engine_streams import TOPIC, engine, slices, totals
from recount import COUNTERS, Recount, recount
from recount_classes import expand
from recount_events import Event, Rules

from streamcal.engine import Engine
from streamcal.runtime.logs.base import LogRecord
from streamcal.stats.cells import KINDS
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import TOPICS, Names
from streamcal.stream.fields import OutcomeFields, PredictionFields
from streamcal.stream.rules import ModelRules
from streamcal.stream.source import Intake, Source, SourceSettings

HOUR_MS = 60 * MINUTE_MS
RULES = Rules(
    horizon_ms=HOUR_MS,
    skew_ms=500,
    out_of_order_ms=MINUTE_MS,
    pane_ms=10 * MINUTE_MS,
    models={"pets/dog": ("both", 2 * HOUR_MS), "ctr": ("positives_only", HOUR_MS)},
)
"""One class may have a horizon of its own."""


def machine() -> Engine:
    return engine(RULES, (0, 1), refit={"mode": "off"}, keep_everything=True, classes=SETS)


def expected(truth: Recount) -> dict[tuple[str, ...], dict[int, list[int]]]:
    return {(*key, name): bins for name in KINDS for key, bins in truth.totals([("country",)], name).items()}


def by_model(names: Names, tally: Any) -> dict[str, dict[str, int]]:
    held = {name: tally.of_model(index) for index, name in enumerate(names.models)}
    return {name: {key: count for key, count in counts.items() if count} for name, counts in held.items()}


def counted(truth: Recount) -> dict[str, dict[str, int]]:
    return {name: dict(held) for name, held in truth.model_counters.items()}


def without_empty(found: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {name: held for name, held in found.items() if held}


@pytest.mark.parametrize("seed", range(3))
def test_counts_and_counters_of_every_class_are_those_of_a_recount(seed: int) -> None:
    events = class_events(250, 2, seed=seed)
    told = expand(events, CLASSES)
    truth = recount(told, RULES, drain=True)
    assert len(told) < len(events)
    assert min(truth.counters[name] for name in COUNTERS if name != "extreme") > 0
    assert {name for name, held in truth.model_counters.items() if held["matched"]} >= {"pets/1", "zoo/yak", "farm/1"}
    straight, halves = machine(), machine()
    straight.handle(slices(events))
    for part in (events[:333], events[333:334], events[334:]):
        halves.handle(slices(part))
    for found in (straight, halves):
        found.drain()
        assert totals(found) == expected(truth)
        assert without_empty(by_model(found.names, found.tally)) == counted(truth)
        total = found.tally.total()
        assert {name: total[name] for name in COUNTERS} == dict(truth.counters)
        assert found.tally.rejected == {("outcomes", "bad_label"): len(events) - len(told)}


def source() -> Source:
    limits: dict[str, Any] = {"max_future_ms": 10**12, "max_weight": 1000.0, "sample_rate": 1.0, "max_bytes": 10**6}

    def decoders(names: Names) -> tuple[PredictionDecoder, OutcomeDecoder]:
        return (
            PredictionDecoder(PredictionFields(), names, **limits, classes=SETS),
            OutcomeDecoder(OutcomeFields(), names, **limits, classes=SETS),
        )

    def rules(name: str) -> ModelRules:
        return ModelRules(RULES.horizon_of(name), RULES.labels_of(name) == "positives_only")

    return Source(
        SourceSettings(
            decoders, ("country", "device"), rules, RULES.skew_ms, RULES.out_of_order_ms, RULES.pane_ms, 1e-7
        )
    )


def runs(events: Sequence[Event], longest: int) -> list[tuple[str, list[LogRecord]]]:
    """Consecutive events of one topic, at most `longest` at a time."""
    found: list[tuple[str, list[LogRecord]]] = []
    for topic, _, value, stamp in events:
        if not found or found[-1][0] != TOPIC[topic] or len(found[-1][1]) >= longest:
            found.append((TOPIC[topic], []))
        found[-1][1].append(LogRecord(json.dumps(value).encode(), timestamp=stamp))
    return found


def rows_of(found: Source) -> Counter[tuple[Any, ...]]:
    """The rows as changes leave them."""
    held: Counter[tuple[Any, ...]] = Counter()
    for part in found.take().changes:
        weight = np.ones(len(part)) if part.weight is None else part.weight
        columns = (part.raw, part.served, part.label, part.prediction_ms, part.outcome_ms, part.model, weight)
        for sign, raw, *rest in zip(part.sign.tolist(), *(column.tolist() for column in columns), strict=True):
            served, label, t_p, t_o, model, w = rest
            held[found.names.models[model], None if np.isnan(raw) else raw, served, label, t_p, t_o, w] += sign
    return +held


@pytest.mark.parametrize("longest", [1, 40])
def test_a_source_has_the_rows_of_a_recount_and_so_has_one_restored_from_what_it_wrote_down(longest: int) -> None:
    events = [replace_partition(event) for event in class_events(150, 1, seed=9)]
    truth = recount(expand(events, CLASSES), RULES)
    found, restored = source(), source()
    offsets = dict.fromkeys(TOPICS, 0)
    for topic, records in runs(events, longest):
        offsets[topic] += len(records)
        intake = found.take_in(topic, records, offsets[topic])
        found.apply(intake)
        restored.apply(Intake.from_tree(replace(intake, rejections=()).to_tree()))
    expected_rows = Counter((r.model, r.raw, r.served, r.label, r.t_p, r.t_o, r.weight) for r in truth.rows)
    for one in (found, restored):
        assert rows_of(one) == expected_rows
        assert one.pending == truth.pending
        assert without_empty(by_model(one.names, one.tally)) == counted(truth)
        assert one.offsets == offsets
    assert restored.names.models == found.names.models


def replace_partition(event: Event) -> Event:
    topic, _, value, stamp = event
    return topic, 0, value, stamp


def test_a_record_set_aside_is_told_of_once_whatever_its_classes() -> None:
    found = machine()
    bad = {"id": "a", "ts": 1_700_000_000_000, "model": "pets", "scores": {"cat": 1}}
    label = {"id": "a", "ts": 1_700_000_000_000, "model": "pets", "label": "cow"}
    found.handle(slices([("p", 0, bad, None), ("o", 0, label, None)]))
    assert found.tally.rejected == {("predictions", "bad_score"): 1, ("outcomes", "bad_label"): 1}
    assert found.names.models == []
