"""Predictions of several classes rewritten: as the monitor reads them, and served as the transformer serves."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from raw_records import T, fate, predictions, raw

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.runtime.config import Config
from streamcal.runtime.transforming.plan import make_plan
from streamcal.stream.classes import ClassSets
from streamcal.stream.fields import PredictionFields
from streamcal.transform import CalibrationTransformer, MemorySource
from streamcal.transform.stream.rewrite import Rewriter, check_places

SETS = ClassSets(of_model={"pets": ("cat", "dog"), "bare": ("cat", "dog")})


@pytest.fixture
def transformer() -> Iterator[CalibrationTransformer]:
    source = MemorySource()
    source.publish("pets/dog", encode(new_document("pets/dog", 3, Platt(0.5, -0.25), at_ms=0)))
    with CalibrationTransformer(source) as made:
        yield made


def rewriter(transformer: CalibrationTransformer, sets: ClassSets = SETS, **paths: Any) -> Rewriter:
    fields = PredictionFields(**paths)
    options: dict[str, Any] = {"classes": sets, "apply_classes": transformer.transform_classes}
    return Rewriter(fields, transformer.transform, max_bytes=10_000, **options)


def test_served_scores_take_the_place_of_the_raw_ones(transformer: CalibrationTransformer) -> None:
    text = b'{"id":"a","scores":{"dog":0.50,"cow":0.9,"cat":0.25},"model":"pets","score":"?"}'
    got = rewriter(transformer)(raw(text))
    served, _ = transformer.transform_classes({"cat": 0.25, "dog": 0.5}, "pets")
    assert got.outcome == "served"
    event = json.loads(got.value or b"")
    assert event == {
        "id": "a",
        "scores": served,
        "model": "pets",
        "score": "?",
        "raw_scores": {"dog": 0.5, "cow": 0.9, "cat": 0.25},
        "map_versions": {"cat": 0, "dog": 3},
    }
    assert b'"raw_scores":{"dog":0.50,"cow":0.9,"cat":0.25}' in (got.value or b"")
    again = rewriter(transformer)(raw(got.value))
    assert again.value == got.value
    assert rewriter(transformer)(raw(text.replace(b"pets", b"bare"))).outcome == "unmapped"
    assert json.loads(rewriter(transformer)(raw({"score": 0.5})).value or b"")["raw_score"] == 0.5


def test_places_may_lie_deep_in_the_value(transformer: CalibrationTransformer) -> None:
    paths = {"scores": "out.p", "raw_scores": "out.raw.p", "map_versions": "v"}
    got = rewriter(transformer, **paths)(raw({"model": "pets", "out": {"p": {"cat": 0.25, "dog": 0.5}, "x": 1}}))
    event = json.loads(got.value or b"")
    assert event["out"]["raw"] == {"p": {"cat": 0.25, "dog": 0.5}}
    assert (event["out"]["x"], event["v"]) == (1, {"cat": 0, "dog": 3})


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        ({"scores": {"cat": 0.5}}, "bad_score"),
        ({"scores": {"cat": 0.5, "dog": 1.1}}, "bad_score"),
        ({"scores": {"cat": 0, "dog": 0}}, "bad_score"),
        ({"scores": 0.5}, "malformed"),
        ({"score": 0.5}, "bad_score"),
        ({"scores": {"cat": 0.5, "dog": 0.5}, "map_versions": {"dog": 2}}, "without_raw"),
        ({"scores": {"cat": 0.5, "dog": 0.5}, "map_version": 2}, "without_raw"),
        ({"scores": {"cat": 0.5, "dog": 0.5}, "map_versions": {"dog": None}}, "served"),
        ({"scores": {"cat": 0.5, "dog": 0.5}, "raw_scores": {"cat": 0.5}}, "bad_score"),
        ({"scores": {"cat": 0.5, "dog": 0.5}, "raw_scores": {}}, "served"),
        ({"scores": "x", "raw_scores": {"cat": 0.5, "dog": 0.5}, "map_versions": {"cat": 1}}, "served"),
        ({"scores": {"cat": 0.5, "dog": 0.5}, "model": "pets/cat"}, "malformed"),
    ],
)
def test_what_cannot_be_served_passes_as_it_came(
    transformer: CalibrationTransformer, event: dict[str, Any], outcome: str
) -> None:
    record = raw({"model": "pets", **event})
    got = rewriter(transformer)(record)
    assert got.outcome == outcome
    if outcome != "served":
        assert got.value == record.value
        assert list(got.headers) == [("streamcal-unserved", outcome.encode())]


def test_the_monitor_takes_whatever_was_served_and_nothing_else(transformer: CalibrationTransformer) -> None:
    draw = random.Random(3)
    rewrite, taken = rewriter(transformer), 0
    junk = (None, 0, 1, 0.5, 2, -1, "x", True, [], {}, {"cat": 0.5}, {"cat": 0.25, "dog": 0.5, "cow": "x"})
    for _ in range(1500):
        event: dict[str, Any] = {"id": "a", "ts": T, "model": draw.choice(("pets", "bare"))}
        event |= {"scores": {"cat": draw.random(), "dog": draw.random()}}
        for name in ("scores", "raw_scores"):
            if draw.random() < 0.3:
                event[name] = draw.choice(junk)
        if isinstance(event["scores"], dict) and draw.random() < 0.3:
            event["scores"] = event["scores"] | {draw.choice(("cat", "dog")): draw.choice(junk)}
        got = rewrite(raw(event))
        before = predictions(raw(event), classes=SETS)
        if got.outcome not in ("served", "unmapped"):
            # Of two faults the monitor may name the other one: it looks at `scores` beside raw ones, too.
            assert {fate(before), got.outcome} <= {"malformed", "bad_score"}
            continue
        after = predictions(raw(got.value), classes=SETS)
        assert fate(after) == "accepted"
        assert abs(after.served.sum() - 1.0) < 1e-12
        if fate(before) == "accepted":
            taken += 1
            assert np.array_equal(after.raw, before.raw)
    assert taken > 300


def test_places_of_both_kinds_are_checked_where_they_are_written() -> None:
    no_raw = PredictionFields(raw_scores=None, map_versions="scores", raw_score=None)
    assert [name for name, _ in check_places(no_raw)] == ["raw_score"]
    assert [name for name, _ in check_places(no_raw, SETS)] == ["raw_score", "raw_scores", "map_versions"]
    assert [name for name, _ in check_places(no_raw, ClassSets(usual=("a", "b")))] == ["raw_scores", "map_versions"]


def test_the_plan_knows_the_classes() -> None:
    given = {"kafka": {"bootstrap_servers": ["b:1"], "group_id": "g"}, "transform": {"input": "raw"}}
    plan = make_plan(Config.model_validate({**given, "models": {"pets": {"classes": ["cat", "dog"]}}}))
    assert plan.classes.of("pets") == ("cat", "dog")
