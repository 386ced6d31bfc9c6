"""Delay buckets: exact at their edges, quantiles near those of the rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.early.delays import delay_edges, delay_quantile


@given(st.integers(1, 10**10))
def test_edges_ascend_to_the_horizon_and_double_every_eight(horizon: int) -> None:
    edges = delay_edges(horizon).tolist()
    assert edges[-1] == horizon
    assert all(low < high for low, high in itertools.pairwise(edges))
    large = [edge for edge in edges if edge > 1000]
    assert all(high / low < 1.1 for low, high in itertools.pairwise(large))


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("mean_ms", [3_000, 1_800_000])
def test_quantiles_are_those_of_the_rows_within_two_percent(share: float, mean_ms: int) -> None:
    rng = np.random.default_rng(3)
    horizon = 86_400_000
    delay = rng.exponential(mean_ms, 200_000).astype(np.int64)
    edges = delay_edges(horizon)
    counts = np.array([np.sum((delay > low) & (delay <= high)) for low, high in zip([-1, *edges[:-1]], edges)])  # noqa: B905 - by design
    assert counts.sum() == len(delay)
    assert delay_quantile(counts, edges, share) == pytest.approx(np.quantile(delay, share), rel=0.02)


def test_without_labels_there_is_no_quantile() -> None:
    assert np.isnan(delay_quantile(np.zeros(3, dtype=np.int64), np.array([1, 2, 3]), 0.5))
