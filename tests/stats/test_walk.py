"""ECCE and its test against walks over single rows and frozen numbers of another library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stats_oracle import oracle_numbers, oracle_rows, tally

from streamcal.stats.figures import figures
from streamcal.stats.walk import range_p_value


def _one(p: Any, y: Any, w: Any = None) -> dict[str, float]:
    return {name: float(values[0]) for name, values in figures(tally(p, y, w)[None]).items()}


def _row_walk(p: Any, y: Any, w: Any) -> tuple[float, float]:
    """ECCE over rows, ties moving together, and its standard deviation."""
    order = np.argsort(p, kind="stable")
    p, y, w = p[order], y[order], w[order]
    last = np.append(p[1:] != p[:-1], True)
    walk = np.append(0.0, np.cumsum(w * (y - p))[last]) / w.sum()
    return float(walk.max() - walk.min()), float(np.sqrt((w * w * p * (1 - p)).sum()) / w.sum())


def test_the_frozen_numbers() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y)
    assert oracle["ecce"] - 3e-4 < result["ecce"] <= oracle["ecce_tie_collapsed"]
    assert result["ecce_sigma"] == pytest.approx(oracle["ecce_sigma"], rel=0.015)
    assert result["ecce_p_value"] == pytest.approx(oracle["ecce_pvalue"], rel=0.2)


def test_the_frozen_weighted_numbers() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y, rows.w)
    assert result["ecce"] == pytest.approx(oracle["ecce_weighted"], abs=3e-4)
    assert result["ecce_sigma"] == pytest.approx(oracle["ecce_sigma_weighted"], rel=0.015)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_frozen_segment_numbers(name: str) -> None:
    rows, expected = oracle_rows(), oracle_numbers()[f"platt_segment_{name}"]
    part = rows.segment == name
    result = _one(rows.p[part], rows.y[part])
    assert result["ecce_sigma"] == pytest.approx(expected["ecce_sigma"], rel=0.015)
    # Bin ends alone: a lower bound, within the largest walk that a bin hides.
    assert result["ecce"] == pytest.approx(expected["ecce"], rel=0.04)
    assert result["ece"] == pytest.approx(expected["ece_ew10_right_closed"], abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("mean_logit", "n"), [(0.0, 1_000), (0.0, 20_000), (-4.6, 5_000), (-6.9, 20_000)])
@pytest.mark.parametrize(("slope", "bias"), [(1.0, 0.03), (0.8, 0.02)])
def test_what_bins_hide_is_right_on_average(
    mean_logit: float, n: int, weighted: bool, slope: float, bias: float
) -> None:
    rng = np.random.default_rng(17)
    exact, from_bins, ends = [], [], []
    for _ in range(60):
        x = rng.normal(mean_logit, 1.5, n)
        p = 1 / (1 + np.exp(-x))
        y = (rng.random(n) < 1 / (1 + np.exp(-slope * x))).astype(int)
        w = rng.gamma(4.0, 0.25, n) if weighted else np.ones(n)
        span, sd = _row_walk(p, y, w)
        result = _one(p, y, w if weighted else None)
        exact.append(span / sd)
        from_bins.append(result["ecce_sigma"])
        ends.append(result["ecce"] / sd)
    wide, narrow, plain = np.array(exact), np.array(from_bins), np.array(ends)
    assert narrow.mean() == pytest.approx(wide.mean(), rel=bias)
    assert np.square(narrow - wide).mean() < np.square(plain - wide).mean()
    assert (plain <= wide + 1e-6).all()


def test_the_test_keeps_its_level_on_calibrated_streams() -> None:
    rng = np.random.default_rng(23)
    p = 1 / (1 + np.exp(-rng.normal(-3.0, 1.5, 4_000)))
    counts = np.stack([tally(p, rng.random(len(p)) < p) for _ in range(1_000)])
    level = (figures(counts)["ecce_p_value"] < 0.05).mean()
    assert 0.03 < level < 0.065


def test_nothing_is_hidden_in_bins_of_one_score_or_one_class() -> None:
    rng = np.random.default_rng(5)
    p = rng.choice(np.arange(1, 20) / 20, 400)
    one_score = p, (rng.random(400) < p**1.5).astype(int)
    x = rng.random(400)
    one_class = x, np.zeros(400, dtype=int)
    for scores, labels in (one_score, one_class):
        span, sd = _row_walk(scores, labels, np.ones(400))
        assert _one(scores, labels)["ecce_sigma"] == pytest.approx(span / sd, rel=1e-6)


@pytest.mark.parametrize("r", ["1", "1.596", "2", "3", "4"])
def test_the_frozen_p_values(r: str) -> None:
    expected = oracle_numbers()[f"ecce_pvalue_at_sigma_{r}"]
    # 1.596 in the name is the mean under calibration, cut short.
    at = np.sqrt(8 / np.pi) if r == "1.596" else float(r)
    assert range_p_value(np.array([at]))[0] == pytest.approx(expected, rel=1e-9)


def test_both_series_of_the_p_value_meet() -> None:
    below, above = range_p_value(np.array([2.0 - 1e-9, 2.0]))
    assert below == pytest.approx(above, abs=1e-8)


def test_p_values_keep_their_digits_far_out() -> None:
    assert range_p_value(np.array([5.158]))[0] == pytest.approx(1e-6, rel=2e-3)
    far = range_p_value(np.array([0.0, 12.0, 30.0, np.nan]))
    assert far[0] == 1.0
    assert far[1] == pytest.approx(8 * 1.776482112077679e-33, rel=1e-9)
    assert 0 < far[2] < 1e-190
    assert np.isnan(far[3])
