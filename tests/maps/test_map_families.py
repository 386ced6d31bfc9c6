"""Map families against the formulas worked by hand, exact rational arithmetic and bit-for-bit scalars."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamcal.errors import MapDocumentError
from streamcal.maps.families import (
    FAMILIES,
    Beta,
    Cir,
    Girb,
    Identity,
    Intercept,
    Isotonic,
    Map,
    Platt,
    Prior,
    Temperature,
    Tracking,
    from_parameters,
)

RNG = np.random.default_rng(20130201)
SCORES = np.concatenate([RNG.random(3000), 1 / (1 + np.exp(-RNG.normal(0, 8, 3000))), [0.0, 1.0, 1e-300, 5e-324, 0.5]])

MAPS: list[Map] = [
    Identity(),
    Prior(negative_sampling_rate=0.01),
    Prior(negative_sampling_rate=1.0),
    Prior(positive_weight=30.0),
    Prior(positive_weight=0.2),
    Prior(positive_weight=1e300),
    Platt(0.60314, 0.00871),
    Platt(1.0, 0.0),
    Platt(2.5, -4.0),
    Platt(0.05, 12.0),
    Platt(60.0, 0.0),
    Platt(1.0, -2000.0),
    Platt(1.0, 2000.0),
    Intercept(-1.0),
    Intercept(900.0),
    Temperature(2.0),
    Temperature(0.01),
    Tracking(0.55, -0.4),
    Beta(0.7907249, 0.6919384, -0.2045015),
    Beta(0.0, 1.5, 0.3),
    Beta(2.0, 0.0, 40.0),
    Isotonic([0.001, 0.01, 0.02, 0.4, 0.9], [1e-6, 0.02, 0.02, 0.3, 0.99]),
    Isotonic(np.linspace(1e-6, 1e-3, 300), np.linspace(2e-6, 0.9, 300)),
    Girb([0.02, 0.1, 0.3, 0.5], [0.05, 0.05, 0.2, 0.2001]),
    Cir([-4.0, -3.9, 0.0, 3.0], [-3.0, -2.99, 0.5, 0.6]),
    Cir([0.25], [-3.0]),
    Cir(np.linspace(-16.2, 16.2, 280), np.linspace(-9, 12, 280)),
]


@pytest.mark.parametrize(
    ("parameters", "raw", "served"),
    [
        ({"negative_sampling_rate": 0.01}, 0.5, 0.00990099),
        ({"positive_weight": 30}, 0.6, 0.047619048),
        ({"negative_sampling_rate": 0.1}, 0.344827586, 0.05),
    ],
)
def test_a_prior_gives_the_published_corrections(parameters: dict[str, float], raw: float, served: float) -> None:
    assert from_parameters("prior", parameters).apply_one(raw) == pytest.approx(served, rel=1e-6)


def test_a_prior_undoes_negative_sampling_exactly() -> None:
    # True rate 1 %, a tenth of the negatives kept: the sampled world shows 1 / (1 + .1 * 99) = 10/109.
    shown = Fraction(10, 109)
    assert float(shown) == pytest.approx(0.0917, abs=5e-5)
    assert Prior(negative_sampling_rate=0.1).apply_one(float(shown)) == pytest.approx(0.01, rel=1e-15)


def test_a_prior_moves_the_logit_by_the_logarithm_of_the_rate() -> None:
    bias = math.log(0.3726) - math.log1p(-0.3726)
    served = Prior(negative_sampling_rate=0.1).apply_one(0.3726)
    assert math.log(served / (1 - served)) == pytest.approx(bias - 2.302585093, rel=1e-9)


def test_a_prior_equals_exact_odds_arithmetic() -> None:
    p = RNG.uniform(1e-6, 1 - 1e-6, 200)
    for weight in (30.0, 0.2, 7.5):
        exact = [float(Fraction(x) / (Fraction(x) + Fraction(weight) * (1 - Fraction(x)))) for x in p.tolist()]
        np.testing.assert_allclose(Prior(positive_weight=weight).apply(p), exact, rtol=4e-16)


def test_rate_and_weight_are_one_correction() -> None:
    by_rate, by_weight = Prior(negative_sampling_rate=0.125), Prior(positive_weight=8.0)
    assert np.array_equal(by_rate.apply(SCORES), by_weight.apply(SCORES))


@pytest.mark.parametrize(("raw", "served"), [(0.95, 0.856), (0.05, 0.146), (0.25, 0.342)])
def test_platt_gives_the_published_values_of_the_over_confident_model(raw: float, served: float) -> None:
    assert Platt(0.60314, 0.00871).apply_one(raw) == pytest.approx(served, abs=1e-3)


def test_an_offset_of_minus_one_serves_a_half_as_published() -> None:
    assert Platt(1.0, -1.0).apply_one(0.5) == pytest.approx(0.268941, abs=5e-7)


def test_platt_equals_the_odds_power_form() -> None:
    p = RNG.uniform(1e-6, 1 - 1e-6, 500)
    odds = math.e**-0.4 * (p / (1 - p)) ** 0.55
    np.testing.assert_allclose(Platt(0.55, -0.4).apply(p), odds / (1 + odds), rtol=1e-13)


@pytest.mark.parametrize("map_", MAPS, ids=repr)
def test_scalar_and_array_agree_to_the_bit(map_: Map) -> None:
    one_by_one = np.array([map_.apply_one(p) for p in SCORES.tolist()])
    assert np.array_equal(map_.apply(SCORES), one_by_one)
    assert np.array_equal(map_.apply(SCORES[::-3]), one_by_one[::-3])
    assert np.array_equal(map_.apply(SCORES[:6000].reshape(60, 100).T), one_by_one[:6000].reshape(60, 100).T)


@given(
    arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1)),
    st.floats(1e-3, 20),
    st.floats(-30, 30),
)
def test_scalar_and_array_agree_to_the_bit_at_any_length(scores: np.ndarray, slope: float, intercept: float) -> None:
    map_ = Platt(slope, intercept)
    assert map_.apply(scores).tolist() == [map_.apply_one(p) for p in scores.tolist()]


@pytest.mark.parametrize("map_", MAPS, ids=repr)
def test_outputs_lie_strictly_inside_the_unit_interval(map_: Map) -> None:
    served = map_.apply(SCORES)
    assert served.dtype == np.float64
    assert ((served > 0) & (served < 1)).all()


@pytest.mark.parametrize("map_", MAPS, ids=repr)
def test_the_order_of_scores_is_kept(map_: Map) -> None:
    served = map_.apply(np.sort(SCORES))
    assert (np.diff(served) >= -4e-16).all()
    apart = map_.apply(np.linspace(0, 1, 1001))
    assert all(a <= b for a, b in pairwise(apart.tolist()))


@pytest.mark.parametrize(
    "map_",
    [Identity(), Prior(negative_sampling_rate=0.01), Prior(positive_weight=30.0), Platt(0.6, 0.2), Platt(1.7, -1)],
)
def test_the_inverse_gives_the_raw_score_back(map_: Map) -> None:
    p = RNG.uniform(0.01, 0.99, 500)
    np.testing.assert_allclose(map_.inverse(map_.apply(p)), p, rtol=1e-12)


def test_scores_beyond_the_clip_are_served_as_the_clip() -> None:
    for map_ in MAPS:
        assert map_.apply_one(0.0) == map_.apply_one(1e-7)
        assert map_.apply_one(1.0) == map_.apply_one(1 - 1e-7)


def test_the_input_array_is_left_alone() -> None:
    p = np.array([0.0, 0.3, 1.0])
    for map_ in MAPS:
        map_.apply(p)
        map_.inverse(p)
    assert p.tolist() == [0.0, 0.3, 1.0]


@pytest.mark.parametrize("map_", MAPS, ids=repr)
def test_parameters_make_the_same_map_again(map_: Map) -> None:
    assert from_parameters(map_.family, map_.parameters()) == map_


def test_every_registered_family_answers_to_its_name() -> None:
    assert list(FAMILIES) == [
        "identity", "prior", "intercept", "temperature", "platt", "beta", "isotonic", "girb", "cir", "tracking",
    ]  # fmt: skip
    assert {map_.family for map_ in MAPS} == set(FAMILIES)


@pytest.mark.parametrize(
    ("family", "parameters", "named"),
    [
        ("platt", {"slope": 0.0, "intercept": 0.0}, "0.0"),
        ("platt", {"slope": -1.0, "intercept": 0.0}, "-1.0"),
        ("platt", {"slope": math.nan, "intercept": 0.0}, "nan"),
        ("platt", {"slope": 1.0, "intercept": math.inf}, "inf"),
        ("platt", {"slope": 1.0}, "intercept"),
        ("platt", {"slope": 1.0, "intercept": 0.0, "gain": 1.0}, "gain"),
        ("prior", {}, "negative_sampling_rate"),
        ("prior", {"negative_sampling_rate": 0.1, "positive_weight": 10.0}, "either"),
        ("prior", {"negative_sampling_rate": 0.0}, "0.0"),
        ("prior", {"negative_sampling_rate": 1.5}, "1.5"),
        ("prior", {"positive_weight": 0.0}, "0.0"),
        ("prior", {"positive_weight": math.inf}, "inf"),
        ("identity", {"slope": 1.0}, "slope"),
        ("spline", {}, "spline"),
    ],
)
def test_parameters_that_make_no_map_are_refused_by_name(family: str, parameters: dict[str, float], named: str) -> None:
    with pytest.raises(MapDocumentError, match=named):
        from_parameters(family, parameters)
