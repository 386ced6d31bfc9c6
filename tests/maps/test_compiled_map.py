"""Maps with corrections per segment: which entry decides, what it does, one answer for scalars and arrays."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.maps.compiled import NO_ENTRY, CompiledMap, parse_key, segment_key, segment_value
from streamcal.maps.families import Identity, Isotonic, Platt
from streamcal.stats.series import segment_label
from streamcal.stream.values import segment_text

SEGMENTS = {
    "country=GB": {"offset": 0.5},
    "country=DE": {"offset": -0.25, "slope": 0.8},
    "country=GB,device=ios": {"offset": -1.0},
    "country=__missing__": {"offset": 2.0},
    "country=__other__": {"offset": 3.0},
    "device=web": {"offset": 0.125},
    "city=a%2Cb%3D%25,device=ios": {"offset": 0.75},
}
COMPILED = CompiledMap(Platt(0.9, -0.2), SEGMENTS)


def key_of(segments: dict[str, str] | None) -> str | None:
    number = COMPILED.entry(segments)
    return None if number == NO_ENTRY else COMPILED.keys[number]


@pytest.mark.parametrize(
    ("segments", "key"),
    [
        ({"country": "GB", "device": "ios"}, "country=GB,device=ios"),
        ({"country": "GB", "device": "android"}, "country=GB"),
        ({"country": "GB", "device": "web"}, "country=GB"),  # cuts of one dimension: country before device
        ({"country": "FR", "device": "web"}, "device=web"),
        ({"country": "FR", "device": "ios"}, None),
        ({"country": " GB "}, "country=GB"),
        ({"country": "gb"}, None),
        ({"country": ""}, "country=__missing__"),
        ({"device": "web"}, "country=__missing__"),
        ({}, "country=__missing__"),
        (None, "country=__missing__"),
        ({"city": "a,b=%", "device": "ios", "country": "GB"}, "city=a%2Cb%3D%25,device=ios"),
        ({"country": "DE", "colour": "red"}, "country=DE"),
    ],
)
def test_the_finest_cut_with_an_entry_decides(segments: dict[str, str] | None, key: str | None) -> None:
    assert key_of(segments) == key


def test_an_entry_is_a_line_in_the_logit_of_what_the_family_serves() -> None:
    served = Platt(0.9, -0.2).apply_one(0.3)
    z = math.log(served / (1 - served))
    for segments, slope, offset in (({"country": "DE"}, 0.8, -0.25), ({"country": "GB"}, 1.0, 0.5)):
        expected = 1 / (1 + math.exp(-(slope * z + offset)))
        assert COMPILED.apply_one(0.3, segments) == pytest.approx(expected, rel=1e-14)


def test_a_row_without_an_entry_is_served_by_the_family_to_the_bit() -> None:
    scores = np.random.default_rng(1).random(500)
    nowhere = {"country": "FR"}
    assert np.array_equal(COMPILED.apply(scores, nowhere), Platt(0.9, -0.2).apply(scores))
    assert CompiledMap(Identity(), {}).apply(scores, nowhere).tolist() == scores.tolist()
    assert CompiledMap(Identity(), {}).apply_one(0.25, nowhere) == 0.25


def test_scalars_shared_segments_and_columns_agree_to_the_bit() -> None:
    rng = np.random.default_rng(2)
    scores = np.concatenate([rng.random(900), [0.0, 1.0, 1e-9, 5e-324]])
    countries = rng.choice(["GB", "DE", "FR", "", " GB"], len(scores)).tolist()
    devices = rng.choice(["ios", "web", "tv"], len(scores)).tolist()
    for map_ in (Platt(0.9, -0.2), Isotonic([0.1, 0.5], [0.2, 0.4])):
        compiled = CompiledMap(map_, SEGMENTS)
        one_by_one = [
            compiled.apply_one(p, {"country": c, "device": d})
            for p, c, d in zip(scores.tolist(), countries, devices, strict=True)
        ]
        assert compiled.apply(scores, {"country": countries, "device": devices}).tolist() == one_by_one
        for country, device in product({*countries}, {*devices}):
            shared = {"country": country, "device": device}
            alone = [compiled.apply_one(p, shared) for p in scores.tolist()]
            assert compiled.apply(scores, shared).tolist() == alone
        assert compiled.apply(scores).tolist() == [compiled.apply_one(p) for p in scores.tolist()]


def test_one_value_for_all_and_values_by_row_may_stand_side_by_side() -> None:
    scores = np.array([0.2, 0.3])
    mixed = COMPILED.apply(scores, {"country": "GB", "device": ["ios", "tv"]})
    assert mixed.tolist() == [
        COMPILED.apply_one(0.2, {"country": "GB", "device": "ios"}),
        COMPILED.apply_one(0.3, {"country": "GB", "device": "tv"}),
    ]


def test_the_ranking_within_a_segment_is_kept() -> None:
    scores = np.sort(np.random.default_rng(3).random(2000))
    for key in ("GB", "DE", "FR"):
        assert (np.diff(COMPILED.apply(scores, {"country": key})) >= -4e-16).all()


def test_a_column_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="'country' has 2 values for 3 scores"):
        COMPILED.apply(np.array([0.1, 0.2, 0.3]), {"country": ["GB", "DE"]})


def test_a_value_that_is_no_text_is_an_error() -> None:
    with pytest.raises(TypeError):
        COMPILED.apply_one(0.5, {"country": 7})  # type: ignore[dict-item]


@given(st.text(max_size=80))
def test_values_are_those_under_which_events_are_counted(text: str) -> None:
    assert segment_value(text) == segment_text(text)


@given(st.one_of(st.text(max_size=80), st.text(alphabet="a \u3000\u0301", min_size=60, max_size=80)))
def test_whatever_an_event_says_its_value_can_be_named_in_a_document(text: str) -> None:
    value = segment_text(text)
    assert value is not None
    assert segment_text(value) == value
    assert parse_key(segment_key(["a"], [value])) == (("a",), (value,))


@given(
    st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3, unique=True),
    st.lists(st.text(alphabet="ab,=%é ", min_size=1, max_size=8), min_size=3, max_size=3),
)
def test_keys_are_the_labels_of_metrics_and_read_back(dimensions: list[str], texts: list[str]) -> None:
    values = [segment_value(text) for text in texts[: len(dimensions)]]
    key = segment_key(dimensions, values)
    assert key == segment_label(dimensions, values)
    assert parse_key(key) == (tuple(dimensions), tuple(values))


@pytest.mark.parametrize(
    "key", ["", "all", "a", "a=", "=b", "a=b=c", "a=b,", "a=b,a=c", "a=%2c", "a=%41", "a= b", "a=b,c"]
)
def test_keys_that_name_no_segment_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="segment key"):
        parse_key(key)
