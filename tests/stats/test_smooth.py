"""Smooth ECE against frozen numbers and a smoothing of single rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from stats_oracle import oracle_numbers, oracle_rows, tally

from streamcal.stats.counts import promote
from streamcal.stats.smooth import MIN_WIDTH, smooth_ece


def _by_rows(p: Any, y: Any, width: float) -> float:
    """Integral of the absolute smoothed gap, from Gaussians mirrored at 0 and 1."""
    t = (np.arange(1_000) + 0.5) / 1_000
    total = np.zeros_like(t)
    for shift in (-2.0, 0.0, 2.0):
        for mirrored in (p, -p):
            kernel = np.exp(-0.5 * ((t[:, None] - mirrored - shift) / width) ** 2) / (width * np.sqrt(2 * np.pi))
            total += kernel @ (y - p)
    return float(np.abs(total).mean() / len(p))


def test_the_frozen_numbers() -> None:
    rows, oracle = oracle_rows(), oracle_numbers()
    counts = tally(rows.p, rows.y)
    assert smooth_ece(counts) == pytest.approx(oracle["smece"], abs=3e-4)
    assert smooth_ece(counts, width=0.05) == pytest.approx(oracle["smece_sigma0.05"], abs=3e-4)
    assert smooth_ece(counts, width=oracle["smece_bandwidth"]) == pytest.approx(oracle["smece"], abs=3e-4)


@pytest.mark.parametrize(("mean_logit", "rel"), [(0.0, 0.005), (-2.0, 0.005), (-4.0, 0.01)])
def test_random_rows_agree_with_a_smoothing_of_rows(mean_logit: float, rel: float) -> None:
    rng = np.random.default_rng(31)
    x = rng.normal(mean_logit, 1.5, 2_000)
    p, y = 1 / (1 + np.exp(-x)), (rng.random(2_000) < 1 / (1 + np.exp(-(0.7 * x + 0.3)))).astype(int)
    counts = tally(p, y)
    for width in (0.02, 0.1, 0.5):
        assert smooth_ece(counts, width=width) == pytest.approx(_by_rows(p, y, width), rel=rel)
    fixed = brentq(lambda width: _by_rows(p, y, width) - width, 0.005, 1.0, xtol=1e-4)
    assert smooth_ece(counts) == pytest.approx(fixed, rel=rel, abs=2e-4)


def test_a_narrow_kernel_sees_what_is_inside_a_bin() -> None:
    # Two scores of one layout bin, one too low and one too high: only their moment tells them apart.
    p = np.repeat([0.487, 0.497], 400)
    y = np.tile(np.arange(400), 2) < np.repeat([240, 150], 400)
    assert smooth_ece(tally(p, y), width=0.01) == pytest.approx(_by_rows(p, y, 0.01), rel=0.1)


def test_whole_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(7)
    p = rng.random(500)
    y, w = (rng.random(500) < p).astype(int), rng.integers(0, 4, 500)
    repeated = smooth_ece(tally(np.repeat(p, w), np.repeat(y, w)))
    assert smooth_ece(tally(p, y, w)) == pytest.approx(repeated, rel=1e-9)
    counts = tally(p, y)
    assert smooth_ece(promote(counts)) == pytest.approx(smooth_ece(counts), rel=1e-12)


def test_without_rows_there_is_none() -> None:
    assert smooth_ece(np.zeros((284, 9), dtype=np.int64)) is None


def test_without_error_it_ends_at_the_narrowest_kernel() -> None:
    found = smooth_ece(tally([0.0, 1.0], [0, 1]))
    assert found is not None
    assert 0 <= found <= MIN_WIDTH
