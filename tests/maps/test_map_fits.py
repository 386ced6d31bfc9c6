"""Fits from counts against row-level optimisation, published numbers, and recounts written another way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from stats_oracle import expand, oracle_rows, statistics_cases, tally

from streamcal.maps.document import decode, encode, new_document
from streamcal.maps.families import Beta, Identity, Intercept, Map, Platt, Temperature
from streamcal.maps.fit import FITS, fit_beta, fit_cir, fit_intercept, fit_isotonic, fit_platt, fit_temperature
from streamcal.maps.fit_bins import fit_bins
from streamcal.maps.fit_isotonic import pool
from streamcal.maps.fit_logistic import Normal, constant, fit_logistic, line, log_rest, log_score

TABLE = [
    (0.05, 300, 44),
    (0.15, 150, 39),
    (0.25, 100, 34),
    (0.35, 80, 33),
    (0.45, 70, 33),
    (0.55, 70, 37),
    (0.65, 60, 36),
    (0.75, 60, 40),
    (0.85, 60, 44),
    (0.95, 50, 43),
]
"""An over-confident model, 1,000 held-out rows: score, rows, positives."""

FLAT = 1e6
"""A standard deviation that leaves maximum likelihood."""


def case(name: str) -> dict[str, Any]:
    return next(item for item in statistics_cases()["maps"] if item["id"] == name)


def logits(p: Any) -> Any:
    q = np.clip(p, 1e-7, 1 - 1e-7)
    return np.log(q) - np.log1p(-q)


def drawn(seed: int, n: int, slope: float = 0.8, mean: float = -2.0, intercept: float = -0.1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, 1.3, n)
    return expit(x), (rng.random(n) < expit(slope * x + intercept)).astype(int)


def mode(features: Any, y: Any, priors: list[tuple[float, float]], offset: Any = 0.0) -> Any:
    """The mode of the posterior over rows, by a general optimiser."""
    mean, sd = np.array(priors).T

    def loss(at: Any) -> Any:
        z = features @ at + offset
        away = (at - mean) / sd
        gap = expit(z) - y
        return -(log_expit(z)[y == 1].sum() + log_expit(-z)[y == 0].sum()) + 0.5 * away @ away, (
            features.T @ gap + away / sd
        )

    return minimize(loss, mean, jac=True, method="BFGS", options={"gtol": 1e-7}).x


# --- logistic families --------------------------------------------------------------------------------------


def test_maximum_likelihood_equals_the_frozen_row_level_fits() -> None:
    # statsmodels 0.15.0, GLM Binomial on the 5,000 rows, given with 7 or 8 digits
    rows = oracle_rows()
    bins = fit_bins(tally(rows.p, rows.y))
    free = Normal(0.0, FLAT)
    offset = fit_logistic(bins, [(constant, free), (line, Normal(1.0, 0.0))])
    temperature = fit_logistic(bins, [(line, free)])
    platt = fit_logistic(bins, [(constant, free), (line, free)])
    beta = fit_logistic(bins, [(constant, free), (log_score, free), (log_rest, free)])
    assert offset == pytest.approx([0.05144657, 1.0], abs=1e-6)
    assert temperature == pytest.approx([0.85953916], abs=1e-6)
    assert platt == pytest.approx([-0.27677358, 0.76680899], abs=1e-6)
    assert beta == pytest.approx([-0.2045015, 0.7907249, 0.6919384], abs=1e-4)  # standard errors .058 and .155


@pytest.mark.parametrize(("n", "mean"), [(300, 0.0), (4000, -3.0), (100_000, -5.0)])
def test_posterior_modes_equal_those_of_the_rows(n: int, mean: float) -> None:
    p, y = drawn(n, n, mean=mean)
    x, one, counts = logits(p), np.ones(n), tally(p, y)
    level, spread = (0.0, 1.0), (1.0, 0.5)
    intercept, temperature = fit_intercept(counts, Identity()), fit_temperature(counts, Identity())
    platt, beta = fit_platt(counts, Identity()), fit_beta(counts, Identity())
    assert isinstance(intercept, Intercept)
    assert isinstance(temperature, Temperature)
    assert isinstance(platt, Platt)
    assert isinstance(beta, Beta)
    assert [intercept.intercept] == pytest.approx(mode(one[:, None], y, [level], x), abs=2e-5)
    assert [1 / temperature.temperature] == pytest.approx(mode(x[:, None], y, [spread]), abs=2e-5)
    assert [platt.intercept, platt.slope] == pytest.approx(
        mode(np.column_stack([one, x]), y, [level, spread]), abs=2e-5
    )
    features = np.column_stack([log_expit(x), -log_expit(-x), one])
    assert [beta.a, beta.b, beta.c] == pytest.approx(mode(features, y, [spread, spread, level]), abs=1e-4)


def test_both_ways_to_fit_platt_agree() -> None:
    for n, mean in ((50, 0.0), (5000, -4.0)):
        counts = tally(*drawn(n + 1, n, mean=mean))
        platt = fit_platt(counts, Identity())
        other = fit_logistic(fit_bins(counts), [(constant, Normal(0.0, 1.0)), (line, Normal(1.0, 0.5))])
        assert isinstance(platt, Platt)
        assert other == pytest.approx([platt.intercept, platt.slope], abs=1e-8)


@pytest.mark.parametrize(("a", "b", "left_out"), [(2.0, -1.5, 1), (-0.8, 2.5, 0)])
def test_beta_leaves_out_a_term_that_would_be_negative(a: float, b: float, left_out: int) -> None:
    rng = np.random.default_rng(8)
    p = rng.uniform(0.01, 0.99, 20_000)
    y = (rng.random(20_000) < expit(a * np.log(p) - b * np.log1p(-p) + 0.2)).astype(int)
    fit = fit_beta(tally(p, y), Identity())
    assert isinstance(fit, Beta)
    assert [fit.a, fit.b][left_out] == 0.0
    kept = [np.log(p), -np.log1p(-p)][1 - left_out]
    expected = mode(np.column_stack([kept, np.ones(len(p))]), y, [(1.0, 0.5), (0.0, 1.0)])
    assert [[fit.a, fit.b][1 - left_out], fit.c] == pytest.approx(expected, abs=5e-5)


def test_platt_of_separable_rows_is_finite() -> None:
    rows = case("separable rows")
    fit = fit_platt(tally(rows["x_scores"], rows["y"]), Identity())
    assert isinstance(fit, Platt)
    assert fit.slope == pytest.approx(rows["map_slope"], abs=1e-6)


def test_the_over_confident_model_is_mended_as_published() -> None:
    p, y = expand(TABLE)
    bins = fit_bins(tally(p, y))
    exact = fit_logistic(bins, [(constant, Normal(0.0, FLAT)), (line, Normal(1.0, FLAT))])
    assert exact == pytest.approx([0.00871, 0.60314], abs=5e-6)
    platt = fit_platt(tally(p, y), Identity())
    assert isinstance(platt, Platt)
    served = platt.apply(np.array([score for score, _, _ in TABLE]))
    n, positives = np.array([(n, k) for _, n, k in TABLE], dtype=float).T
    assert served[[9, 0, 2]] == pytest.approx([0.856, 0.146, 0.342], abs=2e-3)
    assert np.abs(n * served - positives).sum() / n.sum() == pytest.approx(0.0025, abs=5e-4)


def test_a_refit_of_the_same_truth_gives_the_same_map() -> None:
    # Served .268941 under offset -1; the labels say so too; the next map is that offset again, not twice it.
    fit = fit_intercept(tally(np.full(400_000, 0.5), np.arange(400_000) < 107_576), Identity())
    assert isinstance(fit, Intercept)
    assert fit.apply_one(0.5) == pytest.approx(0.268941, abs=2e-6)


# --- isotonic -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=60))
def test_pooling_preserves_the_weighted_mean_and_never_falls(rows: list[tuple[int, float]]) -> None:
    weights, rates = np.array(rows, dtype=float).T
    fitted, starts = pool(rates, weights)
    assert weights @ fitted == pytest.approx(weights @ rates, rel=1e-12, abs=1e-12)
    assert (np.diff(fitted) >= 0).all()
    for start, stop in pairwise(starts.tolist()):
        block = slice(start, stop)
        assert fitted[block] == pytest.approx(np.average(rates[block], weights=weights[block]), rel=1e-9, abs=1e-12)


def test_ties_are_one_value() -> None:
    ties = case("isotonic ties")
    x, y = np.array(ties["x"]), np.array(ties["y"], dtype=float)
    weights = np.bincount(x).astype(float)
    fitted, _ = pool(np.bincount(x, y) / weights, weights)
    assert fitted[x] == pytest.approx(ties["values"], abs=1e-9)


def test_isotonic_of_rising_rates_is_the_rates() -> None:
    fit = fit_isotonic(tally(*expand(TABLE)), Identity())
    assert not isinstance(fit, str)
    scores, n, positives = np.array(TABLE).T
    assert fit.apply(scores) == pytest.approx(positives / n, rel=1e-10)


def test_isotonic_equals_row_level_regression_where_scores_are_few() -> None:
    sklearn = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(3)
    p = rng.choice(np.linspace(0.03, 0.97, 40), 5000)
    y = (rng.random(5000) < 0.2 + 0.5 * p).astype(int)
    fit = fit_isotonic(tally(p, y), Identity())
    assert not isinstance(fit, str)
    theirs = sklearn.IsotonicRegression(out_of_bounds="clip").fit(p, y).predict(np.linspace(0, 1, 999))
    # Fixed point keeps a bin's mean score to 1e-12.
    assert fit.apply(np.linspace(0, 1, 999)) == pytest.approx(np.clip(theirs, 1e-6, 1 - 1e-6), abs=1e-10)


def recounted_cir(p: Any, y: Any, prior: Map, kappa: float = 2.0) -> tuple[list[float], list[float]]:
    """Knots by loops over rows and blocks."""
    filled = fit_bins(tally(p, y)).index.tolist()
    bin_of = np.array([np.flatnonzero(tally([score], [0])[:, 0])[0] for score in p])
    blocks: list[list[float]] = []  # weight, weighted value, weighted logit
    for b in filled:
        rows = bin_of == b
        n, positives = int(rows.sum()), int(y[rows].sum())
        q = prior.apply_one(float(p[rows].mean()))
        m = min(n, kappa / min(q, 1 - q))
        blocks.append([n + m, positives + m * q, (n + m) * logits(p[rows]).mean()])
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][0] >= blocks[-1][1] / blocks[-1][0]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return [x / w for w, _, x in blocks], [float(logits(v / w)) for w, v, _ in blocks]


def test_cir_equals_a_recount_over_rows() -> None:
    p, y = drawn(4, 3000)
    prior = Platt(0.8, -0.1)
    fit = fit_cir(tally(p, y), prior)
    assert not isinstance(fit, str)
    x, served = recounted_cir(p, y, prior)
    assert list(fit.logits) == pytest.approx(x, abs=1e-8)
    assert list(fit.served_logits) == pytest.approx(served, abs=1e-8)


def test_cir_carries_the_change_at_its_ends_on() -> None:
    fit = fit_cir(tally(*drawn(5, 4000)), Platt(0.8, -0.1))
    assert not isinstance(fit, str)
    for end, beyond in ((0, -15.0), (-1, 11.0)):
        raised = float(logits(fit.apply_one(float(expit(beyond)))))
        assert raised - fit.served_logits[end] == pytest.approx(beyond - fit.logits[end], abs=1e-7)


# --- every family -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FITS)
@pytest.mark.parametrize("mean", [-4.5, 0.0, 3.5])
def test_what_is_fitted_is_a_rising_map_that_a_document_holds(family: str, mean: float) -> None:
    map_ = FITS[family](tally(*drawn(6, 20_000, mean=mean)), Platt(0.8, -0.1))
    assert not isinstance(map_, str)
    assert map_.family == family
    served = map_.apply(np.linspace(0, 1, 5001))
    assert ((served > 0) & (served < 1)).all()
    assert (np.diff(served) >= 0).all()
    if family not in ("isotonic", "girb"):
        assert (np.diff(served[1:-1]) > 0).all()
    assert decode(encode(new_document("m", 1, map_, at_ms=0))).to_map() == map_


@pytest.mark.parametrize("family", [name for name in FITS if name not in ("identity", "intercept")])
def test_an_inverted_ranking_is_refused(family: str) -> None:
    counts = tally(*expand([(0.9, 1000, 100), (0.5, 1000, 500), (0.1, 1000, 900)]))
    assert FITS[family](counts, Identity()) == "slope_not_positive"


@pytest.mark.parametrize("positives", [0, 400])
def test_a_single_class_gives_a_finite_map_or_a_reason(positives: int) -> None:
    counts = tally(*expand([(score, 40, 40 if positives else 0) for score in np.linspace(0.05, 0.95, 10)]))
    for family, fit in FITS.items():
        map_ = fit(counts, Identity())
        if family in ("girb", "cir", "isotonic"):
            assert map_ == "too_few_labels"
        else:
            assert not isinstance(map_, str)


def test_no_rows_give_the_identity_or_a_reason() -> None:
    counts = np.zeros((284, 9), dtype=np.int64)
    p = np.linspace(0.01, 0.99, 99)
    for fit in FITS.values():
        map_ = fit(counts, Identity())
        if isinstance(map_, str):
            assert map_ == "too_few_labels"
        else:
            assert map_.apply(p) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("family", [name for name in FITS if name != "platt"])
def test_weights_count_by_their_effective_number(family: str) -> None:
    p, y = drawn(7, 6000)
    weights = np.random.default_rng(7).choice([0.5, 1.0, 2.0], len(p))
    prior = Platt(0.8, -0.1)
    plain = FITS[family](tally(p, y), prior)
    alike = FITS[family](tally(p, y, np.full(len(p), 4.0)), prior)
    once, twice = (FITS[family](tally(p, y, factor * weights), prior) for factor in (1.0, 2.0))
    grid = np.linspace(0.001, 0.999, 400)
    for one, other in ((plain, alike), (once, twice)):
        assert not isinstance(one, str)
        assert not isinstance(other, str)
        assert other.apply(grid) == pytest.approx(one.apply(grid), rel=1e-6)
    assert not isinstance(plain, str)
    assert not isinstance(once, str)
    assert family == "identity" or not np.allclose(once.apply(grid), plain.apply(grid), rtol=1e-6)
