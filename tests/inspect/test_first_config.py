"""Guesses on topics with traps; what is not to be guessed is asked for."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from foreign_schemas import SCHEMAS, START_MS
from registry_stub import running_registry

from streamcal.errors import ConfigError
from streamcal.inspect.first_config import Explorer, FirstConfig, first_config
from streamcal.inspect.proposal import CannotGuessError
from streamcal.inspect.sample import Sample, SampledRecord, sample_events

Event = dict[str, Any]


def sample(events: list[Event], **further: Any) -> Sample:
    return Sample([SampledRecord(json.dumps(event).encode()) for event in events], **further)


def proposed(predictions: list[Event], outcomes: list[Event], **given: Any) -> FirstConfig:
    dotted = {key.replace("__", "."): value for key, value in given.items()}
    return first_config((sample(predictions), sample(outcomes)), Explorer(dotted), dotted)


def streams(count: int = 600, seed: int = 7) -> tuple[list[Event], list[Event]]:
    rng = random.Random(seed)
    predictions, outcomes = [], []
    for i in range(count):
        score, at, name = rng.random(), START_MS + 1000 * i, f"a{rng.getrandbits(60)}"
        predictions.append({"id": name, "ts": at, "score": score})
        outcomes.append({"id": name, "ts": at + rng.randrange(100_000), "label": rng.random() < score})
    return predictions, sorted(outcomes, key=lambda event: event["ts"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCHEMAS)
def test_foreign_schemas_from_a_file_of_records(name: str, seed: int, tmp_path: Path) -> None:
    foreign = SCHEMAS[name](random.Random(seed))
    lines = [
        {"topic": topic, "value_base64": base64.b64encode(m.value).decode(), "key": m.key and m.key.decode(),
         "timestamp_ms": m.timestamp}
        for topic, messages in (("predictions", foreign.predictions), ("outcomes", foreign.outcomes))
        for m in messages
    ]  # fmt: skip
    path = tmp_path / "e.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with running_registry() as stub:
        for number, schema in foreign.schemas.items():
            stub.register(number, schema, foreign.kind)
        given = {"events.schema_registry.url": stub.url} if foreign.schemas else {}
        found = first_config(sample_events(path, 10_000), Explorer(given), given)
    for key, expected in foreign.expected.items():
        node: Any = found.config
        for part in key.split("."):
            node = getattr(node, part)
        assert node == expected, key
    assert found.pairs.share >= 0.95
    assert found.config.join.horizon.ms >= found.pairs.delay_quantile_ms(0.999)


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name not in {"avro", "protobuf"}])
def test_a_few_broken_events_change_no_guess(name: str) -> None:
    foreign = SCHEMAS[name](random.Random(5))
    rng = random.Random(6)

    def broken(value: bytes) -> bytes:
        if rng.random() > 0.015:
            return value
        event = json.loads(value)
        odd = [None, "n/a", -1, {}, [1], True, 1e9]
        return rng.choice([b"{", b"null", json.dumps({name: rng.choice(odd) for name in event}).encode()])

    samples = [
        Sample([SampledRecord(broken(m.value), m.key, m.headers, m.timestamp) for m in messages])
        for messages in (foreign.predictions, foreign.outcomes)
    ]
    found = first_config((samples[0], samples[1]), Explorer({}), {})
    for key, expected in foreign.expected.items():
        node: Any = found.config
        for part in key.split("."):
            node = getattr(node, part)
        assert node == expected, key
    assert found.pairs.share >= 0.95


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    predictions, outcomes = streams()
    for event in predictions:
        event["other"] = event["score"] / 2
    found = proposed(predictions, outcomes, events__prediction__score="other", join__horizon="9d", refit__mode="off")
    assert found.config.events.prediction.score == "other"
    assert found.config.join.horizon.ms == 9 * 86_400_000
    assert found.config.refit.mode == "off"
    assert "# given" in found.text


def test_a_wrong_value_that_is_given_is_an_error_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"join\.horizon"):
        proposed(*streams(), join__horizon="long")
    with pytest.raises(ConfigError, match="did you mean 'horizon'"):
        proposed(*streams(), join__horizont="9d")


def test_a_user_that_recurs_is_not_the_id() -> None:
    predictions, outcomes = streams()
    users = {event["id"]: f"user{i % 40}" for i, event in enumerate(predictions)}
    predictions = [
        {"user_id": users[e["id"]], **{k: v for k, v in e.items() if k != "id"}, "order": e["id"]} for e in predictions
    ]
    outcomes = [{"user_id": users[e["id"]], "ts": e["ts"], "label": e["label"], "order": e["id"]} for e in outcomes]
    found = proposed(predictions, outcomes)
    assert found.config.events.prediction.id == found.config.events.outcome.id == "order"


def test_two_models_on_one_id_and_outcomes_that_name_another_kind_of_model() -> None:
    predictions, outcomes = streams()
    predictions = [{**e, "model": m, "score": e["score"] * f} for e in predictions for m, f in (("a", 1), ("b", 0.9))]
    outcomes = [{**e, "model": "iPhone 14"} for e in outcomes]
    events = proposed(predictions, outcomes).config.events
    assert (events.prediction.model, events.outcome.model) == ("model", None)
    outcomes = [{**e, "model": "a"} for e in outcomes]
    assert proposed(predictions, outcomes).config.events.outcome.model == "model"


def test_the_time_of_an_outcome_is_not_that_of_its_prediction() -> None:
    predictions, outcomes = streams()
    began = {event["id"]: event["ts"] for event in predictions}
    outcomes = [{"id": e["id"], "ts": began[e["id"]], "closed_at": e["ts"], "label": e["label"]} for e in outcomes]
    assert proposed(predictions, outcomes).config.events.outcome.time == "closed_at"


def test_labels_of_unknown_words_are_told_apart_by_the_scores() -> None:
    predictions, outcomes = streams()
    outcomes = [{**e, "label": "R7" if e["label"] else "R2"} for e in outcomes]
    outcome = proposed(predictions, outcomes).config.events.outcome
    assert (outcome.positive_values, outcome.negative_values) == (("R7",), ("R2",))


def test_a_coin_is_no_label() -> None:
    predictions, outcomes = streams()
    rng = random.Random(1)
    outcomes = [{"id": e["id"], "ts": e["ts"], "side": rng.choice(["L", "R"])} for e in outcomes if e["label"]]
    found = proposed(predictions, outcomes)
    assert found.config.join.labels == "positives_only"
    assert any("positives only" in doubt for doubt in found.doubts)


def test_weights_and_disorder_are_seen() -> None:
    predictions, outcomes = streams(3000)
    rng = random.Random(4)
    predictions = [{**e, "weight": rng.choice([0.5, 2.0])} for e in predictions]
    rng.shuffle(predictions)
    found = proposed(predictions, outcomes).config
    assert found.events.prediction.weight == "weight"
    assert found.join.out_of_order.ms >= 40 * 60_000


def test_clocks_that_differ_give_a_skew() -> None:
    predictions, outcomes = streams()
    outcomes = [{**e, "ts": e["ts"] - 3000} for e in outcomes]
    found = proposed(predictions, outcomes)
    assert found.config.join.skew.ms == 60_000


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p, o: (p, [{**e, "id": f"x{e['id']}"} for e in o]), "no field of the outcomes sampled holds a value"),
        (lambda p, o: ([{**e, "score": 100 * e["score"]} for e in p], o), "percentages"),
        (lambda p, o: ([{**e, "score": str(e["score"])} for e in p], o), "written as text"),
    ],
)
def test_what_cannot_be_guessed_says_what_to_give(change: Any, expected: str) -> None:
    with pytest.raises(CannotGuessError, match=expected):
        proposed(*change(*streams()))


def test_wire_values_without_a_registry_ask_for_one() -> None:
    wire = Sample([SampledRecord(b"\0\0\0\0\1abc")] * 20)
    with pytest.raises(CannotGuessError) as caught:
        first_config((wire, wire), Explorer({}), {})
    assert "--schema-registry" in str(caught.value)


def test_a_topic_without_a_time_takes_that_of_the_record_and_says_so() -> None:
    predictions, outcomes = streams()
    stamped = [
        Sample(
            [
                SampledRecord(json.dumps({k: v for k, v in e.items() if k != "ts"}).encode(), timestamp=e["ts"])
                for e in es
            ]
        )
        for es in (predictions, outcomes)
    ]
    found = first_config((stamped[0], stamped[1]), Explorer({}), {})
    assert found.config.events.prediction.time_source == "record"
    assert found.pairs.share == 1.0
    assert any("time is that of the record" in doubt for doubt in found.doubts)


def test_hostile_names_and_values_stay_text() -> None:
    predictions, outcomes = streams()
    name = "a: b #c- d\u202e'"
    predictions = [
        {name: e["id"], "ts": e["ts"], "score": e["score"], "seg": ["x\ny: 1", "NO"][i % 2]}
        for i, e in enumerate(predictions)
    ]
    found = proposed(predictions, outcomes)
    assert found.config.events.prediction.id == name
    assert found.pairs.share == 1.0
