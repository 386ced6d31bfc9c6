"""One prediction rewritten: the served score in its place, everything else as it was written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.stream.fields import ModelFilter, PredictionFields
from streamcal.transform.stream.opened import MalformedError, Opened, Place
from streamcal.transform.stream.rewrite import REASONS, UNSERVED, Rewriter, check_places


@dataclass
class Record:
    value: bytes | None
    key: bytes | None = b"k"
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    timestamp: int = 0
    offset: int = 0


def halve(score: float, model: str, segments: Any) -> tuple[float, int]:
    """A map that can be predicted by hand: half the score, version 7; none for the model `bare`."""
    return (score, 0) if model == "bare" else (score / 2, 7)


def rewriter(apply: Any = halve, max_bytes: int = 10_000, **options: Any) -> Rewriter:
    paths = options.pop("paths", {})
    return Rewriter(PredictionFields(**paths), apply, max_bytes=max_bytes, **options)


def rewritten(text: str | bytes, apply: Any = halve, **options: Any) -> Any:
    value = text.encode() if isinstance(text, str) else text
    return rewriter(apply, **options)(Record(value))


def test_the_served_score_takes_the_place_of_the_raw_one() -> None:
    got = rewritten('{"id": "a", "score": 0.50, "ts": 1, "x": [1, {"y": 2e0}]}')
    assert got.value == b'{"id":"a","score":0.25,"ts":1,"x":[1, {"y": 2e0}],"raw_score":0.50,"map_version":7}'
    assert got.outcome == "served"
    assert got.headers == []


def test_without_a_map_the_score_is_its_own_and_the_version_zero() -> None:
    got = rewritten('{"score": 0.5, "model": "bare"}')
    assert json.loads(got.value) == {"score": 0.5, "model": "bare", "raw_score": 0.5, "map_version": 0}
    assert got.outcome == "unmapped"


def test_what_was_served_before_is_served_anew_from_its_raw_score() -> None:
    got = rewritten('{"score": 0.9, "raw_score": 0.4, "map_version": 3}')
    assert got.value == b'{"score":0.2,"raw_score":0.4,"map_version":7}'


def test_a_raw_score_is_written_digit_by_digit_as_it_came() -> None:
    got = rewritten('{"score": 0.1000000000000000055511151231257827}')
    assert b'"raw_score":0.1000000000000000055511151231257827' in got.value


def test_numbers_no_float_holds_survive_in_fields_nobody_asked_for() -> None:
    got = rewritten('{"big":123456789012345678901234567890,"huge":1e999,"score":0.5}')
    assert got.value.startswith(b'{"big":123456789012345678901234567890,"huge":1e999,')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "malformed"),
        ("[0.5]", "malformed"),
        ('{"score": 0.5', "malformed"),
        ('{"score": 0.5} x', "malformed"),
        ('{"score": NaN}', "malformed"),
        (b'{"score": 0.5, "x": "\xff"}', "malformed"),
        (b"\xef\xbb\xbf{}", "malformed"),
        ('{"score": 0.5, "model": 1.5}', "malformed"),
        ('{"score": 0.5, "model": ["a"]}', "malformed"),
        ('{"score": 0.5, "deep": ' + "[" * 100_000 + "]" * 100_000 + "}", "malformed"),
        ("{}", "bad_score"),
        ('{"score": null}', "bad_score"),
        ('{"score": "0.5"}', "bad_score"),
        ('{"score": true}', "bad_score"),
        ('{"score": 1.3}', "bad_score"),
        ('{"score": 1e999}', "bad_score"),
        ('{"score": -0.1}', "bad_score"),
        ('{"score": 0.5, "raw_score": "x"}', "bad_score"),
        ('{"score": 0.5, "map_version": 4}', "without_raw"),
    ],
)
def test_what_cannot_be_served_passes_as_it_came_with_the_reason_in_a_header(text: str | bytes, reason: str) -> None:
    value = text.encode() if isinstance(text, str) else text
    headers = [("trace", b"1")]
    got = rewriter(max_bytes=10**6)(Record(value, headers=headers))
    assert got.value == value
    assert got.headers == [("trace", b"1"), (UNSERVED, reason.encode())]
    assert got.outcome == reason
    assert reason in REASONS
    assert headers == [("trace", b"1")], "the record read is not altered"


def test_rounding_outside_the_unit_interval_is_clipped() -> None:
    assert json.loads(rewritten('{"score": 1.0000001}').value)["score"] == 0.5
    assert json.loads(rewritten('{"score": -0.0000001}').value)["score"] == 0.0
    assert json.loads(rewritten('{"score": 1}').value)["score"] == 0.5


def test_a_value_that_would_pass_the_limit_passes_unserved() -> None:
    text = '{"score": 0.5}'
    assert rewritten(text, max_bytes=len(text)).outcome == "too_large"
    assert rewritten(text, max_bytes=len(text) - 1).outcome == "too_large"
    assert rewritten(text, max_bytes=60).outcome == "served"


def test_a_tombstone_passes_without_a_word() -> None:
    got = rewriter()(Record(None, headers=[("a", b"b")]))
    assert got == (None, [("a", b"b")], "tombstone")


def test_fields_inside_objects_are_written_where_they_are() -> None:
    paths = {"score": "p.s", "raw_score": "p.raw", "map_version": "meta.map.version"}
    got = rewritten('{"p": {"s": 0.5, "t": [ 1 ]}, "q": 1}', paths=paths)
    assert got.value == b'{"p":{"s":0.25,"t":[ 1 ],"raw":0.5},"q":1,"meta":{"map":{"version":7}}}'


def test_a_null_object_on_the_way_is_an_absent_one() -> None:
    paths = {"map_version": "meta.version"}
    assert json.loads(rewritten('{"score": 0.5, "meta": null}', paths=paths).value)["meta"] == {"version": 7}


def test_something_else_on_the_way_is_malformed() -> None:
    assert rewritten('{"score": 0.5, "meta": 3}', paths={"map_version": "meta.version"}).outcome == "malformed"


def test_raw_score_and_version_go_into_headers_where_the_configuration_says() -> None:
    paths = {"raw_score": "$header.raw", "map_version": "$header.version"}
    record = Record(b'{"score": 0.5}', headers=[("version", b"old"), ("trace", b"1")])
    got = rewriter(paths=paths)(record)
    assert got.outcome == "without_raw"
    got = rewriter(paths=paths)(Record(b'{"score": 0.5}', headers=[("trace", b"1")]))
    assert got.value == b'{"score":0.25}'
    assert got.headers == [("trace", b"1"), ("raw", b"0.5"), ("version", b"7")]
    again = rewriter(paths=paths)(Record(got.value, headers=got.headers))
    assert again.value == b'{"score":0.25}'
    assert again.headers == got.headers


def test_a_score_in_a_header_is_served_there() -> None:
    paths = {"score": "$header.s"}
    got = rewriter(paths=paths)(Record(b"{}", headers=[("s", b"0.1"), ("s", b"0.5")]))
    assert got.headers == [("s", b"0.1"), ("s", b"0.25")]
    assert got.value == b'{"raw_score":0.5,"map_version":7}'


def seen_by(text: str, **options: Any) -> tuple[str, Any]:
    calls = []

    def apply(score: float, model: str, segments: Any) -> tuple[float, int]:
        calls.append((model, segments))
        return score, 1

    assert rewritten(text, apply, **options).outcome == "served"
    return calls[0]


def test_the_model_is_named_as_for_the_monitor() -> None:
    filters = [ModelFilter("live", "env", "prod"), ModelFilter("numbered", "env", 3)]
    assert seen_by('{"score":0.5}', filters=filters)[0] == "default"
    assert seen_by('{"score":0.5,"model":""}', filters=filters)[0] == "default"
    assert seen_by('{"score":0.5,"model":12}', filters=filters)[0] == "12"
    assert seen_by('{"score":0.5,"env":"prod"}', filters=filters)[0] == "live"
    assert seen_by('{"score":0.5,"env":3}', filters=filters)[0] == "numbered"
    assert seen_by('{"score":0.5,"env":3,"model":"a"}', filters=filters)[0] == "a"
    assert seen_by('{"score":0.5}', paths={"model": "$key"})[0] == "k"


def test_segments_are_normalised_as_for_the_monitor() -> None:
    given = '{"score":0.5,"segments":{"country":" GB ","n":1.0,"new":true,"none":null,"list":[1]}}'
    assert seen_by(given)[1] == {"country": "GB", "n": "1.0", "new": "true", "none": "__missing__"}
    assert seen_by('{"score":0.5}')[1] is None
    assert seen_by('{"score":0.5,"segments":[]}')[1] is None
    paths = {"segments": {"country": "geo.cc", "device": "$header.device"}}
    assert seen_by('{"score":0.5,"geo":{"cc":"DE"}}', paths=paths)[1] == {"country": "DE", "device": "__missing__"}


def test_a_dimension_that_is_cut_by_must_be_readable() -> None:
    assert rewritten('{"score":0.5,"segments":{"country":[1]}}', dimensions=["country"]).outcome == "malformed"
    assert rewritten('{"score":0.5,"segments":"GB"}', dimensions=["country"]).outcome == "malformed"


def test_places_that_cannot_be_written_are_named() -> None:
    fields = PredictionFields(score="$key", raw_score=None, map_version="v")
    assert [name for name, _ in check_places(fields)] == ["score", "raw_score"]
    assert [name for name, _ in check_places(PredictionFields(raw_score="score"))] == ["raw_score"]
    assert check_places(PredictionFields()) == []


def test_what_was_opened_is_closed_unchanged() -> None:
    text = b'{"a":{"b":{"c":1,"d":[ 1 ]},"e":null},"f":"\xc3\xa4\\u00e4"}'
    opened = Opened(Record(text))
    assert opened.value(Place.parse("a.b.c")) == 1
    assert opened.value(Place.parse("a.e")) is None
    assert opened.value(Place.parse("x.y.z")) is None
    with pytest.raises(MalformedError):
        opened.value(Place.parse("f.g"))
    assert opened.close() == text


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
OTHERS = st.dictionaries(st.text().filter(lambda name: name not in {"score", "raw_score", "map_version"}), VALUES)


@settings(max_examples=60)
@given(before=OTHERS, after=OTHERS, score=st.floats(0, 1), spaces=st.booleans(), ascii_=st.booleans())
def test_every_other_field_keeps_value_and_place(
    before: dict[str, Any], after: dict[str, Any], score: float, spaces: bool, ascii_: bool
) -> None:
    event = {**before, "score": score, **after, "model": "m", "segments": {}}
    separators = (", ", " : ") if spaces else (",", ":")
    text = json.dumps(event, separators=separators, ensure_ascii=ascii_)
    got = rewritten(text)
    expected = {**event, "score": score / 2, "raw_score": score, "map_version": 7}
    assert json.loads(got.value) == expected
    assert list(json.loads(got.value)) == list(expected)
