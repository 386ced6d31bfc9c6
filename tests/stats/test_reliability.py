"""The reliability table against frozen bins and statsmodels' interval."""

from __future__ import annotations

import numpy as np
import pytest
from stats_oracle import oracle_numbers, oracle_rows, tally
from statsmodels.stats.proportion import proportion_confint

from streamcal.stats.counts import promote
from streamcal.stats.figures import figures
from streamcal.stats.reliability import reliability


def test_bins_hold_the_frozen_sums() -> None:
    rows, bins = oracle_rows(), oracle_numbers()["ece_ew10_bins"]
    table = reliability(tally(rows.p, rows.y), ece_bins=10)
    assert [row["n"] for row in table] == bins["n"]
    assert [row["positives"] for row in table] == bins["pos"]
    assert [row["mean_score"] * row["n"] for row in table] == pytest.approx(bins["sum_p"], abs=1e-9)
    assert [row["observed_rate"] * row["n"] for row in table] == pytest.approx(bins["pos"], abs=1e-9)
    assert [(row["lo"], row["hi"]) for row in table] == [(j / 10, (j + 1) / 10) for j in range(10)]


def test_intervals_are_wilsons() -> None:
    rows = oracle_rows()
    for row in reliability(tally(rows.p, rows.y), ece_bins=20):
        low, high = proportion_confint(row["positives"], row["n"], alpha=0.05, method="wilson")
        assert (row["observed_low"], row["observed_high"]) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize("phi", [1.0, 2.5, 9.0])
def test_over_dispersion_widens_intervals_as_fewer_rows_would(phi: float) -> None:
    rows = oracle_rows()
    for row in reliability(tally(rows.p, rows.y), phi=phi):
        effective = row["n"] / phi
        low, high = proportion_confint(effective * row["observed_rate"], effective, alpha=0.05, method="wilson")
        assert (row["observed_low"], row["observed_high"]) == pytest.approx((low, high), abs=1e-12)


def test_a_phi_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="phi"):
        reliability(np.zeros((284, 9), dtype=np.int64), phi=0.0)


def test_one_row_has_a_wide_interval_within_zero_and_one() -> None:
    (row,) = (row for row in reliability(tally([0.35], [1]), ece_bins=10) if row["n"])
    assert row["observed_rate"] == 1.0
    assert row["observed_low"] == pytest.approx(0.2065, abs=1e-4)
    assert row["observed_high"] == 1.0


def test_an_empty_bin_has_bounds_and_zeros_only() -> None:
    table = reliability(np.zeros((284, 9), dtype=np.int64), ece_bins=4)
    assert table == [{"lo": j / 4, "hi": (j + 1) / 4, "n": 0, "positives": 0} for j in range(4)]


def test_a_weighted_bin_rests_on_its_effective_rows() -> None:
    p, y, w = [0.35, 0.35, 0.35, 0.38], [1, 0, 0, 1], [2.0, 1.0, 0.5, 0.25]
    (row,) = (row for row in reliability(tally(p, y, w), ece_bins=10) if row["n"])
    assert (row["n"], row["positives"]) == (4, 2)
    assert row["observed_rate"] == pytest.approx(2.25 / 3.75, abs=1e-9)
    assert row["mean_score"] == pytest.approx(np.average(p, weights=w), abs=1e-9)
    effective = 3.75**2 / np.square(w).sum()
    low, high = proportion_confint(effective * 2.25 / 3.75, effective, method="wilson")
    assert (row["observed_low"], row["observed_high"]) == pytest.approx((low, high), abs=1e-6)


def test_weights_of_one_change_nothing() -> None:
    rows = oracle_rows()
    counts = tally(rows.p, rows.y)
    plain, promoted = reliability(counts), reliability(promote(counts))
    for one, other in zip(plain, promoted, strict=True):
        assert one == pytest.approx(other, rel=1e-12)


def test_the_table_sums_to_the_figures() -> None:
    rows = oracle_rows()
    counts = tally(rows.p, rows.y, rows.w)
    weights = np.array([rows.w[(rows.p > j / 10) & (rows.p <= (j + 1) / 10)].sum() for j in range(10)])
    gaps = [abs(row["observed_rate"] - row["mean_score"]) for row in reliability(counts)]
    result = figures(counts[None])
    assert (weights * gaps).sum() / weights.sum() == pytest.approx(result["ece"][0], abs=1e-9)
    assert max(gaps) == pytest.approx(result["mce"][0], abs=1e-12)


def test_a_width_outside_the_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed"):
        reliability(np.zeros((284, 9), dtype=np.int64), ece_bins=7)
