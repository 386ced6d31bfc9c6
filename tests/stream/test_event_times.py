from __future__ import annotations

import datetime as dt
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_records import T, prediction, predictions, raw

from streamcal.stream.codec import PredictionFields
from streamcal.stream.fields import TimeUnit
from streamcal.stream.times import HIGHEST_MS, LOWEST_MS, TimeRule, rfc3339_ms

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@given(st.datetimes(timezones=ZONES))
def test_rfc3339_agrees_with_datetime(moment: dt.datetime) -> None:
    assert rfc3339_ms(moment.isoformat()) == (moment - EPOCH) // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2023-11-14T22:13:20Z", T),
        ("2023-11-14t22:13:20z", T),
        ("2023-11-14 22:13:20.5Z", T + 500),
        ("2023-11-14T22:13:20.9999999999Z", T + 999),
        ("2023-11-15T03:43:20.001+05:30", T + 1),
        ("2023-11-14T22:13:20-00:00", T),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
    ],
)
def test_rfc3339_forms(text: str, ms: int) -> None:
    assert rfc3339_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2023-11-14",
        "2023-11-14T22:13:20",
        "2023-11-14T22:13Z",
        "2023-11-14T24:00:00Z",
        "2023-02-29T00:00:00Z",
        "2023-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "20231114T221320Z",
        "2023-11-14T22:13:20,5Z",
        "2023-11-14T22:13:20.Z",
        "2023-11-14T22:13:20+0530",
        "2023-11-14T22:13:20+24:00",
        "2023-11-14T22:13:20Z\n",
        "２023-11-14T22:13:20Z",
        "1700000000000",
    ],
)
def test_not_rfc3339(text: str) -> None:
    assert rfc3339_ms(text) is None


@given(st.integers(LOWEST_MS * 1000, HIGHEST_MS * 1000))
def test_fractional_seconds_of_whole_microseconds_floor_exactly(micros: int) -> None:
    seconds = float(f"{micros // 10**6}.{micros % 10**6:06}")
    assert TimeRule("s").one(seconds) == micros // 1000
    assert TimeRule("s").many([seconds]).tolist() == [micros // 1000]


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "judged"])
@pytest.mark.parametrize(
    ("unit", "value", "ms"),
    [
        ("ms", T, T),
        ("us", T * 1000 + 999, T),
        ("ns", T * 10**6 + 999_999, T),
        ("s", T // 1000, T),
        ("s", 1_700_000_000.123, T + 123),
        ("s", 1_700_000_000.123999, T + 123),
        ("rfc3339", "2023-11-14T22:13:20.000999Z", T),
        ("us", T, None),
        ("us", float(T * 1000), None),
        ("ns", T * 1000, None),
        ("s", T, None),
        ("s", "1700000000", None),
        ("s", True, None),
        ("s", 10**30, None),
        ("s", LOWEST_MS // 1000 - 1e-3, None),
        ("rfc3339", T, None),
        ("rfc3339", "1999-12-31T23:59:59.999Z", None),
        ("rfc3339", "2100-01-01T00:00:00.001Z", None),
        ("rfc3339", "2100-01-01T00:00:00Z", HIGHEST_MS),
        ("rfc3339", "now", None),
    ],
)
def test_time_is_read_in_its_declared_unit_only(unit: TimeUnit, value: object, ms: int | None, fast: bool) -> None:
    taken = predictions(raw(prediction(ts=value)), fields=PredictionFields(time_unit=unit), fast=fast)
    assert taken.time_ms.tolist() == ([] if ms is None else [ms])
    assert [r.reason for r in taken.rejected] == (["bad_time"] if ms is None else [])


@given(
    st.integers(LOWEST_MS, HIGHEST_MS), st.sampled_from([("ms", 1), ("us", 1000), ("ns", 10**6)]), st.integers(0, 10**6)
)
def test_integer_units_floor(at_ms: int, unit: tuple[TimeUnit, int], more: int) -> None:
    name, size = unit
    value = min(at_ms * size + more % size, HIGHEST_MS * size)
    expected = Fraction(value, size).__floor__()
    assert TimeRule(name).one(value) == expected
    assert TimeRule(name).many([value]).tolist() == [expected]
