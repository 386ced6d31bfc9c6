"""Fits from counts against row-level fits of statsmodels and scipy, and what has no answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from stats_oracle import expand, oracle_numbers, oracle_rows, statistics_cases, tally

from streamcal.stats.platt import PlattFit, Prior, fit_offset, fit_platt

_RANDOM = [(1e-5, 400_000), (1e-3, 200_000), (0.02, 20_000), (0.5, 3_000), (0.97, 5_000)]


def _logit(p: Any) -> Any:
    q = np.clip(p, 1e-7, 1 - 1e-7)
    return np.log(q) - np.log1p(-q)


def _fit(p: Any, y: Any, w: Any = None, prior: Prior | None = None) -> PlattFit:
    return fit_platt(tally(p, y, w)[None], prior=prior)


def _random(base_rate: float, n: int, slope: float = 0.8) -> tuple[Any, Any]:
    rng = np.random.default_rng([n, int(base_rate * 1e6)])
    x = rng.normal(_logit(base_rate), 1.3, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(slope * x - 0.1)))).astype(int)
    return 1 / (1 + np.exp(-x)), y


def _glm(p: Any, y: Any, **options: Any) -> Any:
    return sm.GLM(y, sm.add_constant(_logit(p)), family=sm.families.Binomial(), **options)


def test_the_frozen_row_level_fit() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    fit, offset = _fit(rows.p, rows.y), fit_offset(tally(rows.p, rows.y)[None])
    assert fit.slope[0] == pytest.approx(oracle["platt_slope"], abs=1e-6)
    assert fit.intercept[0] == pytest.approx(oracle["platt_intercept"], abs=1e-6)
    assert [fit.intercept_se[0], fit.slope_se[0]] == pytest.approx(oracle["platt_se"], rel=1e-6)
    assert offset.intercept[0] == pytest.approx(oracle["intercept_offset"], abs=1e-6)
    assert offset.intercept_se[0] == pytest.approx(oracle["intercept_offset_se"], rel=1e-5)


def test_the_frozen_segment_fits_side_by_side() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    names = ("a", "b", "c")
    counts = np.stack([tally(rows.p[rows.segment == name], rows.y[rows.segment == name]) for name in names])
    fit = fit_platt(counts)
    for i, name in enumerate(names):
        expected = oracle[f"platt_segment_{name}"]
        assert fit.slope[i] == pytest.approx(expected["slope"], abs=2e-6)
        assert fit.intercept[i] == pytest.approx(expected["intercept"], abs=2e-6)
        assert [fit.intercept_se[i], fit.slope_se[i]] == pytest.approx(expected["se"], rel=1e-5)


def test_the_frozen_weighted_fit() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    fit = _fit(rows.p, rows.y, rows.w)
    assert [fit.intercept[0], fit.slope[0]] == pytest.approx(oracle["platt_weighted"], abs=1e-6)


@pytest.mark.parametrize(("base_rate", "n"), _RANDOM)
def test_random_rows_agree_with_a_row_level_fit(base_rate: float, n: int) -> None:
    p, y = _random(base_rate, n)
    model = _glm(p, y).fit(tol=1e-12)
    fit = _fit(p, y)
    assert fit.slope[0] == pytest.approx(model.params[1], abs=1e-6)
    assert np.all(np.abs([fit.intercept[0], fit.slope[0]] - model.params) < 1e-4 * model.bse)
    assert [fit.intercept_se[0], fit.slope_se[0]] == pytest.approx(model.bse, rel=1e-5)
    family = sm.families.Binomial()
    shift = sm.GLM(y, np.ones(n), family=family, offset=_logit(p)).fit(tol=1e-12)
    offset = fit_offset(tally(p, y)[None])
    assert offset.intercept[0] == pytest.approx(shift.params[0], abs=2e-6)
    assert offset.intercept_se[0] == pytest.approx(shift.bse[0], rel=1e-5)


@pytest.mark.parametrize("slope", [-2.0, -0.3, 0.05, 3.0])
def test_far_from_calibrated_scores_still_converge(slope: float) -> None:
    p, y = _random(0.3, 20_000, slope)
    model = _glm(p, y).fit(tol=1e-12)
    fit = _fit(p, y)
    assert [fit.intercept[0], fit.slope[0]] == pytest.approx(model.params, abs=2e-4)


def test_weights_weigh_the_fit_and_the_errors_do_not_shrink_with_them() -> None:
    p, y = _random(0.5, 3_000)
    w = np.random.default_rng(2).gamma(2.0, 0.5, len(p))
    model = _glm(p, y, freq_weights=w).fit(tol=1e-12)
    x = sm.add_constant(_logit(p))
    s = 1 / (1 + np.exp(-x @ model.params))
    bread = np.linalg.inv((x.T * (w * s * (1 - s))) @ x)
    expected = np.sqrt(np.diag(bread @ ((x.T * (w**2 * s * (1 - s))) @ x) @ bread))
    for scale in (1.0, 3.0):
        fit = _fit(p, y, scale * w)
        assert [fit.intercept[0], fit.slope[0]] == pytest.approx(model.params, abs=2e-6)
        assert [fit.intercept_se[0], fit.slope_se[0]] == pytest.approx(expected, rel=1e-4)


def test_weight_one_gives_the_unweighted_fit() -> None:
    p, y = _random(0.02, 20_000)
    plain, weighted = _fit(p, y), _fit(p, y, np.ones(len(p)))
    assert weighted.slope[0] == pytest.approx(plain.slope[0], rel=1e-12)
    assert weighted.slope_se[0] == pytest.approx(plain.slope_se[0], rel=1e-9)


@pytest.mark.parametrize(
    "rows",
    [
        [(0.1, 50, 0), (0.9, 50, 50)],
        [(0.1, 50, 50), (0.9, 50, 0)],
        [(0.1, 50, 0), (0.5, 50, 25), (0.9, 50, 50)],
        [(0.1, 50, 0), (0.9, 50, 25)],
        [(0.2, 50, 0), (0.3, 50, 0)],
        [(0.2, 50, 50), (0.3, 50, 50)],
        [(0.2, 100, 30)],
        [(0.3, 50, 20), (0.3000001, 50, 25)],
    ],
    ids=["separated", "inverted", "touching", "half open", "negatives", "positives", "one score", "one score twice"],
)
def test_where_no_slope_exists_none_is_given(rows: list[tuple[float, int, int]]) -> None:
    fit = _fit(*expand(rows))
    assert not fit.converged[0]
    assert np.isnan([fit.slope[0], fit.intercept[0], fit.slope_se[0], fit.intercept_se[0]]).all()


def test_a_constant_score_has_an_offset_and_no_slope() -> None:
    offset = fit_offset(tally(*expand([(0.2, 100, 30)]))[None])
    assert offset.intercept[0] == pytest.approx(_logit(0.3) - _logit(0.2), abs=1e-9)
    assert offset.intercept_se[0] == pytest.approx((100 * 0.3 * 0.7) ** -0.5, rel=1e-6)


@pytest.mark.parametrize("rows", [[(0.2, 50, 0), (0.6, 50, 0)], [(0.2, 50, 50)]])
def test_one_class_has_no_offset(rows: list[tuple[float, int, int]]) -> None:
    offset = fit_offset(tally(*expand(rows))[None])
    assert not offset.converged[0]
    assert np.isnan(offset.intercept[0])


def test_a_class_of_weight_zero_is_no_class() -> None:
    p, y = expand([(0.2, 50, 10), (0.6, 50, 20)])
    fit = _fit(p, y, np.where(y == 1, 0.0, 1.5))
    assert not fit.converged[0]


def test_separable_rows_have_a_finite_map() -> None:
    case = next(case for case in statistics_cases()["maps"] if case["id"] == "separable rows")
    fit = _fit(case["x_scores"], case["y"], prior=Prior())
    assert fit.slope[0] == pytest.approx(case["map_slope"], rel=1e-6)
    assert fit.intercept[0] == pytest.approx(0.0, abs=1e-9)
    assert not _fit(case["x_scores"], case["y"]).converged[0]


@pytest.mark.parametrize("prior", [Prior(), Prior(slope_mean=0.7, slope_sd=0.1, intercept_mean=-0.5, intercept_sd=0.2)])
@pytest.mark.parametrize("n", [3, 60, 2_000])
def test_the_map_fit_is_the_row_level_posterior_mode(prior: Prior, n: int) -> None:
    p, y = _random(0.1, n)
    x = _logit(p)

    def loss(theta: Any) -> tuple[float, Any]:
        a, b = theta
        z = a + b * x
        s = 1 / (1 + np.exp(-z))
        value = np.logaddexp(0, z).sum() - (y * z).sum()
        away = np.array([a - prior.intercept_mean, b - prior.slope_mean])
        precision = np.array([prior.intercept_sd, prior.slope_sd]) ** -2.0
        gradient = np.array([(s - y).sum(), ((s - y) * x).sum()]) + precision * away
        return float(value + 0.5 * (precision * away**2).sum()), gradient

    mode = minimize(loss, [0.0, 1.0], jac=True, method="BFGS", options={"gtol": 1e-8}).x
    fit = _fit(p, y, prior=prior)
    assert fit.converged[0]
    assert [fit.intercept[0], fit.slope[0]] == pytest.approx(mode, abs=1e-5)


def test_without_rows_the_map_fit_is_the_prior() -> None:
    counts = np.stack([np.zeros((284, 9), dtype=np.int64), tally([0.2, 0.4], [1, 0])])
    fit = fit_platt(counts, prior=Prior())
    assert (fit.slope[0], fit.intercept[0], fit.slope_se[0], fit.intercept_se[0]) == (1.0, 0.0, 0.5, 1.0)
    assert fit.converged.all()
    assert fit.slope_se[1] < 0.5


def test_many_positives_leave_nothing_of_the_prior() -> None:
    p, y = _random(0.5, 200_000)
    likelihood, posterior = _fit(p, y), _fit(p, y, prior=Prior())
    assert posterior.slope[0] == pytest.approx(likelihood.slope[0], abs=1e-4)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=50),
    st.sampled_from([1, 7, 1_000]),
)
@settings(max_examples=200, deadline=None)
def test_the_map_fit_is_finite_for_any_rows_however_often_repeated(rows: list[tuple[float, int]], times: int) -> None:
    p, y = zip(*rows, strict=True)
    fit = fit_platt(tally(p, y)[None] * times, prior=Prior())
    assert fit.converged[0]
    assert np.isfinite([fit.slope[0], fit.intercept[0], fit.slope_se[0], fit.intercept_se[0]]).all()


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=50))
@settings(max_examples=200, deadline=None)
def test_a_slope_that_is_given_solves_the_row_level_equations(rows: list[tuple[float, int]]) -> None:
    p, y = (np.array(column) for column in zip(*rows, strict=True))
    fit = _fit(p, y)
    if not fit.converged[0]:
        assert np.isnan(fit.slope[0])
        return
    x = _logit(p)
    s = 1 / (1 + np.exp(-(fit.intercept[0] + fit.slope[0] * x)))
    # Expansion inside a bin: third order in slope * half a bin, per row.
    allowed = len(p) * (abs(fit.slope[0]) * 0.0625) ** 3 + 1e-6
    assert abs((s - y).sum()) < allowed
    assert abs((x * (s - y)).sum()) < allowed * np.abs(x).max() + 0.01 * allowed + 1e-6
