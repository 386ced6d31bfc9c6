"""Figures against worked cases, frozen numbers of other libraries, and scikit-learn on random rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss
from stats_oracle import expand, oracle_numbers, oracle_rows, statistics_cases, tally

from streamcal.stats.counts import promote
from streamcal.stats.figures import BLOCK, FIGURES, SCALED_BY_PHI, figures
from streamcal.stats.layout import COARSE_COUNTS

_LOOSE = ("platt_slope", "platt_intercept", "offset_intercept", "ecce_sigma")
_CASES = {case["id"]: case for case in statistics_cases()["figures"]}
_RANDOM = [(1e-3, 60_000), (0.02, 20_000), (0.5, 3_000), (0.97, 5_000)]


def _one(p: Any, y: Any, w: Any = None, **options: Any) -> dict[str, float]:
    return {name: float(values[0]) for name, values in figures(tally(p, y, w)[None], **options).items()}


def _random(base_rate: float, n: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(int(base_rate * 1e6) + n)
    x = rng.normal(np.log(base_rate / (1 - base_rate)), 1.3, n)
    p = np.round(1 / (1 + np.exp(-x)), 4 if base_rate > 0.01 else 6)
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.8 * x - 0.1)))).astype(int)
    return p, y, rng.gamma(2.0, 0.5, n)


def _ece(p: Any, y: Any, w: Any, k: int) -> float:
    """Equal-width ECE and MCE row by row; bins (lo, hi] by the edges j/k."""
    group = np.searchsorted(np.arange(1, k) / k, p, side="left")
    gap = np.bincount(group, weights=w * (y - p), minlength=k)
    return float(np.abs(gap).sum() / w.sum())


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_the_worked_cases(case: dict[str, Any]) -> None:
    result = _one(*expand(case["rows"]))
    for name, expected in case["expect"].items():
        rel = 2e-4 if name in _LOOSE else 1e-6
        assert result[name] == pytest.approx(expected, rel=rel, abs=1e-9), name
    for name in case.get("absent", []):
        assert np.isnan(result[name]), name


def test_without_variance_there_is_no_ecce_sigma() -> None:
    for identity in ("perfect", "bin means"):
        p, y = expand(_CASES[identity]["rows"])
        assert np.isnan(_one(p, y)["ecce_sigma"])
        assert np.isnan(_one(p, y, np.full(len(p), 0.7))["ecce_sigma"])


def test_without_positives_there_is_no_ratio() -> None:
    assert np.isnan(_one(*expand(_CASES["single class"]["rows"]))["ratio"])


def test_an_empty_series_knows_only_that_it_is_empty() -> None:
    result = figures(np.zeros((1, 284, 9), dtype=np.int64))
    known = {name: float(values[0]) for name, values in result.items() if not np.isnan(values[0])}
    assert known == {"n": 0.0, "positives": 0.0}


def test_rows_of_weight_zero_say_nothing_but_their_number() -> None:
    result = _one([0.2, 0.7], [0, 1], [0.0, 0.0])
    assert {name for name, value in result.items() if not np.isnan(value)} == {"n", "positives"}


def test_counts_merge_and_figures_do_not_average() -> None:
    (case,) = statistics_cases()["merge"]
    shards = np.stack([tally(*expand(rows)) for rows in case["shards"]])
    for values, expected in zip(figures(shards)["ece"], case["expect_shards"], strict=True):
        assert values == pytest.approx(expected["ece"], rel=1e-6)
    merged = figures(shards.sum(axis=0)[None])
    assert merged["ece"][0] == pytest.approx(case["expect"]["ece"], abs=1e-9)
    assert merged["n"][0] == case["expect"]["n"]


def test_the_over_confident_model_before_and_after_its_map() -> None:
    # A published worked example of an over-confident model: score, rows, positives per bucket.
    table = [
        *((0.05, 300, 44), (0.15, 150, 39), (0.25, 100, 34), (0.35, 80, 33), (0.45, 70, 33)),
        *((0.55, 70, 37), (0.65, 60, 36), (0.75, 60, 40), (0.85, 60, 44), (0.95, 50, 43)),
    ]
    p, y = expand(table)
    before = _one(p, y)
    assert (before["n"], before["positives"]) == (1000, 383)
    assert before["base_rate"] == pytest.approx(0.383, abs=1e-12)
    assert before["mean_score"] == pytest.approx(0.343, abs=1e-12)
    assert before["ece"] == pytest.approx(0.0820, abs=1e-11)
    assert before["platt_slope"] == pytest.approx(0.60314, abs=5e-6)
    assert before["platt_intercept"] == pytest.approx(0.00871, abs=5e-6)
    z = before["platt_slope"] * np.log(p / (1 - p)) + before["platt_intercept"]
    mapped = 1 / (1 + np.exp(-z))
    for score, expected in ((0.95, 0.856), (0.05, 0.146), (0.25, 0.342)):
        assert mapped[p == score][0] == pytest.approx(expected, abs=5e-4)
    assert mapped.sum() == pytest.approx(383, abs=1e-6)
    gaps = [abs((y - mapped)[p == score].sum()) for score, _, _ in table]
    assert sum(gaps) / 1000 == pytest.approx(0.0025, abs=5e-5)
    after = _one(mapped, y)
    assert after["platt_slope"] == pytest.approx(1.0, abs=1e-6)
    assert after["ratio"] == pytest.approx(1.0, abs=1e-9)


def test_the_frozen_numbers_of_other_libraries() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y)
    for name, key in (("n", "n"), ("positives", "n_pos"), ("mean_score", "mean_score"), ("base_rate", "base_rate")):
        assert result[name] == pytest.approx(oracle[key], abs=1e-12)
    for name, key in (("ece", "ece_ew10_uc"), ("brier", "brier"), ("log_loss", "log_loss")):
        assert result[name] == pytest.approx(oracle[key], abs=1e-12)
    assert _one(rows.p, rows.y, ece_bins=15)["ece"] == pytest.approx(oracle["ece_ew15_uc"], abs=1e-12)
    assert _one(rows.p, rows.y, ece_bins=20)["ece"] == pytest.approx(oracle["ece_ew20_uc"], abs=1e-12)
    assert result["platt_slope"] == pytest.approx(oracle["platt_slope"], abs=1e-6)
    assert result["platt_intercept"] == pytest.approx(oracle["platt_intercept"], abs=1e-6)
    assert result["offset_intercept"] == pytest.approx(oracle["intercept_offset"], abs=1e-6)
    assert [result["platt_intercept_se"], result["platt_slope_se"]] == pytest.approx(oracle["platt_se"], rel=1e-6)
    assert result["offset_intercept_se"] == pytest.approx(oracle["intercept_offset_se"], rel=1e-5)
    bins = oracle["ece_ew10_bins"]
    mce = np.max(np.abs(np.subtract(bins["pos"], bins["sum_p"])) / bins["n"])
    assert result["mce"] == pytest.approx(mce, abs=1e-12)
    assert result["effective_n"] == 5000


def test_the_frozen_weighted_numbers() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y, rows.w)
    assert (result["n"], result["positives"]) == (5000, 641)
    assert result["ece"] == pytest.approx(oracle["ece_ew10_weighted_right_closed"], abs=1e-12)
    assert result["brier"] == pytest.approx(oracle["brier_weighted"], abs=1e-12)
    assert result["log_loss"] == pytest.approx(oracle["log_loss_weighted"], abs=1e-12)
    fit = [result["platt_intercept"], result["platt_slope"]]
    assert fit == pytest.approx(oracle["platt_weighted"], abs=1e-6)
    assert result["effective_n"] == pytest.approx(rows.w.sum() ** 2 / (rows.w**2).sum(), rel=1e-7)


@pytest.mark.parametrize(("base_rate", "n"), _RANDOM)
@pytest.mark.parametrize("weighted", [False, True])
def test_random_rows_agree_with_scikit_learn(base_rate: float, n: int, weighted: bool) -> None:
    p, y, w = _random(base_rate, n)
    result = _one(p, y, w) if weighted else _one(p, y)
    weight = w if weighted else np.ones(n)
    q = np.clip(p, 1e-7, 1 - 1e-7)
    assert result["brier"] == pytest.approx(brier_score_loss(y, p, sample_weight=weight), abs=1e-12)
    assert result["log_loss"] == pytest.approx(log_loss(y, q, sample_weight=weight), abs=2e-12)
    assert result["ece"] == pytest.approx(_ece(p, y, weight, 10), abs=1e-12)
    assert result["ratio"] == pytest.approx((weight * p).sum() / (weight * y).sum(), rel=1e-9)


@pytest.mark.parametrize("k", COARSE_COUNTS)
def test_ece_and_mce_agree_with_calibration_curve_at_every_width(k: int) -> None:
    p, y, _ = _random(0.5, 3_000)
    observed, predicted = calibration_curve(y, p, n_bins=k)
    n = np.bincount(np.searchsorted(np.linspace(0, 1, k + 1)[1:-1], p), minlength=k)
    gap = np.abs(observed - predicted)
    result = _one(p, y, ece_bins=k)
    assert result["ece"] == pytest.approx((gap * n[n > 0]).sum() / len(p), abs=1e-12)
    assert result["mce"] == pytest.approx(gap.max(), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_ecce_of_tied_scores_is_the_range_of_the_walk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.choice(np.arange(1, 20) / 20, 400)
    y = (rng.random(400) < p**1.5).astype(int)
    gaps = [(y - p)[p == score].sum() for score in np.unique(p)]
    walk = np.concatenate([[0.0], np.cumsum(gaps)]) / 400
    result = _one(p, y)
    assert result["ecce"] == pytest.approx(walk.max() - walk.min(), abs=1e-11)
    sd = np.sqrt((p * (1 - p)).sum()) / 400
    assert result["ecce_sigma"] == pytest.approx((walk.max() - walk.min()) / sd, rel=1e-9)


def test_point_figures_of_whole_weights_equal_those_of_repeated_rows() -> None:
    p, y, _ = _random(0.02, 20_000)
    w = np.random.default_rng(3).integers(0, 5, len(p))
    repeated = _one(np.repeat(p, w), np.repeat(y, w))
    weighted = _one(p, y, w)
    spread = {"n", "positives", "effective_n", "ece_noise_floor", "ece_z", "l2_debiased", "l2_debiased_signed"}
    spread |= {"ecce_sigma", "ecce_p_value", "spiegelhalter_z", *SCALED_BY_PHI}
    for name in FIGURES.keys() - spread:
        assert weighted[name] == pytest.approx(repeated[name], rel=1e-9, abs=1e-11), name
    assert (weighted["n"], weighted["positives"]) == (len(p), y.sum())


def test_doubling_all_weights_changes_nothing() -> None:
    p, y, w = _random(0.5, 3_000)
    once, twice = _one(p, y, w), _one(p, y, 2 * w)
    for name in FIGURES:
        assert twice[name] == pytest.approx(once[name], rel=1e-6), name


def test_a_promoted_stream_keeps_its_figures() -> None:
    counts = tally(*_random(0.5, 3_000)[:2])[None]
    plain, promoted = figures(counts), figures(promote(counts))
    for name in FIGURES:
        assert promoted[name][0] == pytest.approx(plain[name][0], rel=1e-12), name


def test_a_series_has_the_same_figures_alone_and_among_others() -> None:
    rng = np.random.default_rng(5)
    counts = np.stack([tally(p := rng.random(int(n)), rng.random(int(n)) < p) for n in rng.integers(0, 300, BLOCK + 5)])
    together = figures(counts)
    for s in (0, 1, BLOCK - 1, BLOCK, BLOCK + 4):
        for name, values in figures(counts[s : s + 1]).items():
            np.testing.assert_array_equal(values[0], together[name][s], err_msg=name)


@pytest.mark.parametrize(("min_count", "present"), [(30, True), (31, False)])
def test_slopes_need_min_count_of_either_class(min_count: int, present: bool) -> None:
    for table in ([(0.2, 100, 10), (0.6, 100, 20)], [(0.2, 100, 90), (0.6, 100, 80)]):
        result = _one(*expand(table), min_count=min_count)
        for name in ("platt_slope", "platt_slope_se", "platt_intercept", "platt_intercept_se", "offset_intercept"):
            assert np.isnan(result[name]) != present, name


def test_phi_scales_standard_errors_and_nothing_else() -> None:
    counts = np.stack([tally(*_random(0.5, n)[:2]) for n in (1_000, 2_000, 3_000)])
    plain, scaled = figures(counts), figures(counts, phi=np.array([1.0, 4.0, np.nan]))
    assert scaled.keys() - plain.keys() == {"phi"}
    np.testing.assert_array_equal(scaled["phi"], [1.0, 4.0, np.nan])
    for name, values in plain.items():
        factor = [1.0, 2.0, 1.0] if name in {*SCALED_BY_PHI} else 1.0
        np.testing.assert_allclose(scaled[name], values * factor, rtol=1e-15, err_msg=name)
    assert all(name.endswith("_se") for name in SCALED_BY_PHI)


@pytest.mark.parametrize("phi", [np.array([0.0]), np.array([-1.0]), np.array([1.0, 1.0])])
def test_a_phi_that_is_none_is_refused(phi: Any) -> None:
    with pytest.raises(ValueError, match="phi"):
        figures(tally([0.3], [1])[None], phi=phi)


def test_no_series_give_empty_figures() -> None:
    result = figures(np.zeros((0, 284, 9), dtype=np.int64))
    assert {values.shape for values in result.values()} == {(0,)}


def test_the_names_are_those_of_the_report_in_its_order() -> None:
    assert [name for name in FIGURES if name.startswith("platt")] == [
        "platt_slope",
        "platt_slope_se",
        "platt_intercept",
        "platt_intercept_se",
    ]
    assert list(FIGURES)[:5] == ["n", "positives", "mean_score", "base_rate", "ece"]


def test_counts_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 284, 8\)"):
        figures(np.zeros((1, 284, 8), dtype=np.int64))
    with pytest.raises(ValueError, match="allowed"):
        figures(np.zeros((1, 284, 9), dtype=np.int64), ece_bins=7)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1), st.floats(0, 50)), min_size=1, max_size=60))
@example([(1.0, 0, 0.001)])
@example([(1.0, 0, 1e-6)])
@example([(0.0, 0, 1e-6)])
@settings(max_examples=150, deadline=None)
def test_any_rows_give_figures_within_their_range(rows: list[tuple[float, int, float]]) -> None:
    p, y, w = (np.array(column) for column in zip(*rows, strict=True))
    for weight in (None, w):
        result = _one(p, y, weight, min_count=1)
        assert not any(np.isinf(value) for value in result.values())
        for name in ("ece", "mce", "ecce", "brier", "mean_score", "base_rate", "ece_noise_floor", "ecce_p_value"):
            assert np.isnan(result[name]) or -1e-9 <= result[name] <= 1 + 1e-9, name
        assert not result["mce"] < result["ece"] - 1e-9
