"""Grouped isotonic: the groups, their smoothing, their number, and the map they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from stats_oracle import tally

from streamcal.maps.families import Girb, Identity, Platt
from streamcal.maps.fit_bins import fit_bins
from streamcal.maps.fit_girb import GirbSettings, fit_girb, groups_by_size
from streamcal.maps.fit_isotonic import pool

GRID = np.linspace(0, 1, 2001)


def drawn(seed: int, n: int, slope: float = 0.7, mean: float = -2.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, 1.3, n)
    return expit(x), (rng.random(n) < expit(slope * x)).astype(int)


def fitted(*args: Any, **kwargs: Any) -> Girb:
    map_ = fit_girb(*args, **kwargs)
    assert isinstance(map_, Girb)
    return map_


@pytest.mark.parametrize(
    ("rows", "low", "high"), [(9_999, 1, 10), (10_000, 10, 20), (100_000, 10, 20), (10**7, 20, 50)]
)
def test_the_number_of_groups_follows_the_rows_as_published(rows: int, low: int, high: int) -> None:
    assert low <= groups_by_size(rows) <= high


def test_groups_hold_equal_counts_as_nearly_as_bins_allow() -> None:
    p, y = drawn(1, 40_000)
    map_ = fitted(tally(p, y), Platt(0.7, 0.0), GirbSettings(groups=10))
    inner = np.array(map_.scores[1:-1])
    assert len(inner) == 10
    shares = np.array([part.mean() for part in np.array_split(np.sort(p), 10)])
    # A bin is an eighth of a logit wide.
    assert inner == pytest.approx(shares, rel=0.1)


def test_groups_of_equal_width_end_at_exact_fractions() -> None:
    rng = np.random.default_rng(2)
    p = rng.random(20_000)
    y = (rng.random(20_000) < 0.1 + 0.6 * p).astype(int)
    map_ = fitted(tally(p, y), Identity(), GirbSettings(grouping="width", groups=10, strength=0.0))
    group = np.ceil(p * 10).astype(int)
    means = [p[group == k].mean() for k in range(1, 11)]
    rates, _ = pool(np.array([y[group == k].mean() for k in range(1, 11)]), np.bincount(group)[1:].astype(float))
    assert list(map_.scores[1:-1]) == pytest.approx(means, rel=1e-9)
    assert list(map_.values[1:-1]) == pytest.approx(rates, rel=1e-12)


def test_rates_are_drawn_towards_the_prior_map_by_the_strength() -> None:
    scores = np.repeat([0.1, 0.4, 0.8], [400, 200, 400])
    y = np.concatenate([np.arange(400) < 20, np.arange(200) < 90, np.arange(400) < 330]).astype(int)
    prior = Platt(1.0, 0.5)
    map_ = fitted(tally(scores, y), prior, GirbSettings(groups=3, strength=2.0))
    expected = []
    for score, n, positives in ((0.1, 400, 20), (0.4, 200, 90), (0.8, 400, 330)):
        q = prior.apply_one(score)
        m = 2.0 / min(q, 1 - q)
        expected.append((positives + m * q) / (n + m))
    assert list(map_.values) == pytest.approx(expected, rel=1e-9)


def test_small_groups_join_the_next() -> None:
    p, y = drawn(3, 3000)
    counts = tally(p, y)
    few = fitted(counts, Identity(), GirbSettings(groups=30, min_count=700))
    many = fitted(counts, Identity(), GirbSettings(groups=30, min_count=1))
    assert len(few.scores) - 2 == 4
    assert len(many.scores) - 2 == 30


def test_there_is_a_group_for_ten_positives_at_most() -> None:
    p, y = drawn(4, 30_000, slope=1.0, mean=-6.5)
    positives = int(y.sum())
    assert 40 < positives < 200
    map_ = fitted(tally(p, y), Identity(), GirbSettings(groups=50))
    assert len(map_.scores) - 2 <= positives // 10
    assert fit_girb(tally(p[:3000], np.arange(3000) < 19), Identity()) == "too_few_labels"


def test_scores_outside_the_fitted_range_are_served_its_ends() -> None:
    rng = np.random.default_rng(5)
    p = rng.uniform(0.2, 0.6, 5000)
    map_ = fitted(tally(p, (rng.random(5000) < p).astype(int)), Identity())
    assert map_.scores[0] == pytest.approx(0.2, abs=0.02)
    assert map_.scores[-1] == pytest.approx(0.6, abs=0.02)
    assert len(set(map_.apply(np.array([0.0, 0.05, map_.scores[0]])))) == 1
    assert len(set(map_.apply(np.array([1.0, 0.95, map_.scores[-1]])))) == 1


def test_the_ends_of_the_range_follow_the_prior_map() -> None:
    p, y = drawn(6, 50_000, mean=-4.0)
    prior = Platt(0.7, 0.0)
    map_ = fitted(tally(p, y), prior)
    odds = [served / (1 - served) for served in (*map_.values[-2:], *prior.apply(np.array(map_.scores[-2:])))]
    assert odds[1] / odds[0] == pytest.approx(odds[3] / odds[2], rel=1e-9)
    assert map_.scores[-1] == pytest.approx(fit_bins(tally(p, y)).score[-1])


def test_cross_validation_finds_few_groups_for_a_line_and_many_for_a_wave() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(-1.0, 1.5, 200_000)
    chosen = []
    for truth in (x, 0.8 * x + 0.6 * np.sin(3 * x)):
        y = (rng.random(len(x)) < expit(truth)).astype(int)
        panes = np.stack([tally(expit(a), b) for a, b in zip(np.split(x, 20), np.split(y, 20), strict=True)])
        settings = GirbSettings(groups="cross_validation")
        chosen.append(len(fitted(panes.sum(axis=0), Platt(1.0, 0.0), settings, panes).scores))
        assert fit_girb(panes.sum(axis=0), Identity(), settings) == fit_girb(panes.sum(axis=0), Identity())
    assert chosen[0] < 20 < chosen[1]


def test_the_map_is_near_the_truth() -> None:
    p, y = drawn(8, 300_000)
    truth = expit(0.7 * np.log(GRID[20:-200] / (1 - GRID[20:-200])))
    served = fitted(tally(p, y), Platt(0.7, 0.0)).apply(GRID[20:-200])
    assert np.abs(served - truth).max() < 0.03


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"groups": 1}, "1 groups"),
        ({"grouping": "width", "groups": 7}, "7 equal-width"),
        ({"min_count": 0}, "min_count 0"),
        ({"strength": float("nan")}, "strength nan"),
        ({"folds": 1}, "folds 1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        GirbSettings(**settings)
