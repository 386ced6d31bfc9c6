"""Every shared case of join and statistics through the whole engine: records in, figures of the snapshot out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from join_cases import Expectation, expectations, load_cases, raw_values_never_fatal
from refit_streams import served_by

from streamcal.engine import Engine, Slice
from streamcal.runtime.config import Config
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.wiring import engine_settings
from streamcal.snapshot import ModelSnapshot, Series

T = 1_700_000_400_000  # on a full hour, so that panes and refits fall where one expects them
MINUTE_MS = 60_000
TOPICS = {"p": "predictions", "o": "outcomes"}
ALL = Series("all", "all")


def engine_of(partitions: Iterable[int] = (0,), **sections: Any) -> Engine:
    config = Config.model_validate({"segments": {"cuts": []}, **sections})
    return Engine(engine_settings(config, keep_everything=True), partitions)


def records(topic: str, values: Sequence[Any], partition: int = 0) -> Slice:
    return Slice(topic, partition, [LogRecord(json.dumps(value).encode()) for value in values])


def whole(model: ModelSnapshot, kind: str = "raw") -> dict[str, float]:
    """Figures of everything read by one model; absent ones left out, all of them where it has no rows."""
    for window in model.windows:
        if window.window == "all" and ALL in window.series:
            place = list(window.series).index(ALL)
            columns = window.raw if kind == "raw" else window.served
            return {name: float(column[place]) for name, column in columns.items() if not np.isnan(column[place])}
    return {}


# --- join ----------------------------------------------------------------------------------------------------


def read_one_by_one(engine: Engine, events: Sequence[Any]) -> None:
    for topic, value in events:
        engine.handle([records(TOPICS[topic], [value])])


def read_at_once(engine: Engine, events: Sequence[Any]) -> None:
    slices = []
    for short, topic in TOPICS.items():
        order = np.array([place for place, (name, _) in enumerate(events) if name == short], dtype=np.int64)
        held = [LogRecord(json.dumps(events[place][1]).encode()) for place in order]
        slices.append(Slice(topic, 0, held, order))
    engine.handle([piece for piece in slices if piece.records])


def read_outcomes_first(engine: Engine, events: Sequence[Any]) -> None:
    for topic in ("o", "p"):
        engine.handle([records(TOPICS[topic], [value for name, value in events if name == topic])])


def found(engine: Engine, expectation: Expectation) -> float:
    snapshot = engine.snapshot()
    figure, models = expectation.figure, snapshot.models
    if expectation.model is not None:
        models = [model for model in models if model.name == expectation.model]
    if figure.startswith("rejected."):
        return sum(count for (_, reason), count in snapshot.rejected.items() if reason == figure.partition(".")[2])
    if figure in snapshot.counters:
        counters = snapshot.counters if expectation.model is None else models[0].counters
        return counters[figure]
    if figure == "pending":
        return snapshot.pending
    figures = [whole(model) for model in models]
    if figure == "mean_score":
        (only,) = figures
        return only["mean_score"]
    return sum(held.get(figure, 0.0) for held in figures)


@pytest.mark.parametrize("read", [read_one_by_one, read_at_once, read_outcomes_first], ids=lambda read: read.__name__)
@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["id"])
def test_a_join_case_holds(case: dict[str, Any], read: Any) -> None:
    engine = engine_of(join=case["join"])
    read(engine, case["events"])
    held = list(expectations(case))
    before = {e: found(engine, e) for e in held if not e.drained}
    engine.drain()
    after = {e: found(engine, e) for e in held if e.drained}
    assert held
    for expectation, value in (before | after).items():
        assert value == pytest.approx(expectation.value, abs=1e-9), expectation


# What becomes of each value, by its text.
FATES = {
    '{"id":': "malformed",
    "": "malformed",
    "ÿþ{}": "malformed",
    "[]": "malformed",
    "null": "malformed",
    '{"id":"a","score":NaN,"ts":1700000000000}': "malformed",
    '{"id":"","score":0.5,"ts":1700000000000}': "missing_id",
    '{"score":0.5,"ts":1700000000000}': "missing_id",
    '{"id":7,"score":0.5,"ts":1700000000000}': None,  # sound: an integer id is its decimal string
}


@pytest.mark.parametrize("value", raw_values_never_fatal())
@pytest.mark.parametrize("topic", TOPICS.values())
def test_no_value_is_fatal_and_each_is_counted_by_reason(value: str, topic: str) -> None:
    engine = engine_of()
    engine.handle([Slice(topic, 0, [LogRecord(value.encode("latin-1"))])])  # escapes below 256 stand for bytes
    fate = FATES[value]
    if fate is None and topic == "outcomes":
        fate = "bad_label"  # it has none
    expected = {} if fate is None else {(topic, fate): 1}
    snapshot = engine.snapshot()
    assert dict(snapshot.rejected) == expected
    assert snapshot.counters["accepted_prediction"] == (1 if fate is None else 0)
    # and what follows is read as ever
    engine.handle([records("predictions", [{"id": "z", "score": 0.3, "ts": T}])])
    engine.handle([records("outcomes", [{"id": "z", "label": 1, "ts": T + 1}])])
    assert engine.snapshot().counters["matched"] == 1


# --- statistics ----------------------------------------------------------------------------------------------

STATISTICS = json.loads((Path(__file__).parent / "cases" / "statistics.json").read_text(encoding="utf-8"))
LOOSER = {"platt_slope", "platt_intercept", "offset_intercept", "ecce_sigma"}
"""Held to 2e-4, as the file says; all others to 1e-6 relative."""


def read_rows(engine: Engine, rows: Sequence[Sequence[float]], *, partition: int = 0, repeats: int = 1) -> None:
    """Rows of [score, n, positives] as events a second apart, positives and negatives spread evenly."""
    labelled = [
        (score, int((i + 1) * positives // n - i * positives // n)) for score, n, positives in rows for i in range(n)
    ] * repeats
    order = np.random.default_rng(3).permutation(len(labelled))
    predictions, outcomes = [], []
    for place, row in enumerate(order):
        score, label = labelled[row]
        predictions.append({"id": str(place), "score": score, "ts": T + 1000 * place})
        outcomes.append({"id": str(place), "label": label, "ts": T + 1000 * place + 1})
    engine.handle([records("predictions", predictions, partition), records("outcomes", outcomes, partition)])


def assert_figures(figures: dict[str, float], expect: dict[str, float], absent: Sequence[str] = ()) -> None:
    for name, value in expect.items():
        looser = name in LOOSER
        assert figures[name] == pytest.approx(value, rel=2e-4 if looser else 1e-6, abs=2e-4 if looser else 1e-9), name
    assert not set(absent) & figures.keys()


@pytest.mark.parametrize("kind", ["raw", "served"])
@pytest.mark.parametrize("case", STATISTICS["figures"], ids=lambda case: case["id"])
def test_a_statistics_case_holds(case: dict[str, Any], kind: str) -> None:
    engine = engine_of(refit={"mode": "off"})
    read_rows(engine, case["rows"])
    (model,) = engine.snapshot().models
    assert model.name == STATISTICS["model"]
    assert_figures(whole(model, kind), case["expect"], case.get("absent", ()))


@pytest.mark.parametrize("case", STATISTICS["merge"], ids=lambda case: case["id"])
def test_shards_merge_as_counts_and_not_as_figures(case: dict[str, Any]) -> None:
    shards = range(len(case["shards"]))
    merged = engine_of(shards)
    for shard, rows, expect in zip(shards, case["shards"], case["expect_shards"], strict=True):
        alone = engine_of()
        read_rows(alone, rows)
        assert_figures(whole(alone.snapshot().models[0]), expect)
        read_rows(merged, rows, partition=shard)
    assert_figures(whole(merged.snapshot().models[0]), case["expect"])


def refitted(rows: Sequence[Sequence[float]]) -> ModelSnapshot:
    """The model after its rows came each hour for half a day, so that challengers are judged on later hours."""
    engine = engine_of(windows={"lengths": ["24h"], "pane": "60s"})
    for hour in range(12):
        values = [(score, int(place < positives)) for score, n, positives in rows for place in range(int(n))]
        times = [T + 60 * MINUTE_MS * hour + 997 * place for place in range(len(values))]
        events = list(enumerate(zip(values, times, strict=True)))
        predictions = [{"id": f"{hour}-{i}", "score": score, "ts": ts} for i, ((score, _), ts) in events]
        outcomes = [{"id": f"{hour}-{i}", "label": label, "ts": ts + 1} for i, ((_, label), ts) in events]
        engine.handle([records("predictions", predictions), records("outcomes", outcomes)])
    (model,) = engine.snapshot().models
    return model


@pytest.mark.parametrize(
    "case", [case for case in STATISTICS["figures"] if case.get("refit") == "refused"], ids=lambda case: case["id"]
)
def test_a_refit_that_must_be_refused_is(case: dict[str, Any]) -> None:
    model = refitted(case["rows"])
    assert model.champion is None
    assert model.refits["refused", "slope_not_positive"] >= 8
    assert {result for result, _ in model.refits} == {"refused"}


def test_the_same_number_of_sound_rows_is_refitted() -> None:
    (case,) = [case for case in STATISTICS["figures"] if case["id"] == "over-confident"]
    model = refitted(case["rows"])
    assert model.refits["promoted", ""] == 1
    assert model.champion is not None


def test_a_refit_replaces_the_map_in_force_and_is_not_put_on_top_of_it() -> None:
    """Raw .5 where .268941 comes true: served as that after refits, although served scores are right by then."""
    engine = engine_of(refit={"min_count": 20}, windows={"lengths": ["24h"]}, join={"out_of_order": "0s"})
    rate = 0.268941
    rng = np.random.default_rng(11)
    hours, per_hour = 16, 900
    scores = 1 / (1 + np.exp(-rng.normal(0.0, 1.0, size=hours * per_hour)))
    truth = scores / (scores + (1 - scores) * np.e)  # an offset of -1 in the logit
    labels = rng.random(len(scores)) < truth
    for hour in range(hours):
        rows = range(per_hour * hour, per_hour * (hour + 1))
        served = served_by(engine.loop(0), scores[rows.start : rows.stop]) if hour else scores[: rows.stop]
        predictions = [
            {
                "id": str(i),
                "raw_score": float(scores[i]),
                "score": float(served[i - rows.start]),
                "map_version": engine.loop(0).version if hour else 0,
                "ts": T + 4000 * i,
            }
            for i in rows
        ]
        outcomes = [{"id": str(i), "label": int(labels[i]), "ts": T + 4000 * i + 1} for i in rows]
        engine.handle([records("predictions", predictions), records("outcomes", outcomes)])
    found = float(served_by(engine.loop(0), np.array([0.5]))[0])
    assert engine.loop(0).version >= 1
    assert found == pytest.approx(rate, abs=0.02)  # thousands of rows: one standard error is below .008
