"""Classes in the configuration: what holds for one class, and what cannot be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamcal.errors import ConfigError
from streamcal.runtime.config import Config, load_config
from streamcal.runtime.estimate import Load, estimate
from streamcal.runtime.wiring import engine_settings


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def read(text: str) -> Config:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, environ={}, require_kafka=False)

    return read


def problems(load: Any, text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        load(text)
    return dict(raised.value.problems)


PETS = """
join: {horizon: 1h}
alarms: {tolerance_logit: 0.2}
models:
  pets:
    classes: [cat, dog, 7]
    horizon: 2h
    refit: {every: 6h, min_count: 30}
    prior: {positive_weight: 2}
  pets/dog:
    horizon: 3h
    refit: {min_count: 40}
  ctr: {prior: {positive_weight: 3}}
"""


def test_a_class_has_what_its_model_has_unless_it_is_configured_itself(load: Any) -> None:
    config = load(PETS)
    cat, dog, cow = (config.model(f"pets/{name}") for name in ("cat", "dog", "cow"))
    assert config.model("pets").classes == ("cat", "dog", "7")
    assert (cat.horizon_ms, cat.refit.every.text, cat.refit.min_count, cat.prior.positive_weight) == (
        7_200_000,
        "6h",
        30,
        2,
    )
    assert (dog.horizon_ms, dog.refit.every.text, dog.refit.min_count) == (10_800_000, "6h", 40)
    assert cat.alarms.tolerance_logit == 0.2
    assert (cow.horizon_ms, cow.prior, cow.classes) == (3_600_000, None, ())
    assert config.longest_horizon_ms == 10_800_000
    settings = engine_settings(config)
    assert list(settings.models) == ["pets/cat", "pets/dog", "pets/7", "ctr"]
    assert settings.rules("pets/7").horizon_ms == 7_200_000
    assert settings.loop("pets/dog").min_count == 40


def test_classes_of_every_model_and_one_without(load: Any) -> None:
    config = load("{events: {classes: [a, b]}, models: {ctr: {classes: []}, own: {classes: [x, y]}}}")
    assert config.model("any").classes == ("a", "b")
    assert config.model("ctr").classes == ()
    assert config.model("own").classes == ("x", "y")
    assert config.class_sets.counted(["any", "ctr", "own", "any/a"]) == ["any/a", "any/b", "ctr", "own/x", "own/y"]


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("events: {classes: cat}", "events.classes", "must be a list of classes"),
        ("events: {classes: [cat]}", "events.classes", "two classes or more"),
        ("events: {classes: [cat, dog, cat]}", "events.classes.2", "named twice"),
        ("events: {classes: [1, '1']}", "events.classes.1", "named twice"),
        ("events: {classes: [cat, a/b]}", "events.classes.1", "slash"),
        ("events: {classes: [cat, '']}", "events.classes.1", "must be text"),
        ("events: {classes: [cat, 0.5]}", "events.classes.1", "must be text"),
        ("events: {classes: [cat, true]}", "events.classes.1", "must be text"),
        ("events: {classes: [cat, 'd\"g']}", "events.classes.1", "quotation marks"),
        ("models: {pets: {classes: [cat]}}", "models.pets.classes", "two classes or more"),
        ("events: {prediction: {scores: $key}}", "events.prediction.scores", "object"),
        ("events: {prediction: {raw_scores: $header.x}}", "events.prediction.raw_scores", "object"),
        ("{events: {classes: [a, b]}, join: {labels: positives_only}}", "join.labels", "where a model has classes"),
        ("{models: {m: {classes: [a, b]}}, join: {labels: positives_only}}", "models.m.labels", "where a model has"),
        ("models: {m: {classes: [a, b], labels: positives_only}}", "models.m.labels", "where a model has classes"),
        ("models: {m: {classes: [a, b]}, m/a: {labels: positives_only}}", "models.m/a.labels", "where a model has"),
        ("models: {m: {classes: [a, b]}, m/a: {classes: [c, d]}}", "models.m/a.classes", "belongs to models.m"),
        ("models: {m: {classes: [a, b]}, m/a: {filter: {path: x, equals: 1}}}", "models.m/a.filter", "belongs to"),
        (
            f"models: {{m: {{classes: {list(range(600))}}}, n: {{classes: {list(range(401))}}}}}",
            "models",
            "1001 classes",
        ),
    ],
)
def test_what_cannot_be_said_is_told_with_its_key(load: Any, text: str, key: str, says: str) -> None:
    found = problems(load, text)
    assert list(found) == [key]
    assert says in found[key]


def test_the_hash_sees_classes_and_where_their_scores_are_and_only_where_there_are_any(load: Any) -> None:
    elsewhere = "prediction: {scores: p.all, raw_scores: null}"
    assert load(f"events: {{{elsewhere}}}").hash() == Config().hash()
    hashes = [
        load(text).hash()
        for text in (
            "{}",
            "events: {classes: [a, b]}",
            "events: {classes: [b, a]}",
            "models: {m: {classes: [a, b]}}",
            f"{{models: {{m: {{classes: [a, b]}}}}, events: {{{elsewhere}}}}}",
        )
    ]
    assert len(set(hashes)) == 5


def test_the_estimate_counts_the_rows_of_every_class(load: Any) -> None:
    one, three = load("models: {m: {}}"), load("models: {m: {classes: [a, b, c]}}")
    load_ = Load(predictions_per_second=10, segments=5)
    assert estimate(three, load_).remembered == pytest.approx(3 * estimate(one, load_).remembered, rel=1e-6)
    assert estimate(three, load_).figure_series == 3 * estimate(one, load_).figure_series
    assert estimate(load("events: {classes: [a, b]}"), load_).figure_series == 2 * estimate(one, load_).figure_series
