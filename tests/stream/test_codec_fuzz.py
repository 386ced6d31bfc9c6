"""The fast half against the judge, and both against anything a log may hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_records import LIMITS, RawRecord, T

from streamcal.stream.codec import (
    EventFilter,
    ModelFilter,
    OutcomeDecoder,
    OutcomeFields,
    PredictionDecoder,
    PredictionFields,
)
from streamcal.stream.events import REJECTIONS, Names

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, -1, 2, 0.0, -0.0, 0.5, 1.0, 1.0000005, -1e-7, 1.3, 1e15, 10**30, 10**60, 2**63, 1000, 1000.5]
    ),
    st.sampled_from(
        [T, T + 1, T + 10**9, T // 1000, T / 1000 + 0.25, T * 1000, T * 10**6, 946_684_800_000, 4_102_444_800_000]
    ),
    st.sampled_from(
        ["", "a", "1", "0", "click", " GB ", "2023-11-14T22:13:20.5Z", "x" * 70, "Cafe\u0301", "\ud800", "\u0000"]
    ),
    st.text(max_size=3),
    st.floats(allow_nan=True, allow_infinity=True),
)
VALUES = SCALARS | st.sampled_from([[], {}, [1], {"a": 1}])
GOOD = {
    "id": st.sampled_from(["a", "b", "Ü", 7, 10**29]),
    "ts": st.integers(T - 5, T + 5),
    "score": st.floats(0, 1) | st.sampled_from([0, 1, 1.0000005]),
    "label": st.sampled_from([0, 1, True, False, "1", "0", 1.0]),
    "raw_score": st.none() | st.floats(0, 1),
    "map_version": st.none() | st.integers(0, 5),
    "model": st.sampled_from([None, "m", 3, ""]),
    "weight": st.sampled_from([None, 1, 0.5, 0]),
    "kind": st.sampled_from(["click", "view", None, 1]),
    "segments": st.none() | st.fixed_dictionaries({}, optional={"country": SCALARS, "device": st.text(max_size=2)}),
}


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """Mostly valid events, with up to two fields replaced by anything."""
    event = {name: draw(good) for name, good in GOOD.items() if draw(st.integers(0, 9)) or name == "id"}
    for name in draw(st.lists(st.sampled_from(sorted(GOOD)), max_size=2)):
        event[name] = draw(VALUES)
    return event


@st.composite
def payloads(draw: st.DrawFn) -> bytes | None:
    """An event's JSON, sometimes damaged; sometimes arbitrary bytes or nothing."""
    kind = draw(st.integers(0, 19))
    if kind == 0:
        return None
    if kind == 1:
        return draw(st.binary(max_size=40))
    text = bytearray(json.dumps(draw(events()), ensure_ascii=draw(st.booleans())).encode(errors="surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 3))] = draw(
            st.sampled_from(
                [
                    b"",
                    b"}",
                    b"{",
                    b'"',
                    b",",
                    b"[",
                    b"NaN",
                    b"1e999",
                    b"\xff",
                    b"null",
                    b"9" * 50,
                    b"\\ud800",
                    b"\xed\xa0\x80",
                ]
            )
        )
    return bytes(text)


RECORDS = st.lists(
    st.builds(
        RawRecord,
        payloads(),
        timestamp=st.sampled_from([None, -1, T, T - 400_000, 2**63]),
        key=st.sampled_from([None, b"", b"k", b"\xff", b"7"]),
        headers=st.sampled_from([(), (("w", b"2"), ("w", b"0.5")), (("w", b"\xfe"),), (("w", b"{"),)]),
    ),
    max_size=12,
)
PREDICTION_FIELDS = st.sampled_from(
    [
        PredictionFields(),
        PredictionFields(id="$key", weight="$header.w", time_source="record"),
        PredictionFields(time_unit="s", segments={"country": "segments.country", "device": "kind"}),
        PredictionFields(time_unit="us", model="kind", segments={"country": "model", "device": "$header.w"}),
        PredictionFields(time_unit="rfc3339", score="segments.country"),
        PredictionFields(time_unit="ns", raw_score=None, map_version=None, model=None, weight=None),
    ]
)
OUTCOME_FIELDS = st.sampled_from(
    [
        OutcomeFields(),
        OutcomeFields(filter=EventFilter("kind", "click")),
        OutcomeFields(filter=EventFilter("segments.country", True), time_unit="s"),
        OutcomeFields(filter=EventFilter("$header.w", 0.5), id="$key", time_source="record"),
        OutcomeFields(positive_values=("click", True), negative_values=("1", 0), label="kind"),
    ]
)
FILTERS = st.sampled_from([(), (ModelFilter("click", "kind", "click"), ModelFilter("seg", "segments.device", ""))])
RATES = st.sampled_from([1.0, 1.0, 0.5])


def check_account(batch: Any, records: list[RawRecord]) -> None:
    """Every record is accepted, rejected once with a known reason, or ignored; order is the log's."""
    rejected = [r.row for r in batch.rejected]
    assert len(batch.row) + len(rejected) + batch.ignored == len(records)
    assert not set(batch.row.tolist()) & set(rejected)
    assert rejected == sorted(set(rejected))
    assert {r.reason for r in batch.rejected} <= set(REJECTIONS)
    assert (np.diff(batch.row) > 0).all()
    assert (np.diff(batch.clock_row) > 0).all()
    clock = dict(zip(batch.clock_row.tolist(), batch.clock_ms.tolist(), strict=True))
    assert {row: clock[row] for row in batch.row.tolist()} == dict(
        zip(batch.row.tolist(), batch.time_ms.tolist(), strict=True)
    )


def check_same(one: Any, other: Any) -> None:
    for name in type(one).__slots__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=name, strict=True)
        else:
            assert a == b, name


