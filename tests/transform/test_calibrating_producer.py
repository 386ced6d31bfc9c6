"""Prediction events as the monitor reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raw_records import predictions
from raw_records import raw as as_record

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.stream.classes import ClassSets
from streamcal.transform import CalibratingProducer, CalibrationTransformer, MemorySource


class Recorded:
    """A producer that keeps what it is handed."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, dict[str, Any]]] = []

    def send(self, topic: str, *, key: bytes, value: bytes) -> int:
        self.records.append((topic, key, json.loads(value)))
        return len(self.records)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def mapped_source() -> MemorySource:
    source = MemorySource()
    source.publish("default", encode(new_document("default", 4, Platt(0.6, -0.2), at_ms=0)))
    return source


def test_an_event_says_what_was_served_from_what_by_which_map(recorded: Recorded) -> None:
    with CalibrationTransformer(mapped_source()) as transformer:
        sent = CalibratingProducer(recorded, transformer, "scored").send(
            id="r-1", score=0.9, ts_ms=1_362_000_000_123, segments={"country": "GB"}, weight=2.5
        )
    served = Platt(0.6, -0.2).apply_one(0.9)
    assert sent == (served, 4, 1)
    assert recorded.records == [
        (
            "scored",
            b"r-1",
            {
                "id": "r-1",
                "ts": 1_362_000_000_123,
                "raw_score": 0.9,
                "score": served,
                "map_version": 4,
                "model": "default",
                "segments": {"country": "GB"},
                "weight": 2.5,
            },
        )
    ]


def test_without_a_map_the_raw_score_is_sent_as_version_0(recorded: Recorded) -> None:
    with CalibrationTransformer(MemorySource()) as transformer:
        sent = CalibratingProducer(recorded, transformer).send(id=17, score=0.25, ts_ms=0, model="clicks")
    assert sent == (0.25, 0, 1)
    topic, key, event = recorded.records[0]
    assert (topic, key) == ("predictions", b"17")
    assert event == {"id": "17", "ts": 0, "raw_score": 0.25, "score": 0.25, "map_version": 0, "model": "clicks"}


def test_further_fields_go_along_and_never_replace_ours(recorded: Recorded) -> None:
    with CalibrationTransformer(MemorySource()) as transformer:
        CalibratingProducer(recorded, transformer).send(
            id="é", score=0.25, ts_ms=0, extra={"campaign": "spring", "score": 9, "id": "x"}
        )
    _, key, event = recorded.records[0]
    assert (event["campaign"], event["score"], event["id"]) == ("spring", 0.25, "é")
    assert key == "é".encode()


def test_scores_survive_the_event_to_the_bit(recorded: Recorded) -> None:
    scores = [0.1, 1 / 3, 1e-7, 5e-324, 0.9999999999999999]
    with CalibrationTransformer(mapped_source()) as transformer:
        producer = CalibratingProducer(recorded, transformer)
        for i, score in enumerate(scores):
            producer.send(id=i, score=score, ts_ms=0)
    assert [event["raw_score"] for _, _, event in recorded.records] == scores
    assert [event["score"] for _, _, event in recorded.records] == [Platt(0.6, -0.2).apply_one(p) for p in scores]


def test_a_bad_score_is_refused_and_nothing_is_sent(recorded: Recorded) -> None:
    with CalibrationTransformer(mapped_source()) as transformer, pytest.raises(ValueError, match=r"1\.3"):
        CalibratingProducer(recorded, transformer).send(id="a", score=1.3, ts_ms=0)
    assert recorded.records == []


def class_source() -> MemorySource:
    source = MemorySource()
    source.publish("pets/cat", encode(new_document("pets/cat", 4, Platt(0.6, -0.2), at_ms=0)))
    return source


def test_scores_of_several_classes_go_with_the_version_of_each_map_and_are_read_back_to_the_bit(
    recorded: Recorded,
) -> None:
    raw = {"cat": 0.5, "dog": 0.25, "cow": 0.125}
    with CalibrationTransformer(class_source()) as transformer:
        producer = CalibratingProducer(recorded, transformer)
        sent = producer.send_classes(
            id=7, scores=raw, ts_ms=1_700_000_000_000, model="pets", segments={"country": "GB"}
        )
        producer.send_classes(id=8, scores=raw, ts_ms=1_700_000_000_000, model="pets", weight=2, extra={"scores": 1})
    mapped = [Platt(0.6, -0.2).apply_one(0.5 / 0.875), 0.25 / 0.875, 0.125 / 0.875]
    assert list(sent.scores.values()) == pytest.approx([p / sum(mapped) for p in mapped], rel=1e-14)
    assert abs(sum(sent.scores.values()) - 1.0) < 1e-12
    assert sent.map_versions == {"cat": 4, "dog": 0, "cow": 0}
    assert (sent.handle, recorded.records[0][:2]) == (1, ("predictions", b"7"))
    event = recorded.records[0][2]
    assert event == {
        "id": "7",
        "ts": 1_700_000_000_000,
        "raw_scores": raw,
        "scores": sent.scores,
        "map_versions": sent.map_versions,
        "model": "pets",
        "segments": {"country": "GB"},
    }
    assert (recorded.records[1][2]["scores"], recorded.records[1][2]["weight"]) == (sent.scores, 2)
    batch = predictions(as_record(event), classes=ClassSets(of_model={"pets": ("cat", "dog", "cow")}))
    assert batch.raw.tolist() == [0.5 / 0.875, 0.25 / 0.875, 0.125 / 0.875]
    assert batch.served.tolist() == pytest.approx(list(sent.scores.values()), rel=1e-15)
    assert batch.map_version.tolist() == [4, 0, 0]


@pytest.mark.parametrize(
    "scores", [{"cat": 0.5}, {"cat": 0.5, "dog": 1.1}, {"cat": 0, "dog": 0}, {"cat": 0.5, "cow": 0.5}]
)
def test_scores_that_are_no_prediction_of_the_classes_are_refused_before_anything_is_sent(
    scores: dict[str, float], recorded: Recorded
) -> None:
    with CalibrationTransformer(class_source()) as transformer, pytest.raises(ValueError, match="score"):
        CalibratingProducer(recorded, transformer).send_classes(
            id=7, scores=scores, ts_ms=0, model="pets", classes=("cat", "dog")
        )
    assert not recorded.records
