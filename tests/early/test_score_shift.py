"""The stability index against one computed from rows, and its noise floor against simulated noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from streamcal.early.score_shift import MIN_ROWS, population_stability
from streamcal.stats.layout import EDGES, N_BINS, bin_index

Scores = NDArray[np.float64]


def binned(*scores: Scores) -> NDArray[np.int64]:
    return np.stack([np.bincount(bin_index(p), minlength=N_BINS) for p in scores])


def scores(rng: np.random.Generator, n: int, shift: float = 0.0) -> Scores:
    return np.asarray(1 / (1 + np.exp(-rng.normal(-2 + shift, 1.5, n))))


def slow_index(current: Sequence[float], reference: Sequence[float]) -> float:
    """The formula of docs/figures.md, row by row."""
    edges = [-1.0, *EDGES.astype(float).tolist(), 2.0]
    held = sorted(np.float32(p) for p in reference)

    def group(p: float) -> int:
        place = next(b for b in range(N_BINS) if edges[b] < np.float32(p) <= edges[b + 1])
        below = sum(float(r) <= edges[place] for r in held)
        inside = sum(edges[place] < float(r) <= edges[place + 1] for r in held)
        return min(int(10 * (below + inside / 2) / len(held)), 9)

    of_edge: dict[float, int] = {}
    rows: dict[int, list[int]] = {}
    for side, sample in enumerate((current, reference)):
        for p in sample:
            place = of_edge[p] if p in of_edge else of_edge.setdefault(p, group(p))
            rows.setdefault(place, [0, 0])[side] += 1
    k, n, m = len(rows), len(current), len(reference)
    shares = [((a + 0.5) / (n + 0.5 * k), (r + 0.5) / (m + 0.5 * k)) for a, r in rows.values()]
    return sum((a - r) * math.log(a / r) for a, r in shares)


@pytest.mark.parametrize("shift", [0.0, 0.5, -2.0])
def test_the_index_is_that_of_the_rows(shift: float) -> None:
    rng = np.random.default_rng(1)
    current, reference = scores(rng, 300, shift), scores(rng, 500)
    index, _ = population_stability(binned(current), binned(reference))
    assert index[0] == pytest.approx(slow_index(current.tolist(), reference.tolist()), rel=1e-12)


@pytest.mark.parametrize(("n", "m"), [(200, 10_000), (1_000, 24_000), (5_000, 5_000)])
def test_the_noise_floor_is_the_mean_of_the_index_without_a_shift(n: int, m: int) -> None:
    rng = np.random.default_rng(2)
    index, floor = population_stability(
        binned(*(scores(rng, n) for _ in range(400))), binned(*(scores(rng, m) for _ in range(400)))
    )
    assert np.mean(index) == pytest.approx(np.mean(floor), rel=0.06)
    # A chi-square variable of nine degrees of freedom passes 2.4 times its mean once in a hundred times.
    assert np.mean(index > 2.41 * floor) < 0.03


def test_a_shift_of_half_a_logit_stands_out() -> None:
    """Normal logits moved by a third of their deviation: (1/3)^2 with groups as fine as can be, 2 % less with ten."""
    rng = np.random.default_rng(3)
    index, floor = population_stability(binned(scores(rng, 50_000, 0.5)), binned(scores(rng, 400_000)))
    assert index[0] == pytest.approx(1 / 9, rel=0.06)
    assert index[0] > 100 * floor[0]


def test_scores_that_leave_the_one_place_they_were_at_are_told() -> None:
    reference, moved = np.full(1_000, 0.3), np.full(1_000, 0.4)
    index, floor = population_stability(binned(reference, moved), binned(reference, reference))
    assert index[0] == 0
    assert index[1] > 10
    assert floor[1] == pytest.approx(2 / 1000)


def test_too_few_rows_on_either_side_say_nothing() -> None:
    rng = np.random.default_rng(4)
    many, few = scores(rng, MIN_ROWS), scores(rng, MIN_ROWS - 1)
    index, floor = population_stability(binned(many, few, many), binned(many, many, few))
    assert np.isnan(index).tolist() == np.isnan(floor).tolist() == [False, True, True]
