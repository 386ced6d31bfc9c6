"""Join and counts against the independent recount, for any batching and any interleaving of the logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from engine_streams import watched
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recount import COUNTERS, recount
from recount_events import Event, Rules
from strategies import CUTS, EPOCH_MS, LogPair, batchings, interleavings, log_pairs, shuffled_within, split

from streamcal.engine import Engine, Slice
from streamcal.maps.loop import LoopSettings
from streamcal.runtime.logs.base import LogRecord
from streamcal.settings import EngineSettings
from streamcal.stats.aggregate import EVERYTHING, AggregateSettings, WindowSpec
from streamcal.stats.cells import KINDS
from streamcal.stream.fields import OutcomeFields, PredictionFields
from streamcal.stream.join import ModelRules

TOPIC = {"p": "predictions", "o": "outcomes"}
BATCHED = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
MANY = settings(BATCHED, max_examples=1200)


def engine_for(rules: Rules, partitions: Sequence[int], **aggregate: Any) -> Engine:
    def of_model(name: str) -> ModelRules:
        return ModelRules(rules.horizon_of(name), rules.labels_of(name) == "positives_only")

    def loop(name: str) -> LoopSettings:
        return LoopSettings("off", 3_600_000, 86_400_000, rules.pane_ms, 50, 0, None)

    return Engine(
        EngineSettings(
            dimensions=("country", "device"),
            cuts=((), *CUTS),
            max_segments=100,
            prediction_fields=PredictionFields(),
            outcome_fields=OutcomeFields(),
            model_filters=(),
            max_future_ms=10**12 if rules.max_future_ms is None else rules.max_future_ms,
            max_weight=1000.0,
            max_bytes=10**6,
            sample_rate=1.0,
            positives_only_topic=rules.labels == "positives_only",
            skew_ms=rules.skew_ms,
            out_of_order_ms=rules.out_of_order_ms,
            aggregate=AggregateSettings(
                pane_ms=rules.pane_ms,
                windows=[WindowSpec("w", 10)],
                by_outcome_time=False,
                keep_everything=True,
                **aggregate,
            ),
            ece_bins=10,
            min_count=20,
            rules=of_model,
            loop=loop,
            watch=watched(rules, {}),
            ece_threshold=lambda _: None,
        ),
        partitions,
    )


def slices_of(batch: Sequence[Event]) -> list[Slice]:
    records: dict[tuple[str, int], list[LogRecord]] = {}
    places: dict[tuple[str, int], list[int]] = {}
    for place, (topic, partition, value, timestamp) in enumerate(batch):
        log = TOPIC[topic], partition
        records.setdefault(log, []).append(LogRecord(json.dumps(value).encode(), timestamp=timestamp))
        places.setdefault(log, []).append(place)
    return [Slice(*log, held, np.array(places[log])) for log, held in records.items()]


def folded(rules: Rules, events: Sequence[Event], cuts: Sequence[int] = (), *, drain: bool = False) -> Engine:
    engine = engine_for(rules, sorted({partition for _, partition, _, _ in events}) or [0])
    for batch in split(events, cuts):
        engine.handle(slices_of(batch))
    if drain:
        engine.drain()
    return engine


def totals(engine: Engine) -> dict[tuple[str, str, str, str], dict[int, list[int]]]:
    """Non-zero bins of everything read, per (model, cut, segment, kind)."""
    series = engine.aggregate.series
    alive = engine.aggregate.alive(EVERYTHING)
    found = {}
    for (model, labels), numbers in series.published(alive).items():
        counts = engine.aggregate.by_series(EVERYTHING, np.array(numbers)).sum(axis=0)
        for kind, name in enumerate(KINDS):
            bins = {int(b): counts[kind, b].tolist() for b in np.flatnonzero(counts[kind].any(axis=1))}
            if bins:
                found[engine.names.models[model], labels.cut, labels.segment, name] = bins
    return found


def expected_totals(
    events: Sequence[Event], rules: Rules, *, width: int, drain: bool
) -> dict[Any, dict[int, list[int]]]:
    result = recount(events, rules, drain=drain)
    found = {}
    for name in KINDS:
        for key, bins in result.totals(CUTS, name, weighted=width > 9).items():
            # A row of weight 0 is a row; a bin in which all columns are zero holds none.
            kept = {index: columns for index, columns in bins.items() if any(columns)}
            if kept:
                found[(*key, name)] = kept
    return found


def assert_equals_recount(engine: Engine, events: Sequence[Event], rules: Rules, *, drain: bool) -> None:
    truth = recount(events, rules, drain=drain)
    counters = engine.tally.total()
    assert {name: counters[name] for name in COUNTERS} == {name: truth.counters[name] for name in COUNTERS}
    assert engine.tally.pending() == truth.pending
    width = engine.aggregate.width
    assert totals(engine) == expected_totals(events, rules, width=width, drain=drain)


@MANY
@given(data=st.data(), pair=log_pairs(), drain=st.booleans())
def test_any_interleaving_and_batching_equals_the_recount(data: st.DataObject, pair: LogPair, drain: bool) -> None:
    events = data.draw(interleavings(pair.logs))
    cuts = data.draw(batchings(len(events)))
    engine = folded(pair.rules, events, cuts, drain=drain)
    assert_equals_recount(engine, events, pair.rules, drain=drain)


@BATCHED
@given(data=st.data(), pair=log_pairs(max_partitions=1), drain=st.booleans())
def test_two_interleavings_and_batchings_leave_the_same_state(data: st.DataObject, pair: LogPair, drain: bool) -> None:
    states = []
    for _ in range(2):
        events = data.draw(interleavings(pair.logs))
        engine = folded(pair.rules, events, data.draw(batchings(len(events))), drain=drain)
        states.append((engine.tally.total(), engine.tally.pending(), totals(engine), fit_cells(engine)))
    assert states[0] == states[1]


def fit_cells(engine: Engine) -> dict[int, dict[tuple[str, int], list[int]]]:
    """Non-zero cells of the frozen parts that fits read, by pane, model and bin."""
    panes: dict[int, dict[tuple[str, int], list[int]]] = {}
    for model, name in enumerate(engine.names.models):
        fits = engine.aggregate.fits(model)
        for pane in fits.panes():
            cells = fits.of_pane(pane)
            for code, values in zip(cells.code.tolist(), cells.values, strict=True):
                if values.any():
                    panes.setdefault(pane, {})[name, code] = values.tolist()
    return panes


@BATCHED
@given(data=st.data(), pair=log_pairs(max_partitions=1, max_outcomes=14))
def test_outcomes_shuffled_within_the_allowed_disorder_leave_the_counts_unchanged(
    data: st.DataObject, pair: LogPair
) -> None:
    rules = pair.rules
    logs = dict(pair.logs)
    ordered = sorted(logs["o", 0], key=lambda event: event[2]["ts"])
    engines = []
    for _ in range(2):
        logs["o", 0] = data.draw(shuffled_within(ordered, rules.out_of_order_ms))
        engines.append(folded(rules, data.draw(interleavings(logs)), drain=True))
    assert totals(engines[0]) == totals(engines[1])
    first, second = (engine.tally.total() for engine in engines)
    invariant = ("accepted_outcome", "matched", "expired", "negative_at_maturity", "extreme")
    assert [first[name] for name in invariant] == [second[name] for name in invariant]
    assert (
        first["duplicate_outcome"] + first["revised_outcome"] == second["duplicate_outcome"] + second["revised_outcome"]
    )
    assert first["late_outcome"] + first["orphan_outcome"] == second["late_outcome"] + second["orphan_outcome"]


@BATCHED
@given(data=st.data(), pair=log_pairs(max_partitions=1))
def test_a_window_is_the_sum_of_the_panes_it_covers_and_an_emptied_one_is_zero(
    data: st.DataObject, pair: LogPair
) -> None:
    rules = pair.rules
    events = data.draw(interleavings(pair.logs))
    engine = folded(rules, events, data.draw(batchings(len(events))))
    if engine.event_time_ms is None:
        return
    stop = -(-engine.event_time_ms // rules.pane_ms)
    window = engine.aggregate.totals("w")
    series = engine.aggregate.series
    truth = recount(events, rules)
    width = engine.aggregate.width
    expected: dict[Any, dict[int, np.ndarray[Any, Any]]] = {}
    for name in KINDS:
        for (*key, pane), bins in truth.counts(CUTS, "prediction", name, weighted=width > 9).items():  # type: ignore[arg-type]
            if stop - 10 <= pane < stop:
                held = expected.setdefault((*key, name), {})
                for index, columns in bins.items():
                    held[index] = held.get(index, np.zeros(width, dtype=np.int64)) + np.array(columns)
    found = {}
    for (model, labels), numbers in series.published(engine.aggregate.alive("w")).items():
        counts = engine.aggregate.by_series("w", np.array(numbers)).sum(axis=0)
        for kind, name in enumerate(KINDS):
            bins = {int(b): counts[kind, b].tolist() for b in np.flatnonzero(counts[kind].any(axis=1))}
            if bins:
                found[(engine.names.models[model], labels.cut, labels.segment, name)] = bins
    wanted = {
        key: kept for key, bins in expected.items() if (kept := {i: c.tolist() for i, c in bins.items() if c.any()})
    }
    assert found == wanted
    engine.aggregate.advance(engine.event_time_ms + 1000 * rules.pane_ms)
    assert not engine.aggregate.totals("w").any()
    assert window.shape[1] == width


def test_one_id_in_every_record_equals_the_recount() -> None:
    """A field that names no prediction taken for the id: nothing may be walked once per record."""
    rules = Rules(horizon_ms=5_000, skew_ms=100, out_of_order_ms=50)
    rng = np.random.default_rng(11)
    events: list[Event] = []
    for i in range(12_000):
        t = EPOCH_MS + i + int(rng.integers(0, 40))
        model = f"m{i % 3}"
        events.append(("p", 0, {"id": "a", "ts": t, "score": 0.3, "model": model}, None))
        events.append(
            ("o", 0, {"id": "a", "ts": t + int(rng.integers(-150, 6_000)), "label": int(rng.integers(2))}, None)
        )
    engine = folded(rules, events, [20_000])
    assert engine.tally.total()["revised_outcome"] > 10
    assert_equals_recount(engine, events, rules, drain=False)
