from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_records import T, fate, outcome, outcomes, prediction, predictions, raw

from streamcal.stream.codec import EventFilter, ModelFilter, OutcomeFields, PredictionFields
from streamcal.stream.events import NO_MODEL, NO_VERSION, Names

CASES = json.loads((Path(__file__).parents[1] / "cases" / "join.json").read_text(encoding="utf-8"))
pytestmark = pytest.mark.parametrize("fast", [True, False], ids=["fast", "judged"])


def case_batches(name: str, fast: bool) -> tuple[Any, Any, dict[str, Any]]:
    case = next(c for c in CASES["cases"] if c["id"] == name)
    told = {topic: [raw(event) for t, event in case["events"] if t == topic] for topic in "po"}
    return predictions(*told["p"], fast=fast), outcomes(*told["o"], fast=fast), case["before_drain"]


def reasons(batch: Any) -> list[str]:
    return [r.reason for r in batch.rejected]


def test_label_case(fast: bool) -> None:
    _, taken, expected = case_batches("labels", fast)
    assert len(taken.row) == expected["matched"]
    assert taken.label.sum() == expected["positives"]
    assert reasons(taken) == ["bad_label"] * expected["rejected"]["bad_label"]


def test_score_case(fast: bool) -> None:
    taken, _, expected = case_batches("scores", fast)
    assert len(taken.row) == expected["accepted_prediction"]
    assert taken.clipped == expected["clipped"]
    assert taken.served.tolist() == [0.0, 1.0, 0.5, 1.0, 0.0]
    assert reasons(taken) == ["bad_score"] * expected["rejected"]["bad_score"]


def test_time_case(fast: bool) -> None:
    taken, _, expected = case_batches("times", fast)
    assert len(taken.row) == expected["accepted_prediction"]
    assert reasons(taken) == ["bad_time"] * expected["rejected"]["bad_time"]


def test_raw_values_are_never_fatal(fast: bool) -> None:
    values = [text.encode("latin-1") for text in CASES["raw_values_never_fatal"]]
    taken = predictions(*map(raw, values), fast=fast)
    assert reasons(taken) == ["malformed"] * 6 + ["missing_id"] * 2
    assert taken.row.tolist() == [8]
    assert reasons(outcomes(*map(raw, values), fast=fast)) == ["malformed"] * 6 + ["missing_id"] * 2 + ["bad_label"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (prediction(), "accepted"),
        (prediction(unknown={"deep": [1, None]}), "accepted"),
        (prediction(model=None, weight=None, raw_score=None, map_version=None, segments=None), "accepted"),
        ([], "malformed"),
        (5, "malformed"),
        (None, "ignored"),
        (b"", "malformed"),
        (b"null", "malformed"),
        (b'\xef\xbb\xbf{"id":"a","score":0.3,"ts":1700000000000}', "malformed"),
        (b'{"id":"a","score":0.3,"ts":1700000000000', "malformed"),
        (b'{"id":"a","score":0.3,"ts":1700000000000} {}', "malformed"),
        (b'{"id":"a","score":NaN,"ts":1700000000000}', "malformed"),
        (b'{"id":"a","score":0.3,"ts":1700000000000,"x":Infinity}', "malformed"),
        (b'{"id":"a","score":0.3,"ts":1700000000000,"unread":"\xff"}', "malformed"),
        (b'{"id":"\\ud800","score":0.3,"ts":1700000000000}', "malformed"),
        (b'{"id":"a","score":0.3,"ts":1700000000000,"x":' + b"[" * 100_000, "malformed"),
        (b'{"id":"a","score":0.3,"ts":1700000000000,"x":1e999}', "accepted"),
        (b'{"id":"a","score":1e999,"ts":1700000000000}', "bad_score"),
        (b'{"id":"a","score":' + b"1" * 6000 + b',"ts":1700000000000}', "bad_score"),
        (b'{"id":"a","score":0.3,"ts":1e999}', "bad_time"),
        (b'{"id":"a","score":0.3,"ts":1700000000000,"weight":1e999}', "bad_weight"),
        (b'{"id":"a","score":true,"score":0.3,"ts":1700000000000}', "accepted"),
        (prediction(id=None), "missing_id"),
        (prediction(id=""), "missing_id"),
        (prediction(id=True), "missing_id"),
        (prediction(id=7.0), "missing_id"),
        (prediction(id=["a"]), "missing_id"),
        (prediction(id=10**29), "accepted"),
        (prediction(id=10**60), "accepted"),
        (prediction(score="0.5"), "bad_score"),
        (prediction(score={}), "bad_score"),
        (prediction(score=1.000001), "accepted"),
        (prediction(score=1.0000011), "bad_score"),
        (prediction(score=-0.0000011), "bad_score"),
        (prediction(raw_score=1.3), "bad_score"),
        (prediction(raw_score="0.5"), "bad_score"),
        (prediction(ts=946_684_800_000), "accepted"),
        (prediction(ts=946_684_799_999), "bad_time"),
        (prediction(ts=4_102_444_800_000), "accepted"),
        (prediction(ts=4_102_444_800_001), "bad_time"),
        (prediction(ts=1.7e12), "bad_time"),
        (prediction(ts=True), "bad_time"),
        (prediction(weight=1000), "accepted"),
        (prediction(weight=1000.001), "bad_weight"),
        (prediction(weight=-1e-9), "bad_weight"),
        (prediction(weight="1"), "bad_weight"),
        (prediction(weight=False), "bad_weight"),
        (prediction(map_version=-1), "malformed"),
        (prediction(map_version=3.0), "malformed"),
        (prediction(map_version="3"), "malformed"),
        (prediction(map_version=2**63), "malformed"),
        (prediction(model=1.5), "malformed"),
        (prediction(model=True), "malformed"),
        (prediction(model=["m"]), "malformed"),
        (prediction(segments="GB"), "malformed"),
        (prediction(segments={"country": ["GB"]}), "malformed"),
        (prediction(segments={"city": ["unread"]}), "accepted"),
    ],
)
def test_fate_of_a_prediction(event: object, expected: str, fast: bool) -> None:
    assert fate(predictions(raw(event), fast=fast)) == expected


