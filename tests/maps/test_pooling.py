"""Shrinkage against statsmodels, dense Gaussian conditioning and numbers worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from statsmodels.stats.meta_analysis import combine_effects

from streamcal.maps.pooling import pool


def _flat(size: int) -> list[Any]:
    return [np.zeros(size, dtype=np.intp)]


def test_one_level_is_dersimonian_and_laird() -> None:
    rng = np.random.default_rng(1)
    information = rng.uniform(2, 80, 25)
    estimate = rng.normal(0.4, 0.3, 25) + rng.normal(size=25) / np.sqrt(information)
    oracle = combine_effects(estimate, 1 / information, method_re="dl")
    pooled = pool(estimate, information, _flat(25))
    tau2, mean = oracle.tau2, oracle.mean_effect_re
    assert pooled.tau[0] ** 2 == pytest.approx(tau2, rel=1e-12)
    assert pooled.offsets[0][0] == pytest.approx(mean, rel=1e-12)
    shrunk = mean + (estimate - mean) * tau2 / (tau2 + 1 / information)
    assert pooled.offsets[1] == pytest.approx(shrunk, rel=1e-12)


def test_two_levels_are_the_posterior_of_the_normal_hierarchy() -> None:
    rng = np.random.default_rng(2)
    parent = np.repeat(np.arange(6), 5).astype(np.intp)
    middle = rng.normal(0, 0.5, 6)
    truth = middle[parent] + rng.normal(0, 0.4, 30)
    information = rng.uniform(3, 60, 30)
    estimate = truth + rng.normal(size=30) / np.sqrt(information)
    pooled = pool(estimate, information, [parent, np.zeros(6, dtype=np.intp)], root_variance=0.01)
    of_middle, of_leaf = np.square(pooled.tau)
    assert of_middle > 0
    assert of_leaf > 0
    # All of (leaves, middle, root) are jointly normal with the estimates; condition on them densely.
    same = parent[:, None] == parent[None, :]
    leaves = 0.01 + of_middle * same + of_leaf * np.eye(30)
    gain = np.linalg.inv(leaves + np.diag(1 / information)) @ estimate
    assert pooled.offsets[2] == pytest.approx(leaves @ gain, abs=1e-10)
    assert pooled.offsets[1] == pytest.approx(
        (0.01 + of_middle * (np.arange(6)[:, None] == parent[None, :])) @ gain, abs=1e-10
    )
    assert pooled.offsets[0][0] == pytest.approx((np.full(30, 0.01)) @ gain, abs=1e-10)


def test_the_variance_within_parents_ignores_what_parents_differ_by() -> None:
    parent = np.array([0, 0, 1, 1], dtype=np.intp)
    pooled = pool(np.array([4.0, 6.0, -6.0, -4.0]), np.full(4, 4.0), [parent, np.zeros(2, dtype=np.intp)])
    # Within either parent: Q = 4 (1 + 1) = 8, one degree of freedom, scale 8 - 32/8 = 4.
    assert pooled.tau[1] ** 2 == pytest.approx((16 - 2) / 8)
    assert pooled.tau[0] > 4


def test_segments_that_differ_by_noise_alone_are_one() -> None:
    estimate = np.array([0.2, -0.2, 0.1, -0.1])
    pooled = pool(estimate, np.full(4, 5.0), _flat(4))
    assert pooled.tau == (0.0,)
    assert pooled.offsets[1] == pytest.approx(np.zeros(4), abs=1e-15)


def test_a_segment_without_rows_is_its_parent() -> None:
    parent = np.array([0, 0, 0, 1, 1, 1, 2], dtype=np.intp)
    estimate = np.array([1.0, 2.0, np.nan, -2.0, -1.0, 99.0, np.inf])
    information = np.array([50.0, 50.0, 0.0, 50.0, 50.0, 0.0, 0.0])
    pooled = pool(estimate, information, [parent, np.zeros(3, dtype=np.intp)])
    root, middle, leaf = pooled.offsets
    assert leaf[2] == middle[0] > 1
    assert leaf[5] == middle[1] < -1
    assert leaf[6] == middle[2] == root[0]


def test_one_positive_among_segments_that_hardly_had_a_chance_makes_no_difference_between_them() -> None:
    # 500 segments with .01 positives expected each, one of which had one: b = 1 / I - 1.
    information = np.full(500, 0.01)
    estimate = np.full(500, -1.0)
    estimate[7] = 99.0
    pooled = pool(estimate, information, _flat(500), root_variance=0.0)
    assert np.abs(pooled.offsets[1]).max() == 0.0


@pytest.mark.parametrize(("variance", "expected"), [(0.0, 0.0), (0.25, 0.5), (np.inf, 1.0)])
def test_the_root_is_shrunk_to_the_global_map_by_its_own_prior(variance: float, expected: float) -> None:
    pooled = pool(np.ones(2), np.array([2.0, 2.0]), _flat(2), root_variance=variance)
    assert pooled.offsets[0][0] == expected
    assert pooled.offsets[1] == pytest.approx(np.full(2, expected))


def test_no_segments_leave_the_root_alone() -> None:
    pooled = pool(np.empty(0), np.empty(0), _flat(0))
    assert pooled.offsets[0].tolist() == [0.0]
    assert pooled.offsets[1].shape == (0,)
