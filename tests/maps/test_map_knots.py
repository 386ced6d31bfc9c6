"""Piecewise curves: exact rational values, never a fall, one answer by table, by search and for single scores."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.maps.families import Cir, Girb, Isotonic
from streamcal.maps.link import HIGHEST, LOWEST, logit

RNG = np.random.default_rng(17)
MANY = np.concatenate([RNG.random(2000), 1 / (1 + np.exp(-RNG.normal(0, 6, 6000))), 1 - RNG.random(500) * 1e-4])
"""Enough scores for the table (and more than one chunk)."""


@st.composite
def risers(draw: st.DrawFn, low: float, high: float, *, strict: bool = True) -> list[float]:
    """An ascending list; often some of its members are neighbours in float64."""
    base = draw(st.lists(st.floats(low, high).filter(lambda x: abs(x) > 1e-7), min_size=2, max_size=12))
    close = [float(np.nextafter(x, high)) for x in base[: draw(st.integers(0, 3))]]
    values = sorted({*base, *close} if strict else [*base, *close])
    return values if len(values) > 1 else [low, high]


@st.composite
def step_maps(draw: st.DrawFn) -> Isotonic:
    scores = draw(risers(LOWEST, HIGHEST))
    pool = draw(risers(1e-6, 1 - 1e-6, strict=False))
    values = sorted(draw(st.lists(st.sampled_from(pool), min_size=len(scores), max_size=len(scores))))
    if values[0] == values[-1]:
        values[-1] = 1 - 1e-7
    return Isotonic(scores, values)


@st.composite
def logit_maps(draw: st.DrawFn) -> Cir:
    x, y = draw(risers(-20.0, 20.0)), draw(risers(-30.0, 30.0))
    n = min(len(x), len(y))
    return Cir(x[:n], y[:n])


def around(knots: list[float]) -> np.ndarray:
    """Each knot, its neighbours in float64, and points between, within [0, 1]."""
    points = np.array([knots, np.nextafter(knots, 0), np.nextafter(knots, 1)]).ravel()
    between = (points[:-1] + points[1:]) / 2
    return np.clip(np.concatenate([points, between, [0.0, 1.0]]), 0.0, 1.0)


def exact(map_: Isotonic, score: float) -> Fraction:
    """The value by rational arithmetic."""
    q = min(max(score, LOWEST), HIGHEST)
    i = bisect_right(map_.scores, q)
    if i in (0, len(map_.scores)):
        return Fraction(map_.values[0 if i == 0 else -1])
    (x0, x1), (y0, y1) = (map(Fraction, list_[i - 1 : i + 1]) for list_ in (map_.scores, map_.values))
    return y0 + (Fraction(q) - x0) * (y1 - y0) / (x1 - x0)


@given(step_maps())
def test_values_are_those_of_rational_arithmetic(map_: Isotonic) -> None:
    scores = around(list(map_.scores))
    expected = [float(exact(map_, score)) for score in scores.tolist()]
    np.testing.assert_allclose(map_.apply(scores), expected, rtol=1e-15)


@given(step_maps())
def test_a_curve_never_falls_by_a_single_bit(map_: Isotonic) -> None:
    served = map_.apply(np.sort(np.concatenate([around(list(map_.scores)), MANY])))
    assert (np.diff(served) >= 0).all()


@given(st.one_of(step_maps(), logit_maps()))
def test_table_search_and_single_scores_agree_to_the_bit(map_: Isotonic | Cir) -> None:
    knots = np.array(map_.scores) if isinstance(map_, Isotonic) else 1 / (1 + np.exp(-np.array(map_.logits)))
    scores = np.concatenate([np.tile(around(knots.tolist()), 20), MANY])
    by_table = map_.apply(scores)
    assert np.array_equal(by_table, np.concatenate([map_.apply(part) for part in np.array_split(scores, 40)]))
    few = scores[:: max(1, len(scores) // 500)]
    assert map_.apply(few).tolist() == [map_.apply_one(p) for p in few.tolist()]


def test_many_knots_in_one_cell_are_still_found() -> None:
    scores = np.linspace(0.3, 0.3 + 1e-6, 200)
    map_ = Girb(scores.tolist(), np.linspace(0.1, 0.9, 200).tolist())
    asked = np.random.default_rng(1).uniform(0.3, 0.3 + 1e-6, 3000)
    assert map_.apply(asked).tolist() == [map_.apply_one(p) for p in asked.tolist()]
    assert map_.apply(asked) == pytest.approx(0.1 + 0.8 * (asked - 0.3) / 1e-6, abs=1e-9)


@given(logit_maps())
def test_between_knots_a_logit_curve_is_straight_and_beyond_them_parallel(map_: Cir) -> None:
    x = np.linspace(-15.9, 15.9, 400)
    y = np.interp(x, map_.logits, map_.served_logits)
    y = np.where(x < map_.logits[0], map_.served_logits[0] + x - map_.logits[0], y)
    y = np.where(x > map_.logits[-1], map_.served_logits[-1] + x - map_.logits[-1], y)
    steepest = max(
        (y1 - y0) / (x1 - x0)
        for (x0, x1), (y0, y1) in zip(pairwise(map_.logits), pairwise(map_.served_logits), strict=True)
    )
    served = map_.apply(1 / (1 + np.exp(-x)))
    inside = np.abs(y) < 30
    # 1 - p is known to 1e-16, so x to 1e-16 exp(x); then a logit curve as steep as it may be.
    slack = 1e-9 + steepest * 4e-16 * np.exp(np.abs(x))
    expected = 1 / (1 + np.exp(-y))
    assert (np.abs(served - expected) <= slack * expected * (1 - expected) + 1e-12)[inside & (slack < 1e-3)].all()


@pytest.mark.parametrize(
    "map_",
    [
        Isotonic([0.1, 0.2, 0.4, 0.8], [0.05, 0.05, 0.3, 0.7]),
        Girb([0.1, 0.3, 0.5, 0.7], [0.1, 0.2, 0.2, 0.6]),
    ],
)
def test_the_inverse_is_the_lowest_score_served_as_much(map_: Isotonic) -> None:
    raw = np.linspace(0.0, 1.0, 100_001)
    served = map_.apply(raw)
    for asked in (0.05, 0.1, 0.15, 0.2, 0.2000001, 0.3, 0.5, 0.6):
        lowest = raw[np.argmax(served >= asked)]
        assert float(map_.inverse(np.array([asked]))[0]) == pytest.approx(max(lowest, LOWEST), abs=1.1e-5)
    ends = map_.inverse(np.array([map_.values[0] / 2, map_.values[-1] * 1.01]))
    assert ends.tolist() == [LOWEST, HIGHEST]


def test_the_inverse_of_a_logit_curve_gives_the_score_back() -> None:
    map_ = Cir([-3.0, -1.0, 0.5], [-2.0, -1.5, 2.0])
    p = np.random.default_rng(2).uniform(0.001, 0.999, 500)
    np.testing.assert_allclose(map_.inverse(map_.apply(p)), p, rtol=1e-12)
    assert logit(map_.inverse(np.array([0.5])))[0] == pytest.approx(-1.0 + 1.5 * 1.5 / 3.5)


def test_the_knots_are_kept_as_given() -> None:
    given_knots: Any = np.array([0.125, 0.5])
    assert Isotonic(given_knots, [0.25, 0.5]).parameters() == {"scores": [0.125, 0.5], "values": [0.25, 0.5]}
    assert Girb([0.1, 0.2], [0.1, 0.2]) != Isotonic([0.1, 0.2], [0.1, 0.2])
    assert hash(Girb([0.1, 0.2], [0.1, 0.2])) == hash(Girb((0.1, 0.2), (0.1, 0.2)))
