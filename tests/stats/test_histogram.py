from __future__ import annotations

import numpy as np
import pytest

from streamcal.stats.counts import contributions
from streamcal.stats.histogram import score_histogram


def histogram_of(scores):
    counts = np.zeros((284, 9), dtype=np.int64)
    bins, values, _ = contributions(scores, np.zeros(len(scores), dtype=np.int64))
    np.add.at(counts, bins, values)
    return score_histogram(counts)


def test_rows_are_counted_between_halves_of_logits():
    scores = 1.0 / (1.0 + np.exp(-np.random.default_rng(3).normal(-2.0, 3.0, 5000)))
    rows = histogram_of(scores)
    edges = [0.0, *(1.0 / (1.0 + np.exp(-np.arange(-8.0, 8.1, 0.5)))), 1.0]
    expected, _ = np.histogram(scores, edges)
    assert [row["n"] for row in rows] == expected.tolist()
    assert [row["lo"] for row in rows] == pytest.approx(edges[:-1], rel=1e-4)
    assert [row["hi"] for row in rows] == pytest.approx(edges[1:], rel=1e-4)


def test_empty_bins_are_left_out_at_the_ends_alone():
    rows = histogram_of(np.array([0.01, 0.3]))
    assert (rows[0]["n"], rows[-1]["n"]) == (1, 1)
    assert {row["n"] for row in rows[1:-1]} == {0}
    assert histogram_of(np.array([])) == []
