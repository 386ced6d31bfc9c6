"""Figures of a calibrated stream with one positive in 100,000 rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from stats_oracle import tally

from streamcal.stats.figures import figures

_ROWS = 5_000_000
_SD = 1.5


def _mean_logit(base_rate: float) -> float:
    """Mean of normal logits whose mean probability is `base_rate`."""
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    weight /= weight.sum()
    return float(brentq(lambda m: weight @ expit(m + _SD * node) - base_rate, -20, 0))


@pytest.mark.slow
def test_a_calibrated_stream_of_five_million_rows_looks_calibrated() -> None:
    # Rows of 1e-7 and less are a sixth of it: a clip at 1e-6 would bend the slope to 1.02.
    rng = np.random.default_rng(20261129)
    counts = np.zeros((284, 9), dtype=np.int64)
    for _ in range(10):
        p = expit(rng.normal(_mean_logit(1e-5), _SD, _ROWS // 10))
        counts += tally(p, rng.random(len(p)) < p)
    result = {name: float(values[0]) for name, values in figures(counts[None]).items()}
    assert result["n"] == _ROWS
    assert 25 < result["positives"] < 85
    assert abs(result["platt_slope"] - 1) < 3 * result["platt_slope_se"]
    assert abs(result["offset_intercept"]) < 3 * result["offset_intercept_se"]
    assert result["offset_intercept_se"] == pytest.approx(result["positives"] ** -0.5, rel=0.01)
    assert abs(result["spiegelhalter_z"]) < 4
    assert result["ecce_p_value"] > 1e-3
    assert result["ece"] < 6 * result["ece_noise_floor"]


@pytest.mark.parametrize("base_rate", [1e-5, 1e-4, 1e-3])
def test_the_expected_counts_of_a_calibrated_stream_have_slope_one(base_rate: float) -> None:
    # The mean of all streams at once: every score twice, with the share of positives it promises as weights.
    x = _mean_logit(base_rate) + _SD * np.linspace(-5, 5, 20_001)
    density = np.exp(-0.5 * np.linspace(-5, 5, 20_001) ** 2)
    p = expit(np.maximum(x, np.log(1e-7) + 1e-9))
    scores, labels = np.tile(p, 2), np.repeat([1, 0], len(p))
    # Positives carry weight of about 1 so that their rounding is small; a common factor changes nothing.
    weights = np.concatenate([density * p, density * (1 - p)]) / base_rate
    bins_of_many = tally(scores, labels, np.minimum(weights, 1e6))
    slope = figures(bins_of_many[None])["platt_slope"][0]
    assert slope == pytest.approx(1.0, abs=2e-6)
