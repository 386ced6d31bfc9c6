"""The transformer: values, rules of the table, and changes under load."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Map, Platt, Prior
from streamcal.transform import CalibrationTransformer, MapUpdate, MemorySource, TransformerStatus

WAIT_S = 30.0
"""Only reached when a test fails."""


def document(version: int, map_: Map | None = None, model: str = "default") -> bytes:
    return encode(new_document(model, version, map_ or of_version(version), at_ms=version))


def of_version(version: int) -> Platt:
    return Platt(1.0, -version / 100)


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def transformer(source: MemorySource) -> Iterator[CalibrationTransformer]:
    with CalibrationTransformer(source) as made:
        yield made


def marked(status: TransformerStatus) -> int:
    """Version of the map that the tests publish after each update, to know that it has been taken."""
    return status.maps["mark"].version if "mark" in status.maps else 0


def publish(
    source: MemorySource, transformer: CalibrationTransformer, data: bytes | None, model: str = "default"
) -> None:
    """Publish and wait until it has been taken, or refused."""
    mark = marked(transformer.status()) + 1
    source.publish(model, data)
    source.publish("mark", document(mark, model="mark"))
    assert transformer.wait_until(lambda status: marked(status) == mark, WAIT_S)


def test_what_the_source_holds_is_in_force_at_once(source: MemorySource) -> None:
    source.publish("default", document(1, Prior(negative_sampling_rate=0.01)))
    with CalibrationTransformer(source) as transformer:
        served, version = transformer.transform(0.5)
        assert version == 1
        assert served == pytest.approx(0.00990099, rel=1e-6)
        assert transformer.status().caught_up


def test_without_a_map_scores_come_back_as_they_are_and_are_counted(transformer: CalibrationTransformer) -> None:
    assert transformer.transform(0.3) == (0.3, 0)
    served, version = transformer.transform(np.array([0.1, 0.0, 1.0]))
    assert (served.tolist(), version) == ([0.1, 0.0, 1.0], 0)
    assert transformer.status().unmapped == 4


def test_an_unknown_model_is_not_served_another_models_map(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(1))
    assert transformer.transform(0.3, "other") == (0.3, 0)
    assert transformer.transform(0.3)[1] == 1
    assert transformer.status().unmapped == 1


def test_every_kind_of_number_and_array_is_served_alike(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(7))
    expected = of_version(7).apply_one(0.25)
    for score in (0.25, np.float64(0.25), np.float32(0.25), np.array(0.25)):
        assert transformer.transform(score) == (expected, 7)
        assert type(transformer.transform(score)[0]) is float
    for scores in ([0.25, 0.25], np.array([0.25, 0.25], np.float32), np.full((2, 1), 0.25)):
        served, version = transformer.transform(scores)
        assert version == 7
        assert served.dtype == np.float64
        assert served.shape == np.shape(scores)
        assert (served == expected).all()
    assert transformer.transform(1)[0] == of_version(7).apply_one(1.0)
    assert transformer.transform(np.array([]))[0].shape == (0,)


def test_arrays_beyond_what_is_worked_on_at_once_are_served_alike(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(7))
    scores = np.random.default_rng(8).random((3, 30_001))
    for given in (scores, scores.astype(np.float32), np.asfortranarray(scores)):
        served, version = transformer.transform(given)
        assert version == 7
        assert served.shape == given.shape
        for place in [(0, 0), (1, 2_767), (1, 2_768), (2, 30_000)]:
            assert served[place] == of_version(7).apply_one(float(given[place]))
        assert np.array_equal(served, of_version(7).apply(given.astype(np.float64)))
    scores[2, 30_000] = 1.5
    with pytest.raises(ValueError, match=r"1\.5"):
        transformer.transform(scores)
    assert transformer.status().scores["default"] == 3 * 90_003


def test_scores_are_counted_exactly_over_threads(source: MemorySource, transformer: CalibrationTransformer) -> None:
    publish(source, transformer, document(1))

    def work() -> None:
        for _ in range(2_000):
            transformer.transform(0.5)
            transformer.transform([0.5, 0.25, 0.125])
            transformer.transform(0.5, "other")

    for _ in range(3):  # new threads go on under the identifiers of those that ended
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    status = transformer.status()
    assert status.scores["default"] == 3 * 4 * 2_000 * 4
    assert status.unmapped_by == {"no_map": 0, "unknown_model": 3 * 4 * 2_000, "stale": 0}


def test_calls_hold_on_to_no_memory(source: MemorySource, transformer: CalibrationTransformer) -> None:
    publish(source, transformer, document(1))
    scores = np.full(100, 0.3)

    def calls() -> None:
        for i in range(1_000):
            transformer.transform(i / 1_000, segments={"country": "GB"})
            transformer.transform(scores)
            transformer.transform(0.3, "other")

    calls()
    tracemalloc.start()
    try:
        calls()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            calls()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 4_096
    finally:
        tracemalloc.stop()


def test_rounding_beyond_the_interval_is_forgiven(source: MemorySource, transformer: CalibrationTransformer) -> None:
    assert transformer.transform(1.0 + 1e-7) == (1.0, 0)
    publish(source, transformer, document(1))
    assert transformer.transform(-1e-7) == transformer.transform(0.0)


@pytest.mark.parametrize(
    ("score", "named"),
    [
        (1.3, "1.3"),
        (-0.2, "-0.2"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("0.5", "'0.5'"),
        (True, "True"),
        (None, "None"),
        (np.array([0.1, 1.7, 0.2]), "1.7"),
        (np.array([0.1, np.nan]), "nan"),
        (np.array([True, False]), "True"),
    ],
)
def test_what_is_no_score_is_refused_by_its_value(
    source: MemorySource, transformer: CalibrationTransformer, score: object, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        transformer.transform(score)  # type: ignore[call-overload]
    publish(source, transformer, document(1))
    with pytest.raises(ValueError, match=named):
        transformer.transform(score)  # type: ignore[call-overload]


def test_the_highest_version_wins_in_any_order(source: MemorySource, transformer: CalibrationTransformer) -> None:
    for version in (3, 9, 4, 9, 1):
        publish(source, transformer, document(version))
    assert transformer.transform(0.5) == (of_version(9).apply_one(0.5), 9)
    assert transformer.problems == {}


def test_a_withdrawal_ends_the_versions_seen_and_a_higher_one_comes_back(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(5))
    publish(source, transformer, None)
    assert transformer.transform(0.5) == (0.5, 0)
    publish(source, transformer, document(5))
    assert transformer.transform(0.5) == (0.5, 0)
    publish(source, transformer, document(6))
    assert transformer.transform(0.5)[1] == 6


def test_a_newer_schema_keeps_the_last_good_map_and_says_so(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(5))
    publish(source, transformer, b'{"schema_version": 9}')
    assert transformer.transform(0.5)[1] == 5
    assert transformer.problems == {"newer_schema": 1}
    assert "schema version 9" in transformer.status().last_problem


def test_damaged_documents_keep_the_last_good_map_and_are_counted(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(5))
    changed = {**json.loads(document(6)), "parameters": {"slope": 9.0, "intercept": 0.0}}
    for data in (b"", b"\x00\xff", document(6)[:-9], json.dumps(changed).encode()):
        publish(source, transformer, data)
    assert transformer.transform(0.5)[1] == 5
    assert transformer.problems == {"corrupt": 4}


def test_a_document_under_another_models_key_is_not_taken(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    publish(source, transformer, document(5, model="clicks"), model="default")
    assert transformer.problems == {"wrong_model": 1}
    assert set(transformer.status().maps) == {"mark"}


def test_the_status_names_the_map_in_force(source: MemorySource, transformer: CalibrationTransformer) -> None:
    publish(source, transformer, document(5))
    status = transformer.status()
    assert status.following
    assert (status.maps["default"].version, status.maps["default"].family, status.maps["default"].at_ms) == (
        5,
        "platt",
        5,
    )
    assert status.maps["default"].hash == json.loads(document(5))["hash"]


def test_closing_ends_the_thread_and_keeps_the_map(source: MemorySource) -> None:
    source.publish("default", document(3))
    transformer = CalibrationTransformer(source)
    transformer.close()
    transformer.close()
    assert not transformer.status().following
    assert transformer.transform(0.5)[1] == 3


class FailingOnce(MemorySource):
    """A source whose first poll fails, as a broker that is not there yet."""

    def __init__(self) -> None:
        super().__init__()
        self.polls = 0

    def poll(self, timeout_s: float) -> Sequence[MapUpdate]:
        self.polls += 1
        if self.polls == 1:
            raise ConnectionError("no broker")
        return super().poll(timeout_s)


def test_a_failing_source_is_asked_again() -> None:
    source = FailingOnce()
    source.publish("default", document(2))
    with CalibrationTransformer(source) as transformer:
        assert transformer.wait_caught_up(WAIT_S)
        assert transformer.transform(0.5)[1] == 2
        assert transformer.problems == {"source": 1}
        assert transformer.status().last_problem == "ConnectionError: no broker"


def test_a_wait_that_is_not_met_says_so(transformer: CalibrationTransformer) -> None:
    assert not transformer.wait_until(lambda status: "default" in status.maps, 0.0)


def test_changes_under_load_are_never_torn_and_never_go_back(
    source: MemorySource, transformer: CalibrationTransformer
) -> None:
    last = 300
    order = [*np.random.default_rng(5).permutation(np.arange(1, last)).tolist(), last]
    scores = np.array([0.2, 0.5, 0.7])
    expected = [0.5, *(of_version(version).apply_one(0.5) for version in range(1, last + 1))]
    failures: list[str] = []
    seen: list[int] = []
    ready = threading.Barrier(5)

    def follow() -> None:
        ready.wait()
        before = 0
        while before < last:
            served, version = transformer.transform(0.5)
            many, later = transformer.transform(scores)
            if served != expected[version] or many[1] != expected[later]:
                failures.append(f"version {version} served {served}, version {later} served {many[1]}")
            if not before <= version <= later:
                failures.append(f"versions {before}, {version}, {later}")
            before = later
            seen.append(later)

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait()
    for version in order:
        source.publish("default", document(version))
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []
    assert len(set(seen)) > 1