@settings(max_examples=300, deadline=None)
@given(RECORDS, PREDICTION_FIELDS, FILTERS, RATES)
def test_predictions_are_decoded_as_judged(
    records: list[RawRecord], fields: PredictionFields, filters: tuple[ModelFilter, ...], rate: float
) -> None:
    names = [Names(("country", "device")) for _ in range(2)]
    limits = LIMITS | {"sample_rate": rate, "max_bytes": 200, "model_filters": filters}
    fast, judged = (
        PredictionDecoder(fields, n, **limits, fast=f).decode(records)
        for n, f in zip(names, (True, False), strict=True)
    )
    check_account(fast, records)
    check_same(fast, judged)
    assert names[0].models == names[1].models
    assert names[0].profiles == names[1].profiles
    assert ((fast.served >= 0) & (fast.served <= 1)).all()
    assert (np.isnan(fast.raw) | ((fast.raw >= 0) & (fast.raw <= 1))).all()


@settings(max_examples=300, deadline=None)
@given(RECORDS, OUTCOME_FIELDS, FILTERS, RATES, st.booleans())
def test_outcomes_are_decoded_as_judged(
    records: list[RawRecord], fields: OutcomeFields, filters: tuple[ModelFilter, ...], rate: float, positive: bool
) -> None:
    names = [Names(()) for _ in range(2)]
    limits = LIMITS | {"sample_rate": rate, "max_bytes": 200, "model_filters": filters}
    fast, judged = (
        OutcomeDecoder(fields, n, **limits, default_label_positive=positive, fast=f).decode(records)
        for n, f in zip(names, (True, False), strict=True)
    )
    check_account(fast, records)
    check_same(fast, judged)
    assert names[0].models == names[1].models
    assert np.isin(fast.label, (0, 1)).all()


@settings(max_examples=100, deadline=None)
@given(RECORDS, st.integers(0, 12))
def test_slicing_changes_nothing(records: list[RawRecord], at: int) -> None:
    whole, parts = Names(("country", "device")), Names(("country", "device"))
    together = PredictionDecoder(PredictionFields(), whole, **LIMITS).decode(records)
    decoder = PredictionDecoder(PredictionFields(), parts, **LIMITS)
    first, second = decoder.decode(records[:at]), decoder.decode(records[at:])
    assert whole.models == parts.models
    assert whole.profiles == parts.profiles
    for name in ("id_hi", "id_lo", "time_ms", "raw", "served", "model", "profile", "clock_ms"):
        joined = np.concatenate([getattr(first, name), getattr(second, name)])
        np.testing.assert_array_equal(getattr(together, name), joined, err_msg=name)
    assert together.ignored == first.ignored + second.ignored


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_arbitrary_bytes_never_raise(values: list[bytes]) -> None:
    records = [RawRecord(v, key=v, headers=(("h", v),)) for v in values]
    check_account(PredictionDecoder(PredictionFields(id="$key"), Names(()), **LIMITS).decode(records), records)
    check_account(OutcomeDecoder(OutcomeFields(id="$header.h"), Names(()), **LIMITS).decode(records), records)
