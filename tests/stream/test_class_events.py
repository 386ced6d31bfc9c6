"""Events of models of several classes: what is taken, what is refused, and the rows they become."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from class_streams import CLASSES, SETS, class_events
from raw_records import T, fate, outcome, outcomes, prediction, predictions, raw
from recount_classes import expand

from streamcal.stream.classes import ClassSets
from streamcal.stream.codec import EventFilter, ModelFilter, OutcomeFields, PredictionFields
from streamcal.stream.events import NO_MODEL, NO_VERSION, Names, OutcomeBatch, PredictionBatch

pytestmark = pytest.mark.parametrize("fast", [True, False], ids=["fast", "judged"])

PETS = ClassSets(of_model={"pets": ("cat", "dog"), "sheep": ("white", "black")})
ALL_PETS = ClassSets(usual=("cat", "dog"), of_model={"ctr": ()})


def pets(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "ts": T, "model": "pets", **fields}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (pets(scores={"cat": 0.3, "dog": 0.5}), "accepted"),
        (pets(scores={"cat": 1, "dog": 0}), "accepted"),
        (pets(scores={"cat": 1e-320, "dog": 0}), "accepted"),
        (pets(scores={"cat": 0.3, "dog": 0.5, "cow": "unread"}, score=7, raw_score="x"), "accepted"),
        (pets(scores={"cat": 1.000001, "dog": -0.000001}), "accepted"),
        (pets(scores={"cat": 1.0000011, "dog": 0.5}), "bad_score"),
        (pets(scores={"cat": -0.000001, "dog": 0}), "bad_score"),
        (pets(scores={"cat": 0, "dog": 0, "cow": 1}), "bad_score"),
        (pets(scores={"cat": 0.3}), "bad_score"),
        (pets(scores={"cat": 0.3, "dog": None}), "bad_score"),
        (pets(scores={"cat": 0.3, "dog": "0.5"}), "bad_score"),
        (pets(scores={"cat": 0.3, "dog": True}), "bad_score"),
        (b'{"id":"a","ts":1700000000000,"model":"pets","scores":{"cat":1e999,"dog":0.1}}', "bad_score"),
        (b'{"id":"a","ts":1700000000000,"model":"pets","scores":{"cat":NaN,"dog":0.1}}', "malformed"),
        (pets(score=0.3), "bad_score"),
        (pets(scores=None), "bad_score"),
        (pets(scores=[0.3, 0.5]), "malformed"),
        (pets(scores=0.3), "malformed"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, raw_scores={"cat": 0.2, "dog": 0.2}), "accepted"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, raw_scores={}), "accepted"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, raw_scores={"cat": 0.2}), "bad_score"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, raw_scores={"cat": 0, "dog": 0}), "bad_score"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, raw_scores=7), "malformed"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, map_versions={"cat": 3}), "accepted"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, map_versions={"cat": -3}), "malformed"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, map_versions={"cat": "3"}), "malformed"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, map_versions=3), "malformed"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, map_version=-3), "malformed"),
        (pets(scores={"cat": 0.3, "dog": 0.5}, model="pets/cat"), "malformed"),
        (prediction(model="pets/cat"), "malformed"),
        (prediction(model="pets/cow"), "accepted"),
        (prediction(scores="unread", raw_scores=[], map_versions=-1), "accepted"),
        (prediction(score=None, scores={"cat": 0.3, "dog": 0.5}), "bad_score"),
        (
            pets(model="sheep", scores={"white": 0.5, "black": 0.1, "cat": "unread"}, map_versions={"cat": -1}),
            "accepted",
        ),
        (pets(model="sheep", scores={"cat": 0.5, "dog": 0.1}), "bad_score"),
        (pets(model=1.5, scores={"cat": 0.5, "dog": 0.1}), "malformed"),
        (pets(id=None, scores={"cat": 2}), "missing_id"),
        (pets(scores={"cat": 2, "dog": 0.1}, ts=5), "bad_score"),
        (pets(scores={"cat": 0.5, "dog": 0.1}, ts=5), "bad_time"),
        (pets(scores={"cat": 0.5, "dog": 0.1}, segments="GB"), "malformed"),
    ],
)
def test_fate_of_a_prediction(event: object, expected: str, fast: bool) -> None:
    taken = predictions(raw(event), fast=fast, classes=PETS)
    assert fate(taken) == expected
    assert len(taken.rejected) + len(np.unique(taken.row)) == 1


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (outcome(model="pets", label="cat"), "accepted"),
        (outcome(model="pets", label="cow"), "bad_label"),
        (outcome(model="pets", label=1), "bad_label"),
        (outcome(model="pets", label=None), "bad_label"),
        (outcome(model="pets", label=["cat"]), "bad_label"),
        (outcome(model="ctr", label="cat"), "bad_label"),
        (outcome(model="ctr", label=1), "accepted"),
        (outcome(model="pets/cat", label=1), "malformed"),
        (outcome(model="pets/cow", label=1), "accepted"),
        (outcome(label="cat"), "accepted"),
        (outcome(label="white"), "accepted"),
        (outcome(label=0), "accepted"),
        (outcome(label="cow"), "bad_label"),
        (outcome(label=None), "bad_label"),
    ],
)
def test_fate_of_an_outcome(event: object, expected: str, fast: bool) -> None:
    taken = outcomes(raw(event), fast=fast, classes=PETS)
    assert fate(taken) == expected
    assert len(taken.rejected) + len(np.unique(taken.row)) == 1


def test_where_every_model_has_classes_a_yes_or_no_is_no_label_and_one_path_serves_both_kinds(fast: bool) -> None:
    every = ClassSets(usual=("0", "1", "true"))
    assert fate(outcomes(raw(outcome(label=False)), fast=fast, classes=every)) == "bad_label"
    batch = outcomes(*(raw(outcome(label=label)) for label in (1, "1", 1.0, True)), fast=fast, classes=every)
    assert batch.label.reshape(4, 3).tolist() == [[0, 1, 0]] * 3 + [[0, 0, 1]]
    fields = PredictionFields(score="p", scores="p")
    taken = predictions(raw({"id": "a", "ts": T, "p": {"0": 0.1, "1": 0.2, "true": 0.1}}), fields=fields, classes=every)
    assert taken.served.tolist() == [0.25, 0.5, 0.25]
    both = predictions(
        raw({"id": "a", "ts": T, "p": {"cat": 0.125, "dog": 0.375}}),
        raw({"id": "a", "ts": T, "p": 0.7, "model": "ctr"}),
        raw({"id": "a", "ts": T, "p": 0.7}),
        fields=fields,
        classes=ALL_PETS,
    )
    assert both.served.tolist() == [0.25, 0.75, 0.7]
    assert [r.reason for r in both.rejected] == ["malformed"]


def test_rows_of_a_prediction_share_all_but_class_and_scores(fast: bool) -> None:
    names = Names(("country", "device"))
    first = pets(scores={"dog": 0.4, "cat": 0.1}, segments={"country": "GB"}, weight=2)
    mapped = pets(
        scores={"cat": 0.5, "dog": 0.5}, raw_scores={"cat": 0.1, "dog": 0.3}, map_versions={"dog": 8}, ts=T + 1
    )
    single = prediction(score=0.3, raw_score=0.2, map_version=1, model="ctr", ts=T + 2)
    half = pets(scores={"cat": 0.5, "dog": 0.5}, map_versions={"dog": 8}, map_version=2)
    batch = predictions(raw(first), raw(5), raw(mapped), raw(single), raw(half), names=names, fast=fast, classes=PETS)
    assert names.models == ["pets/cat", "pets/dog", "ctr"]
    assert batch.row.tolist() == [0, 0, 2, 2, 3, 4, 4]
    assert [(r.row, r.reason) for r in batch.rejected] == [(1, "malformed")]
    assert batch.model.tolist() == [0, 1, 0, 1, 2, 0, 1]
    assert batch.served.tolist() == [0.2, 0.8, 0.5, 0.5, 0.3, 0.5, 0.5]
    assert batch.raw.tolist()[:5] == [0.2, 0.8, 0.25, 0.3 / (0.1 + 0.3), 0.2]
    assert np.isnan(batch.raw[5:]).all()
    assert batch.map_version.tolist() == [NO_VERSION, NO_VERSION, NO_VERSION, 8, 1, 2, 8]
    assert batch.time_ms.tolist() == [T, T, T + 1, T + 1, T + 2, T, T]
    assert batch.weight is not None
    assert batch.weight.tolist() == [2, 2, 1, 1, 1, 1, 1]
    assert names.profiles[batch.profile[1]] == ("GB", "__missing__")
    assert len(set(batch.profile.tolist())) == 2
    assert batch.clock_row.tolist() == [0, 2, 3, 4]


def test_an_id_is_another_one_for_every_class_and_the_same_in_both_topics(fast: bool) -> None:
    scores = {"cat": 0.5, "dog": 0.5}
    taken = predictions(
        raw(pets(scores=scores)),
        raw(pets(model="dogs", scores=scores)),
        raw(prediction(model="ctr")),
        fast=fast,
        classes=ClassSets(of_model={"pets": ("cat", "dog"), "dogs": ("dog", "cat")}),
    )
    plain = predictions(raw(prediction()))
    ids = list(zip(taken.id_hi.tolist(), taken.id_lo.tolist(), strict=True))
    assert ids[0] == ids[3]
    assert ids[1] == ids[2]
    assert len(set(ids)) == 3
    assert ids[4] == (plain.id_hi[0], plain.id_lo[0])
    known = outcomes(raw(outcome(label="dog")), fast=fast, classes=ClassSets(of_model={"x": ("cat", "dog")}))
    assert list(zip(known.id_hi.tolist(), known.id_lo.tolist(), strict=True)) == ids[:2]
    assert known.label.tolist() == [0, 1]
    assert known.model.tolist() == [NO_MODEL, NO_MODEL]


def test_filters_and_the_usual_classes_name_what_an_event_does_not(fast: bool) -> None:
    names = Names(("country", "device"))
    filters = [ModelFilter("ctr", "kind", "click"), ModelFilter("sheep", "kind", "wool")]
    sets = ClassSets(usual=("cat", "dog"), of_model={"ctr": (), "sheep": ("white", "black")})
    events = [
        {"id": "a", "ts": T, "kind": "click", "score": 0.5},
        {"id": "a", "ts": T, "kind": "wool", "scores": {"white": 0.5, "black": 0.5}},
        {"id": "a", "ts": T, "kind": "else", "scores": {"cat": 0.5, "dog": 0.5}},
    ]
    batch = predictions(*map(raw, events), names=names, fast=fast, model_filters=filters, classes=sets)
    assert [names.models[i] for i in batch.model] == ["ctr", "sheep/white", "sheep/black", "default/cat", "default/dog"]


def test_sampled_out_and_filtered_events_still_tell_the_time_once(fast: bool) -> None:
    records = [raw(pets(id=f"i{i}", ts=T + i, scores={"cat": 0.5, "dog": 0.5})) for i in range(200)]
    taken = predictions(*records, fast=fast, classes=PETS, sample_rate=0.25)
    assert taken.clock_ms.tolist() == [T + i for i in range(200)]
    assert len(taken.row) == 2 * (200 - taken.ignored)
    labels = [raw(outcome(id=f"i{i}", ts=T + i, label="cat", model="pets")) for i in range(200)]
    known = outcomes(*labels, fast=fast, classes=PETS, sample_rate=0.25)
    assert known.row.tolist() == taken.row.tolist()
    pick = OutcomeFields(filter=EventFilter("kind", "k"))
    known = outcomes(raw(outcome(label="cat", kind="k")), raw(outcome(label=3)), fields=pick, fast=fast, classes=PETS)
    assert known.row.tolist() == [0, 0]
    assert known.ignored == 1


def test_without_configured_classes_scores_by_class_are_not_looked_at(fast: bool) -> None:
    batch = predictions(raw(prediction(scores="x", raw_scores=3, map_versions=[])), fast=fast)
    assert batch.served.tolist() == [0.3]


def same(first: PredictionBatch | OutcomeBatch, second: PredictionBatch | OutcomeBatch) -> bool:
    fields = type(first).__dataclass_fields__
    return all(np.array_equal(getattr(first, n), getattr(second, n), equal_nan=n == "raw") for n in fields)


def test_any_stream_is_the_rows_of_its_independent_expansion(fast: bool) -> None:
    events = class_events(120, 1, seed=5)
    for topic, decode in (("p", predictions), ("o", outcomes)):
        values = [value for t, _, value, _ in events if t == topic]
        names = Names(("country", "device"))
        batch = decode(*map(raw, values), names=names, fast=fast, classes=SETS)  # type: ignore[operator]
        rows = [
            [row for told in expand([event], CLASSES) for row in told[2]["rows"]]
            for event in events
            if event[0] == topic
        ]
        assert batch.row.tolist() == [i for i, held in enumerate(rows) for _ in held]
        flat = [row for held in rows for row in held]
        assert batch.time_ms.tolist() == [row["ts"] for row in flat]
        if topic == "p":
            assert [names.models[i] for i in batch.model] == [row["model"] for row in flat]
            assert batch.served.tolist() == [row["score"] for row in flat]
            weights = np.ones(len(flat)) if batch.weight is None else batch.weight
            assert weights.tolist() == [row.get("weight", 1.0) for row in flat]
        else:
            assert batch.label.tolist() == [row["label"] for row in flat]


def test_damaged_events_meet_the_same_fate_in_columns_and_by_themselves(fast: bool) -> None:
    """Fuzz: the two halves of the decoder agree, and nothing is raised."""
    draw = random.Random(11 + fast)
    junk: list[Any] = [
        None,
        0,
        1,
        0.5,
        2,
        -1,
        "x",
        "cat",
        "1",
        True,
        [],
        {},
        {"cat": 0.5},
        {"cat": 1, "dog": 2, "1": 0},
    ]
    names = ("id", "ts", "model", "scores", "raw_scores", "map_versions", "map_version", "label", "score", "segments")
    for _ in range(60):
        values = [dict(value) for _, _, value, _ in class_events(8, 1, seed=draw.randrange(10**6))]
        for value in values:
            if draw.random() < 0.5:
                value[draw.choice(names)] = draw.choice(junk)
            if isinstance(value.get("scores"), dict) and draw.random() < 0.3:
                value["scores"] = value["scores"] | {draw.choice(("cat", "yak", "1")): draw.choice(junk)}
        for decode in (predictions, outcomes):
            one = decode(*map(raw, values), fast=True, classes=SETS)  # type: ignore[operator]
            assert same(one, decode(*map(raw, values), fast=False, classes=SETS))  # type: ignore[operator]
