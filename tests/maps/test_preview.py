"""How mass moves, against the rows themselves: every row is drawn, mapped and counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.maps.families import Identity, Map, Platt, Prior
from streamcal.maps.families_knots import Isotonic
from streamcal.maps.preview import GRID, POINTS, Mass, mass_of_bins, mass_of_counts, preview
from streamcal.stats.counts import PLAIN, WEIGHTED, contributions
from streamcal.stats.layout import N_BINS

MAPS: dict[str, Map] = {
    "identity": Identity(),
    "steep": Platt(2.5, 0.7),
    "flat": Platt(0.4, -1.2),
    "prior": Prior(negative_sampling_rate=0.02),
    "steps": Isotonic([0.05, 0.1, 0.3, 0.31, 0.9], [0.02, 0.2, 0.2, 0.6, 0.6]),
}
CUTS = (0.001, 0.02, 0.2, 0.37, 0.5, 0.6, 0.9)


def scores(kind: str, n: int = 200_000) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "wide":
        return 1 / (1 + np.exp(-rng.normal(-1.0, 1.5, n)))
    if kind == "rare":
        return 1 / (1 + np.exp(-rng.normal(-6.0, 1.0, n)))
    if kind == "rounded":
        return rng.integers(1, 100, n) / 100
    return rng.choice([0.125, 0.5, 0.83], n, p=[0.5, 0.3, 0.2])


def counted(score: np.ndarray, *, weighted: bool = False) -> np.ndarray:
    rng = np.random.default_rng(4)
    weight = rng.random(len(score)) * 5 if weighted else None
    bins, values, _ = contributions(score, rng.random(len(score)) < score, weight)
    counts = np.zeros((N_BINS, WEIGHTED if weighted else PLAIN), dtype=np.int64)
    np.add.at(counts, bins, values)
    return counts


def mass_of(score: np.ndarray) -> Mass:
    mass = mass_of_counts(counted(score))
    assert mass is not None
    return mass


@pytest.mark.parametrize("kind", ["wide", "rare", "rounded", "few"])
@pytest.mark.parametrize("name", MAPS)
def test_means_and_shares_are_those_of_the_rows(kind: str, name: str) -> None:
    score, map_ = scores(kind), MAPS[name]
    told = preview(mass_of(score), Identity(), map_, CUTS)
    served = map_.apply(score)
    assert told.n == len(score)
    assert told.mean_before == pytest.approx(score.mean(), rel=1e-4)
    # Steps within a bin are what an even spread knows least of.
    assert told.mean_after == pytest.approx(served.mean(), rel=2e-2 if name == "steps" else 1e-3)
    # A score that many rows share may lie beside others in the one bin that a cut-off divides.
    largest = 0.012 if kind == "rounded" else 0.002
    for cut in told.cut_offs:
        assert cut.after == pytest.approx((served >= cut.at).mean(), abs=largest), cut
        assert cut.before == pytest.approx((score >= cut.at).mean(), abs=largest), cut


def test_single_scores_at_a_cut_off_are_at_or_above_it() -> None:
    mass = mass_of(np.array([0.5] * 30 + [0.125] * 70))
    (at_half, above) = preview(mass, Identity(), Platt(1.0, -1e-6), [0.5, 0.50001]).cut_offs
    assert (at_half.before, at_half.after) == (0.3, 0.0)
    assert (above.before, above.after) == (0.0, 0.0)


def test_points_are_the_deciles_of_the_rows_and_both_outputs_at_them() -> None:
    score = scores("wide")
    told = preview(mass_of(score), MAPS["flat"], MAPS["steep"])
    assert [row.below for row in told.rows] == list(POINTS)
    np.testing.assert_allclose([row.raw for row in told.rows], np.quantile(score, POINTS), rtol=1e-2)
    raw = np.array([row.raw for row in told.rows])
    np.testing.assert_array_equal([row.before for row in told.rows], MAPS["flat"].apply(raw))
    np.testing.assert_array_equal([row.after for row in told.rows], MAPS["steep"].apply(raw))
    logits = np.log(raw / (1 - raw))
    np.testing.assert_allclose([row.moved for row in told.rows], 2.1 * logits + 1.9, atol=1e-9)


def test_rows_count_once_whatever_they_weigh() -> None:
    score = scores("wide", 5000)
    plain, heavy = mass_of_counts(counted(score)), mass_of_counts(counted(score, weighted=True))
    assert plain is not None
    assert heavy is not None
    np.testing.assert_array_equal(plain.rows, heavy.rows)
    np.testing.assert_array_equal(plain.low, heavy.low)


def test_a_cut_off_that_no_score_or_every_score_passes() -> None:
    told = preview(mass_of(scores("wide")), Identity(), MAPS["steps"], [1e-6, 0.999999])
    assert [(cut.before, cut.after) for cut in told.cut_offs] == [(1.0, 1.0), (0.0, 0.0)]


def test_shares_fall_with_the_cut_off_and_the_order_given_does_not_matter() -> None:
    told = preview(mass_of(scores("wide")), Identity(), MAPS["steps"], [0.9, 0.1, 0.5])
    assert [cut.at for cut in told.cut_offs] == [0.1, 0.5, 0.9]
    assert sorted((cut.after for cut in told.cut_offs), reverse=True) == [cut.after for cut in told.cut_offs]


def test_without_counts_a_fixed_grid_is_shown_and_no_share() -> None:
    assert mass_of_counts(np.zeros((N_BINS, PLAIN), dtype=np.int64)) is None
    told = preview(None, Identity(), MAPS["steep"], [0.5])
    assert [(row.below, row.raw) for row in told.rows] == [(None, score) for score in GRID]
    assert (told.n, told.mean_before, told.mean_after, list(told.cut_offs)) == (0.0, None, None, [])


def test_a_reliability_table_tells_the_same_more_coarsely() -> None:
    score = scores("wide")
    edges = np.linspace(0, 1, 11)
    place = np.clip(np.searchsorted(edges, score, side="left") - 1, 0, 9)
    n = np.bincount(place, minlength=10).astype(float)
    mean = np.bincount(place, score, minlength=10) / n
    mass = mass_of_bins(n, mean, edges[:-1], edges[1:])
    assert mass is not None
    told = preview(mass, Identity(), MAPS["steep"], [0.5])
    assert told.mean_before == pytest.approx(score.mean(), rel=1e-9)
    assert told.mean_after == pytest.approx(MAPS["steep"].apply(score).mean(), abs=0.02)
    assert told.cut_offs[0].after == pytest.approx((MAPS["steep"].apply(score) >= 0.5).mean(), abs=0.02)
    assert mass_of_bins(*np.zeros((4, 3))) is None