def test_reasons_are_tested_in_their_order(fast: bool) -> None:
    wrong: dict[str, Any] = {
        "model": 1.5,
        "id": None,
        "score": 2,
        "ts": 5,
        "weight": -1,
    }
    repaired = {"model": "m", "id": "a", "score": 0.5, "ts": T, "weight": 1}
    seen = []
    for name, value in repaired.items():
        seen.append(fate(predictions(raw(wrong, timestamp=T - 10**6), fast=fast, max_bytes=10)))
        wrong[name] = value
    assert seen == ["malformed", "missing_id", "bad_score", "bad_time", "future"]
    assert fate(predictions(raw(wrong | {"weight": -1}, timestamp=T), fast=fast, max_bytes=10)) == "bad_weight"
    assert fate(predictions(raw(wrong, timestamp=T), fast=fast, max_bytes=10)) == "too_large"


def test_size_limit_is_inclusive_and_huge_values_are_not_parsed(fast: bool) -> None:
    record = raw(prediction())
    assert record.value is not None
    size = len(record.value)
    assert fate(predictions(record, fast=fast, max_bytes=size)) == "accepted"
    assert fate(predictions(record, fast=fast, max_bytes=size - 1)) == "too_large"
    assert fate(predictions(raw(b'{"id":' + b" " * 20_000_000), fast=fast)) == "malformed"
    assert fate(predictions(raw(bytes(64 * 2**20 + 1)), fast=fast)) == "too_large"


def test_future_is_measured_from_the_records_own_timestamp(fast: bool) -> None:
    stamps = (T - 300_000, T - 300_001, -1, None)
    taken = predictions(*(raw(prediction(id=str(s)), timestamp=s) for s in stamps), fast=fast)
    assert taken.row.tolist() == [0, 2, 3]
    assert [(r.row, r.reason) for r in taken.rejected] == [(1, "future")]
    assert taken.clock_row.tolist() == [0, 2, 3]


def test_record_timestamp_can_be_the_event_time(fast: bool) -> None:
    stamps = (T, -1, None, 5)
    by_record = PredictionFields(time_source="record")
    taken = predictions(*(raw(prediction(ts="no"), timestamp=s) for s in stamps), fields=by_record, fast=fast)
    assert taken.time_ms.tolist() == [T]
    assert reasons(taken) == ["bad_time"] * 3


def test_id_hash_is_blake2b_of_the_decimal_or_utf8_text(fast: bool) -> None:
    ids = ["a", "7", 7, -7, 10**29, 10**60, "Ünï\u2028"]
    taken = predictions(*(raw(prediction(id=i)) for i in ids), fast=fast)
    expected = [hashlib.blake2b(str(i).encode(), digest_size=16).hexdigest() for i in ids]
    words = zip(taken.id_hi.tolist(), taken.id_lo.tolist(), strict=True)
    assert [f"{hi:016x}{lo:016x}" for hi, lo in words] == expected


