"""The shipped layout against its definition, recomputed with exact fractions and 60-digit decimals."""

from __future__ import annotations

import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from streamcal.stats.layout import (
    CENTRES,
    COARSE_COUNTS,
    EDGES,
    LAYOUT_ID,
    LOGIT_CENTRES,
    N_BINS,
    bin_index,
    coarse_starts,
)


def _sigmoid(x: Decimal) -> Decimal:
    return 1 / (1 + (-x).exp())


def _float32(value: Decimal) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def test_edges_are_the_logit_grid_and_the_fractions_equal_ones_once() -> None:
    with localcontext() as context:
        context.prec = 60
        fractions = {Fraction(k, 20) for k in range(1, 20)} | {Fraction(k, 15) for k in range(1, 15)}
        exact = [Decimal(f.numerator) / f.denominator for f in fractions]
        exact += [_sigmoid(Decimal(k) / 8) for k in range(-127, 128) if k != 0]
        expected = [_float32(edge) for edge in sorted(exact)]
    assert len(expected) == 283
    assert EDGES.dtype == np.float32
    assert EDGES.tolist() == expected


def test_five_edges_near_one_coincide_as_float32() -> None:
    assert len(EDGES) - len(np.unique(EDGES)) == 5
    assert (np.diff(EDGES) >= 0).all()


def test_centres_halve_the_logit_span_of_each_bin() -> None:
    with localcontext() as context:
        context.prec = 60
        inner = [(Decimal(edge) / (1 - Decimal(edge))).ln() for edge in EDGES.tolist()]
        logits = [Decimal(-16), *inner, Decimal(16)]
        expected = [float(_sigmoid((lo + hi) / 2)) for lo, hi in pairwise(logits)]
    assert CENTRES.tolist() == expected
    middles = [float((lo + hi) / 2) for lo, hi in pairwise(logits)]
    # A centre near 1 is only as good as float64 next to 1: 1e-16 / 1e-7.
    np.testing.assert_allclose(LOGIT_CENTRES, middles, rtol=0, atol=2e-9)


def test_layout_id_changes_only_with_the_bits() -> None:
    assert LAYOUT_ID == "d6f939ad74a350a6"
    assert N_BINS == len(CENTRES) == len(EDGES) + 1


def test_constants_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        EDGES[0] = 0


@pytest.mark.parametrize("k", COARSE_COUNTS)
def test_coarse_bins_hold_exactly_the_scores_of_their_interval(k: int) -> None:
    starts = coarse_starts(k)
    j = np.arange(1, k + 1)
    inside = np.concatenate([np.nextafter(np.float32(j / k), np.float32(0)), np.float32(j / k)])
    coarse = np.searchsorted(starts, bin_index(inside), side="right") - 1
    np.testing.assert_array_equal(coarse, np.concatenate([j, j]) - 1)
    above = np.nextafter(np.float32(j[:-1] / k), np.float32(1))
    np.testing.assert_array_equal(np.searchsorted(starts, bin_index(above), side="right") - 1, j[:-1])


@pytest.mark.parametrize("k", [0, 6, 30, -1])
def test_other_groupings_are_refused_and_the_allowed_ones_named(k: int) -> None:
    with pytest.raises(ValueError, match=r"allowed: 1, 2, 3, 4, 5, 10, 15, 20"):
        coarse_starts(k)


@pytest.mark.parametrize("k", range(1, 20))
def test_a_fraction_lands_on_the_left_of_its_edge_however_it_was_rounded(k: int) -> None:
    spelled = [k / 20, np.linspace(0, 1, 21)[k], k * 0.05, 1 - (20 - k) / 20]
    bins = bin_index(np.array(spelled))
    assert EDGES[bins].tolist() == [np.float32(k / 20)] * 4


def test_both_ends_are_kept() -> None:
    assert bin_index([0.0, 1.0]).tolist() == [0, N_BINS - 1]


def test_float32_and_float64_scores_land_in_the_same_bin() -> None:
    scores = np.concatenate([np.random.default_rng(7).random(20_000, dtype=np.float32), EDGES])
    np.testing.assert_array_equal(bin_index(scores), bin_index(scores.astype(np.float64)))
