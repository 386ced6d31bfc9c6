"""The layout, the columns of a row and the keys of the recount, against plain mathematics."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recount import recount
from recount_counts import (
    CENTRES,
    EDGES,
    PLAIN_COLUMNS,
    WEIGHTED_COLUMNS,
    bin_of,
    cut_label,
    exact_to_float32,
    is_extreme,
    row_columns,
    segment_key,
    to_float32,
)
from recount_events import Event, Rules


def p(t: int, score: float = 0.3, *, key: str = "a", **more: Any) -> Event:
    return ("p", 0, {"id": key, "ts": t, "score": score, **more}, None)


def o(t: int, label: int = 1, *, key: str = "a") -> Event:
    return ("o", 0, {"id": key, "ts": t, "label": label}, None)


def test_the_layout_has_the_stated_shape() -> None:
    assert (len(EDGES), len(CENTRES)) == (283, 284)
    assert sorted(EDGES) == EDGES
    assert sum(low == high for low, high in pairwise(EDGES)) == 5
    assert {to_float32(k / 20) for k in range(1, 20)} | {to_float32(k / 15) for k in range(1, 15)} < set(EDGES)
    assert CENTRES[0] == pytest.approx(1 / (1 + math.exp(15.9375)), rel=1e-7)  # its edge is a float32
    assert CENTRES[141] == pytest.approx(1 / (1 + math.exp(0.0625)), rel=1e-7)
    assert all(low <= centre <= high for low, centre, high in zip([0.0, *EDGES], CENTRES, [*EDGES, 1.0], strict=True))
    mirrored = [low + high for low, high in zip(CENTRES, reversed(CENTRES), strict=True)]
    assert mirrored == pytest.approx([1] * 284, abs=1e-7)


def test_a_score_on_an_edge_belongs_below_it_as_float32() -> None:
    for k in range(1, 20):
        assert bin_of(k / 20) == bin_of(to_float32(k / 20)) == EDGES.index(to_float32(k / 20))
    assert (bin_of(0.0), bin_of(1.0)) == (0, 283)


def test_rounding_to_float32_agrees_with_numpy() -> None:
    rng = np.random.default_rng(1)
    for value in [*rng.random(500).tolist(), *(10 ** -rng.uniform(0, 9, 500)).tolist(), 0.5 + 2**-25, 0.5 + 3 * 2**-25]:
        assert exact_to_float32(Fraction(value)) == to_float32(value) == float(np.float32(value))


@given(st.floats(0, 1), st.sampled_from([0, 1]))
def test_columns_are_what_they_say_within_their_scale(score: float, y: int) -> None:
    c = CENTRES[bin_of(score)]
    q = min(max(score, 1e-7), 1 - 1e-7)
    h = math.log(q) - math.log1p(-q) - (math.log(c) - math.log1p(-c))
    excess = -math.log(q / c) if y else -(math.log1p(-q) - math.log1p(-c))
    row = dict(zip(PLAIN_COLUMNS, row_columns(score, y, 1.0, weighted=False), strict=True))
    assert (row["n"], row["y"], row["ydp"], row["ydx"]) == (1, y, y * row["dp"], y * row["dx"])
    assert row["dp"] / 2**38 == pytest.approx(score - c, abs=2**-39)
    assert row["dp2"] / 2**44 == pytest.approx((score - c) ** 2, abs=2**-44)
    assert row["dx"] / 2**32 == pytest.approx(h, abs=2**-32)
    assert row["dx2"] / 2**31 == pytest.approx(h * h, abs=2**-31)
    assert row["ll"] / 2**36 == pytest.approx(excess, abs=2**-36)


@given(st.floats(0, 1), st.sampled_from([0, 1]))
def test_weight_one_gives_the_plain_sums(score: float, y: int) -> None:
    plain = dict(zip(PLAIN_COLUMNS, row_columns(score, y, 1.0, weighted=False), strict=True))
    row = dict(zip((*PLAIN_COLUMNS, *WEIGHTED_COLUMNS), row_columns(score, y, 1.0, weighted=True), strict=True))
    assert (row["w"], row["wy"], row["w2"]) == (2**32, y * 2**32, 2**24)
    assert [row[name] for name in ("w2dp", "w2dp2", "w2dx", "w2dx2")] == [0] * 4
    for name in ("dp", "ydp", "dp2", "dx", "dx2", "ydx", "ll"):
        assert row[f"w{name}"] == row[name] == plain[name]


def test_panes_and_segments_of_a_counted_row() -> None:
    events = [
        p(100, segments={"country": "GB", "device": "a=b,c%"}),
        o(109, 1),
        p(109, 0.4, key="b", map_version=2, segments={"country": " GB "}),
        o(110, 0, key="b"),
    ]
    result = recount(events, Rules(10, pane_ms=10))
    raw = result.counts([("country",), ("country", "device")], "outcome", "raw")
    assert list(raw) == [
        ("default", "all", "all", 10),
        ("default", "country", "country=GB", 10),
        ("default", "country,device", "country=GB,device=a%3Db%2Cc%25", 10),
    ]
    served = result.counts([("country",)], "outcome", "served")
    assert [(key[1:], list(value)) for key, value in served.items() if key[3] == 11] == [
        (("all", "all", 11), [bin_of(0.4)]),
        (("country", "country=GB", 11), [bin_of(0.4)]),
    ]
    assert result.totals([("country",)], "served")["default", "country", "country=GB"].keys() == {
        bin_of(0.3),
        bin_of(0.4),
    }
    assert {key[3] for key in result.counts([], "prediction", "served")} == {10}
    assert (cut_label(()), segment_key((), {})) == ("all", "all")
    assert segment_key(("country", "device"), {"device": None}) == "country=__missing__,device=__missing__"


def test_one_weight_other_than_one_makes_every_row_weighted() -> None:
    events = [p(100), o(101), p(101, key="b", weight=2.0), o(102, key="b")]
    columns = recount(events, Rules(10)).totals([], "raw")["default", "all", "all"][bin_of(0.3)]
    assert len(columns) == 23
    assert columns[9] == 3 * 2**32
    assert columns[18] == 5 * 2**24


def test_extreme_is_what_the_clip_changes() -> None:
    assert [is_extreme(score) for score in (0.0, 1e-7, 1 - 1e-7, 1.0)] == [True, False, False, True]