def test_score_is_raw_and_served_unless_a_map_made_it(fast: bool) -> None:
    taken = predictions(
        raw(prediction(score=0.3)),
        raw(prediction(score=0.3, map_version=4)),
        raw(prediction(score=0.3, map_version=4, raw_score=0.2)),
        raw(prediction(score=0.3, raw_score=1.0000005)),
        fast=fast,
    )
    np.testing.assert_array_equal(taken.raw, [0.3, np.nan, 0.2, 1.0])
    assert taken.served.tolist() == [0.3] * 4
    assert taken.map_version.tolist() == [NO_VERSION, 4, 4, NO_VERSION]
    assert taken.clipped == 1


def test_weight_column_appears_with_the_first_weight_other_than_one(fast: bool) -> None:
    plain = (raw(prediction()), raw(prediction(weight=1)), raw(prediction(weight=1.0)))
    assert predictions(*plain, fast=fast).weight is None
    weighted = predictions(*plain, raw(prediction(weight=0)), raw(prediction(weight=2.5)), fast=fast).weight
    assert weighted is not None
    assert weighted.tolist() == [1.0, 1.0, 1.0, 0.0, 2.5]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("GB", "GB"),
        (" GB\t", "GB"),
        ("Cafe\u0301", "Caf\u00e9"),
        ("x" * 70, "x" * 64),
        ("x" * 63 + " yz", "x" * 63),
        ("  ", "__missing__"),
        ("", "__missing__"),
        (None, "__missing__"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (10**50, "1" + "0" * 50),
    ],
)
def test_segment_value_is_normalised(value: object, text: str, fast: bool) -> None:
    names = Names(("country", "device"))
    # 1, 1.0 and true are one key of a Python dictionary and must not share an entry
    before = [raw(prediction(segments={"country": v})) for v in (1, True, 1.0, 0, False)]
    taken = predictions(*before, raw(prediction(segments={"country": value})), names=names, fast=fast)
    assert names.profiles[taken.profile[-1]] == (text, "__missing__")
    assert [names.profiles[p][0] for p in taken.profile[:5]] == ["1", "true", "1.0", "0", "false"]


def test_a_model_name_too_long_for_a_label_is_one_of_the_others(fast: bool) -> None:
    names = Names(())
    taken = predictions(
        *(raw(prediction(model=name)) for name in ("m" * 200, "m" * 201, "n" * 10**5)), names=names, fast=fast
    )
    assert [names.models[index] for index in taken.model] == ["m" * 200, "__other__", "__other__"]


def test_names_are_interned_in_log_order_and_only_for_accepted_events(fast: bool) -> None:
    names = Names(("country", "device"))
    taken = predictions(
        raw(prediction(model="late", segments={"country": "FR"}, ts=T), timestamp=T - 10**7),
        raw(prediction(id=10**60, model="first", segments={"country": "GB"})),
        raw(prediction(model=12, segments={"country": "DE"})),
        raw(prediction(model="12", segments={"country": "GB"})),
        raw(prediction(model="")),
        raw(prediction()),
        names=names,
        fast=fast,
    )
    assert names.models == ["first", "12", "default"]
    assert taken.model.tolist() == [0, 1, 1, 2, 2]
    assert [p[0] for p in names.profiles] == ["GB", "DE", "__missing__"]
    assert taken.profile.tolist() == [0, 1, 0, 2, 2]


def test_without_dimensions_there_is_one_profile(fast: bool) -> None:
    names = Names(())
    taken = predictions(raw(prediction()), raw(prediction(segments=5)), names=names, fast=fast)
    assert taken.profile.tolist() == [0, 0]
    assert names.profiles == [()]


