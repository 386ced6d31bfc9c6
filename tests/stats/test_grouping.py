"""Equal mass and the debiased square against frozen numbers and recounts over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stats_oracle import oracle_numbers, oracle_rows, tally

from streamcal.stats.figures import figures


def _one(p: Any, y: Any, w: Any = None, **options: Any) -> dict[str, float]:
    return {name: float(values[0]) for name, values in figures(tally(p, y, w)[None], **options).items()}


@pytest.mark.parametrize("k", [10, 15, 20])
def test_the_frozen_equal_mass_numbers(k: int) -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    assert _one(rows.p, rows.y, ece_bins=k)["ece_equal_mass"] == pytest.approx(oracle[f"ece_em{k}_uc"], abs=3e-4)


def test_the_frozen_debiased_square() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    result = _one(rows.p, rows.y)
    assert result["l2_debiased"] == pytest.approx(oracle["l2_ew10_debiased_uc"], abs=1e-9)
    assert result["l2_debiased_signed"] == pytest.approx(oracle["l2_ew10_debiased_uc"] ** 2, abs=1e-10)


@pytest.mark.parametrize("groups", [5, 10])
@pytest.mark.parametrize("weighted", [False, True])
def test_groups_of_well_spread_rows_are_those_of_sorted_rows(groups: int, weighted: bool) -> None:
    rng = np.random.default_rng(groups)
    p = np.sort(1 / (1 + np.exp(-rng.normal(-2, 1.5, 20_000))))
    y = (rng.random(len(p)) < p**0.9).astype(int)
    w = rng.gamma(4.0, 0.25, len(p)) if weighted else np.ones(len(p))
    group = np.minimum((np.cumsum(w) / w.sum() * groups).astype(int), groups - 1)
    expected = np.abs(np.bincount(group, w * (y - p))).sum() / w.sum()
    found = _one(p, y, w if weighted else None, ece_bins=groups)["ece_equal_mass"]
    assert found == pytest.approx(expected, abs=5e-4)


def test_ties_stay_together_and_leave_fewer_groups() -> None:
    # 60 % of the rows share one score: their gaps cancel within it, whatever their order.
    p = np.repeat([0.1, 0.3, 0.8], [20, 60, 20])
    y = np.concatenate([np.arange(20) < 4, np.arange(60) < 18, np.arange(20) < 10]).astype(int)
    expected = (abs(4 - 2) + 0 + abs(10 - 16)) / 100
    for order in (slice(None), slice(None, None, -1)):
        assert _one(p[order], y[order])["ece_equal_mass"] == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_the_signed_square_is_unbiased(weighted: bool, shift: float) -> None:
    rng = np.random.default_rng(29)
    p = np.repeat([0.05, 0.35, 0.75], [40, 20, 12])
    w = rng.gamma(2.0, 0.5, len(p)) if weighted else np.ones(len(p))
    truth = np.clip(p + shift, 0, 1)
    counts = np.stack([tally(p, rng.random(len(p)) < truth, w if weighted else None) for _ in range(3_000)])
    found = figures(counts)["l2_debiased_signed"]
    assert found.mean() == pytest.approx(shift**2, abs=4 * found.std() / np.sqrt(len(found)))
    assert (found < 0).any()


def test_the_root_is_that_of_the_clipped_square() -> None:
    result = _one([0.3, 0.3], [0, 1])
    assert result["l2_debiased_signed"] == pytest.approx(0.2**2 - 0.25, rel=1e-9)
    assert result["l2_debiased"] == 0.0


def test_bins_of_one_row_add_nothing() -> None:
    assert _one([0.15, 0.35, 0.95], [1, 0, 1])["l2_debiased_signed"] == 0.0
    # One heavy row beside weightless ones is one row.
    assert _one([0.15, 0.16], [1, 0], [1.0, 0.0])["l2_debiased_signed"] == 0.0
