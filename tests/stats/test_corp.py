"""The Brier decomposition and tests of proper scores against frozen numbers, scikit-learn and row sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss
from stats_oracle import oracle_numbers, oracle_rows, tally

from streamcal.stats.figures import figures


def _one(p: Any, y: Any, w: Any = None) -> dict[str, float]:
    return {name: float(values[0]) for name, values in figures(tally(p, y, w)[None]).items()}


def _random(n: int, mean_logit: float) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng([n, int(-mean_logit)])
    x = rng.normal(mean_logit, 1.5, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.7 * x - 0.2)))).astype(int)
    return 1 / (1 + np.exp(-x)), y, rng.gamma(2.0, 0.5, n)


def test_the_frozen_decomposition() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()["corp_brier"]
    result = _one(rows.p, rows.y)
    assert result["brier_reliability"] == pytest.approx(oracle["MCB"], abs=3e-4)
    assert result["brier_resolution"] == pytest.approx(oracle["DSC"], abs=3e-4)
    assert result["brier_uncertainty"] == pytest.approx(oracle["UNC"], abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_on_few_distinct_scores_reliability_is_that_of_isotonic_rows(weighted: bool) -> None:
    p, y, w = _random(4_000, -1)
    p = np.round(p * 20) / 20
    weight = w if weighted else np.ones(len(p))
    fitted = IsotonicRegression().fit(p, y, sample_weight=weight).predict(p)
    expected = brier_score_loss(y, p, sample_weight=weight) - brier_score_loss(y, fitted, sample_weight=weight)
    result = _one(p, y, w if weighted else None)
    assert result["brier_reliability"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "mean_logit"), [(300, 0.0), (20_000, -1.0), (20_000, -5.0)])
def test_the_parts_add_up_and_reliability_is_never_negative(n: int, mean_logit: float) -> None:
    p, y, w = _random(n, mean_logit)
    for weight in (None, w):
        result = _one(p, y, weight)
        parts = result["brier_reliability"] - result["brier_resolution"] + result["brier_uncertainty"]
        assert parts == pytest.approx(result["brier"], abs=1e-15)
        assert result["brier_reliability"] >= 0


def test_scores_that_are_the_observed_rates_are_reliable() -> None:
    p = np.repeat([0.2, 0.6], [10, 5])
    y = np.concatenate([np.arange(10) < 2, np.arange(5) < 3]).astype(int)
    result = _one(p, y)
    assert result["brier_reliability"] == pytest.approx(0.0, abs=1e-12)
    assert result["brier_resolution"] == pytest.approx(
        (10 * (0.2 - 1 / 3) ** 2 + 5 * (0.6 - 1 / 3) ** 2) / 15, abs=1e-11
    )


def test_the_frozen_scores() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y)
    assert result["spiegelhalter_z"] == pytest.approx(oracle["spiegelhalter_z"], rel=1e-6)
    # Their clip of scores is another: .1 % of the last digit shown.
    assert result["normalized_entropy"] == pytest.approx(oracle["normalized_entropy"], abs=2e-9)


@pytest.mark.parametrize("mean_logit", [0.0, -1.0, -7.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_spiegelhalter_and_entropy_are_those_of_the_rows(mean_logit: float, weighted: bool) -> None:
    p, y, w = _random(20_000, mean_logit)
    weight = w if weighted else np.ones(len(p))
    variance = (weight**2 * (1 - 2 * p) ** 2 * p * (1 - p)).sum()
    z = (weight * (y - p) * (1 - 2 * p)).sum() / np.sqrt(variance)
    result = _one(p, y, w if weighted else None)
    assert result["spiegelhalter_z"] == pytest.approx(z, rel=2e-6, abs=1e-6)
    rate = np.average(y, weights=weight)
    constant = log_loss(y, np.full(len(y), rate), sample_weight=weight)
    expected = log_loss(y, p, sample_weight=weight) / constant
    assert result["normalized_entropy"] == pytest.approx(expected, rel=1e-9)


def test_within_the_bin_at_one_half_spiegelhalter_errs_by_its_fourth_moment_only() -> None:
    rng = np.random.default_rng(2)
    p = rng.uniform(0.4845, 0.5, 5_000)
    y = (rng.random(len(p)) < p).astype(int)
    z = ((y - p) * (1 - 2 * p)).sum() / np.sqrt(((1 - 2 * p) ** 2 * p * (1 - p)).sum())
    assert _one(p, y)["spiegelhalter_z"] == pytest.approx(z, rel=1e-4)


@pytest.mark.parametrize("scores", [[0.5, 0.5, 0.5], [0.0, 1.0, 0.5]])
def test_where_the_brier_score_cannot_vary_there_is_no_z(scores: list[float]) -> None:
    for w in (None, [0.7, 0.7, 0.7]):
        assert np.isnan(_one(scores, [0, 1, 1], w)["spiegelhalter_z"])


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_normalized_entropy(label: int) -> None:
    assert np.isnan(_one([0.2, 0.4], [label, label])["normalized_entropy"])