def test_paths_reach_into_objects_keys_and_headers(fast: bool) -> None:
    names = Names(("country", "device"))
    fields = PredictionFields(
        id="$key",
        time="meta.at",
        time_unit="s",
        score="payload.out.p",
        model="$header.model.name",
        map_version="$header.version",
        segments={"device": "payload.device", "country": "$header.country"},
        weight=None,
    )
    body = {"meta": {"at": 1_700_000_000.123}, "payload": {"out": {"p": 0.25}, "device": "ios"}, "weight": "unread"}
    headers = (("model.name", b"old"), ("model.name", b"m1"), ("country", "Österreich".encode()), ("version", b"7"))
    no_device = {"meta": {"at": 1_700_000_000}, "payload": {"out": {"p": 0.5}}}
    taken = predictions(
        raw(body, key=b"k1", headers=headers),
        raw(no_device, key=b"k1"),
        raw(body, key=None),
        raw(body, key=b""),
        raw(body, key=b"\xff"),
        raw(body, key=b"k", headers=(("version", b"seven"),)),
        raw({"meta": 5, "payload": {"out": {"p": 0.25}}}, key=b"k"),
        raw({"meta": None, "payload": {"out": {"p": 0.25}}}, key=b"k"),
        fields=fields,
        names=names,
        fast=fast,
    )
    assert taken.row.tolist() == [0, 1]
    assert taken.time_ms.tolist() == [1_700_000_000_123, 1_700_000_000_000]
    assert taken.map_version.tolist() == [7, NO_VERSION]
    assert [names.models[m] for m in taken.model] == ["m1", "default"]
    assert [names.profiles[p] for p in taken.profile] == [("Österreich", "ios"), ("__missing__", "__missing__")]
    assert reasons(taken) == ["missing_id", "missing_id", "malformed", "malformed", "malformed", "bad_time"]
    assert taken.id_hi[0] == int.from_bytes(hashlib.blake2b(b"k1", digest_size=16).digest()[:8])


def test_one_path_may_serve_several_fields(fast: bool) -> None:
    names = Names(("model", "version", "score"))
    fields = PredictionFields(segments={"model": "model", "version": "map_version", "score": "score"})
    taken = predictions(
        raw(prediction(model="m", map_version=3, score=1)), raw(prediction()), fields=fields, names=names, fast=fast
    )
    assert [names.profiles[p] for p in taken.profile] == [("m", "3", "1"), ("__missing__", "__missing__", "0.3")]
    both = PredictionFields(raw_score="score", segments=None)
    assert predictions(raw(prediction(map_version=1)), fields=both, names=Names(()), fast=fast).raw.tolist() == [0.3]


def test_parent_of_one_field_may_be_the_filter_of_another(fast: bool) -> None:
    pick = OutcomeFields(id="event.id", filter=EventFilter("event", "click"))
    assert fate(outcomes(raw(outcome(event={"id": "a"})), fields=pick, fast=fast)) == "ignored"
    assert fate(outcomes(raw(outcome(event="click")), fields=pick, fast=fast)) == "malformed"


def test_model_filters_name_the_model_of_events_that_name_none(fast: bool) -> None:
    filters = (
        ModelFilter("loans", "product.kind", "loan"),
        ModelFilter("ones", "n", 1),
        ModelFilter("web", "$header.via", "web"),
    )
    names = Names(())
    taken = predictions(
        raw(prediction(product={"kind": "loan"}, n=1)),
        raw(prediction(product={"kind": "loan"}, model="own")),
        raw(prediction(product="loan", n=1.0)),
        raw(prediction(n=True), headers=(("via", b"web"),)),
        raw(prediction(product={"kind": ["loan"]}), headers=(("via", b"\xff"),)),
        names=names,
        model_filters=filters,
        fast=fast,
    )
    assert [names.models[m] for m in taken.model] == ["loans", "own", "ones", "web", "default"]
    served = outcomes(raw(outcome(n=1)), raw(outcome()), names=names, model_filters=filters, fast=fast)
    assert served.model.tolist() == [names.model("ones"), NO_MODEL]


def test_outcome_names_a_model_or_serves_all(fast: bool) -> None:
    names = Names(())
    taken = outcomes(raw(outcome(model="m")), raw(outcome()), raw(outcome(model="")), names=names, fast=fast)
    assert taken.model.tolist() == [0, NO_MODEL, NO_MODEL]
    assert names.models == ["m"]


@pytest.mark.parametrize(
    ("label", "expected"),
    [(1, 1), (True, 1), (1.0, 1), ("1", 1), (0, 0), (False, 0), (0.0, 0), (-0.0, 0), ("0", 0)],
)
def test_default_labels(label: object, expected: int, fast: bool) -> None:
    assert outcomes(raw(outcome(label=label)), fast=fast).label.tolist() == [expected]


@pytest.mark.parametrize("label", [-1, 2, 0.5, "yes", "true", "1.0", "", None, [1], {}, 10**60])
def test_other_labels_are_bad(label: object, fast: bool) -> None:
    assert fate(outcomes(raw(outcome(label=label)), fast=fast)) == "bad_label"


def test_configured_values_are_the_only_labels(fast: bool) -> None:
    fields = OutcomeFields(positive_values=("click", 2), negative_values=("skip", False))
    said = ["click", 2, 2.0, "skip", False, "Click", 0, 1, True, "2", None]
    taken = outcomes(*(raw(outcome(label=v)) for v in said), fields=fields, fast=fast)
    assert taken.label.tolist() == [1, 1, 1, 0, 0]
    assert reasons(taken) == ["bad_label"] * 6


