"""Noise of calibrated scores against the exact distribution of their outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from stats_oracle import oracle_numbers, oracle_rows, tally

from streamcal.stats.figures import figures
from streamcal.stats.noise import mean_absolute_deviation


def _one(p: Any, y: Any, w: Any = None, **options: Any) -> dict[str, float]:
    return {name: float(values[0]) for name, values in figures(tally(p, y, w)[None], **options).items()}


def _distribution(p: Any, w: Any) -> dict[float, float]:
    """Probability of each value of sum w (y - p), by going through all outcomes."""
    law = {-float(w @ p): 1.0}
    for one, weight in zip(p, w, strict=True):
        step: dict[float, float] = {}
        for value, mass in law.items():
            step[value] = step.get(value, 0.0) + mass * (1 - one)
            step[value + weight] = step.get(value + weight, 0.0) + mass * one
        law = step
    return law


@pytest.mark.parametrize("n", [1, 2, 3, 17, 400, 9_000])
@pytest.mark.parametrize("p", [1e-6, 0.01, 0.3, 0.5, 0.99])
def test_the_deviation_is_that_of_the_binomial(n: int, p: float) -> None:
    k = np.arange(n + 1)
    exact = binom.pmf(k, n, p) @ np.abs(k - n * p)
    found = mean_absolute_deviation(np.array([n * p]), np.array([n * p * (1 - p)]))[0]
    assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("p", [0.5, 0.02, 1e-4])
def test_the_normal_form_takes_over_without_a_step(p: float) -> None:
    variance = np.array([0.9999e4, 1.0001e4])
    below, above = mean_absolute_deviation(variance / (1 - p), variance) / np.sqrt(variance)
    assert below == pytest.approx(above, rel=5e-5)


def test_a_mean_of_no_binomial_is_taken_as_poisson() -> None:
    # e^-3 * 3^4 / 3! * 2: Poisson's mean deviation at 3.
    expected = 2 * np.exp(-3) * 3**4 / 6
    assert mean_absolute_deviation(np.array([3.0]), np.array([3.0000001]))[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (0.3, 0.4), (0.9, 1.0)])
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_floor_and_spread_of_unequal_scores_are_those_of_all_their_outcomes(low: float, high: float, n: int) -> None:
    rng = np.random.default_rng([n, int(10 * low)])
    p = rng.uniform(low, high, n)
    y = (rng.random(n) < p).astype(int)
    law = _distribution(p, np.ones(n))
    floor = sum(mass * abs(value) for value, mass in law.items()) / n
    result = _one(p, y)
    assert result["ece_noise_floor"] == pytest.approx(floor, rel=2e-3)
    sd = np.sqrt(sum(mass * value**2 for value, mass in law.items()) / n**2 - floor**2)
    assert (result["ece"] - floor) / result["ece_z"] == pytest.approx(sd, rel=0.02)


def test_equal_weights_of_any_size_have_the_floor_of_their_rows() -> None:
    p, y = [0.03] * 7 + [0.65] * 3, [0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    plain = _one(p, y)
    for size in (0.25, 3.0):
        weighted = _one(p, y, [size] * 10)
        assert weighted["ece_noise_floor"] == pytest.approx(plain["ece_noise_floor"], rel=1e-6)
        assert weighted["ece_z"] == pytest.approx(plain["ece_z"], rel=1e-6)


@pytest.mark.parametrize(("low", "high", "rel"), [(0.0, 0.1, 0.2), (0.1, 0.2, 0.05), (0.4, 0.5, 0.05)])
def test_the_floor_of_weighted_rows_is_near_that_of_all_their_outcomes(low: float, high: float, rel: float) -> None:
    rng = np.random.default_rng(1)
    p, w = rng.uniform(low, high, 14), rng.gamma(4.0, 0.25, 14)
    floor = sum(mass * abs(value) for value, mass in _distribution(p, w).items()) / w.sum()
    assert _one(p, np.zeros(14), w)["ece_noise_floor"] == pytest.approx(floor, rel=rel)


def test_many_rows_have_the_frozen_normal_floor_and_spread() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y)
    assert result["ece_noise_floor"] == pytest.approx(oracle["ece_ew10_noise_floor_normal"], rel=1e-3)
    sd = (result["ece"] - result["ece_noise_floor"]) / result["ece_z"]
    assert sd == pytest.approx(oracle["ece_ew10_noise_sd_normal"], rel=2e-3)
    # Ten times as many rows are closer to normal, and their floor falls by the root.
    many = _one(np.tile(rows.p, 100), np.tile(rows.y, 100))
    assert many["ece_noise_floor"] == pytest.approx(oracle["ece_ew10_noise_floor_normal"] / 10, rel=2e-5)


@pytest.mark.parametrize(("mean_logit", "n", "bins"), [(0.0, 1_000, 15), (-5.6, 2_000, 10)])
def test_calibrated_streams_have_the_floor_on_average_and_a_z_of_unit_spread(
    mean_logit: float, n: int, bins: int
) -> None:
    rng = np.random.default_rng(11)
    p = 1 / (1 + np.exp(-rng.normal(mean_logit, 1.5, n)))
    counts = np.stack([tally(p, rng.random(n) < p) for _ in range(400)])
    result = figures(counts, ece_bins=bins)
    error = result["ece"] - result["ece_noise_floor"]
    assert abs(error.mean()) < 4 * error.std() / 20
    assert result["ece_z"].std() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("w", [None, [0.7, 0.7, 0.7]])
def test_scores_of_zero_and_one_have_no_noise_and_no_z(w: Any) -> None:
    result = _one([0.0, 1.0, 1.0], [0, 1, 0], w)
    assert result["ece_noise_floor"] == 0.0
    assert np.isnan(result["ece_z"])


def test_one_row_of_one_half_is_always_as_far_off_and_has_no_z() -> None:
    result = _one([0.5], [1])
    assert result["ece_noise_floor"] == pytest.approx(0.5, rel=1e-12)
    assert np.isnan(result["ece_z"])