def test_absent_label_is_positive_on_request(fast: bool) -> None:
    said = (raw({"id": "a", "ts": T}), raw(outcome(label=None)), raw(outcome(label=0)), raw(outcome(label="")))
    taken = outcomes(*said, default_label_positive=True, fast=fast)
    assert taken.label.tolist() == [1, 1, 0]
    clicks = OutcomeFields(positive_values=("click",))
    assert outcomes(*said, fields=clicks, default_label_positive=True, fast=fast).label.tolist() == [1, 1]


def test_filtered_events_are_ignored_and_still_tell_the_time(fast: bool) -> None:
    fields = OutcomeFields(filter=EventFilter("type.name", "click"))
    click = {"name": "click"}
    taken = outcomes(
        raw(outcome(type=click)),
        raw(outcome(type={"name": "view"}, ts=T + 1), timestamp=T),
        raw(outcome(type={"name": "view"}, ts=T + 10**9), timestamp=T),
        raw({"ts": T + 2, "type": "something else", "label": [1], "model": {}}),
        raw({"type": {"name": None}, "ts": "soon"}),
        raw({"ts": T + 3}),
        raw(outcome(type=click, label=9)),
        raw(b'{"type":'),
        raw(None),
        raw(outcome(type=click, ts=T + 4)),
        fields=fields,
        fast=fast,
    )
    assert taken.row.tolist() == [0, 9]
    assert taken.clock_row.tolist() == [0, 1, 3, 5, 9]
    assert taken.clock_ms.tolist() == [T, T + 1, T + 2, T + 3, T + 4]
    assert [(r.row, r.reason) for r in taken.rejected] == [(6, "bad_label"), (7, "malformed")]
    assert taken.ignored == 6


def test_sample_takes_the_same_ids_in_both_topics(fast: bool) -> None:
    ids = [f"id-{i}" for i in range(400)]
    high = [int.from_bytes(hashlib.blake2b(i.encode(), digest_size=16).digest()[:8]) for i in ids]
    inside = [row for row, hi in enumerate(high) if hi / 2**64 < 0.25]
    # a sampled-out event is not judged beyond its id
    scored = predictions(*(raw(prediction(id=i, ts=T + n)) for n, i in enumerate(ids)), sample_rate=0.25, fast=fast)
    labelled = outcomes(
        *(raw(outcome(id=i, label=9 if n not in inside else 1)) for n, i in enumerate(ids)), sample_rate=0.25, fast=fast
    )
    assert 60 < len(inside) < 140
    assert scored.row.tolist() == labelled.row.tolist() == inside
    assert scored.ignored == labelled.ignored == 400 - len(inside)
    assert not labelled.rejected
    assert scored.clock_row.tolist() == list(range(400))
    assert scored.clock_ms.tolist() == [T + n for n in range(400)]


def test_bad_records_leave_their_neighbours_alone(fast: bool) -> None:
    bad = [raw(b"{"), raw(None), raw(prediction(score=2)), raw(b"\xff")]
    slice_ = [bad[i // 3 % 4] if i % 3 == 0 else raw(prediction(id=str(i), ts=T + i)) for i in range(60)]
    taken = predictions(*slice_, fast=fast)
    good = [i for i in range(60) if i % 3]
    assert taken.row.tolist() == good
    assert taken.time_ms.tolist() == [T + i for i in good]
    assert [r.row for r in taken.rejected] == [i for i in range(60) if i % 3 == 0 and i // 3 % 4 != 1]
    assert taken.ignored == 5


def test_empty_slice_gives_empty_columns(fast: bool) -> None:
    taken = predictions(fast=fast)
    assert taken.row.dtype == taken.clock_row.dtype == np.int64
    assert taken.id_hi.dtype == np.uint64
    assert taken.model.dtype == taken.profile.dtype == np.int32
    assert len(outcomes(fast=fast).label) == 0


@pytest.mark.parametrize("path", ["", "a..b", ".a", "$keys", "$header.", "$"])
def test_unreadable_path_is_refused(path: str, fast: bool) -> None:
    with pytest.raises(ValueError, match="not a field path"):
        predictions(fields=PredictionFields(id=path), fast=fast)


def test_dimension_without_a_path_is_refused(fast: bool) -> None:
    with pytest.raises(ValueError, match="device"):
        predictions(fields=PredictionFields(segments={"country": "c"}), fast=fast)
    with pytest.raises(ValueError, match="text"):
        predictions(fields=PredictionFields(segments="$key"), fast=fast)
