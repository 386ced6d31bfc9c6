"""Counts against a row-by-row recount in plain Python, to the bit."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamcal.errors import StateLimitError
from streamcal.stats.counts import LIMIT, PLAIN, WEIGHTED, Column, check_range, contributions, promote
from streamcal.stats.layout import CENTRES, EDGES, N_BINS

_CENTRES = CENTRES.tolist()
_EDGES = EDGES.tolist()


def _atanh(z: float) -> float:
    z2 = z * z
    return z * (
        1 + z2 * (1 / 3 + z2 * (1 / 5 + z2 * (1 / 7 + z2 * (1 / 9 + z2 * (1 / 11 + z2 * (1 / 13 + z2 * (1 / 15)))))))
    )


def _recount_row(p: float, y: int, w: float) -> tuple[int, list[int]]:
    """The table of the architecture page, in Python's own floats and round (half to even)."""
    b = bisect.bisect_left(_EDGES, float(np.float32(p)))
    c = _CENTRES[b]
    q = min(max(p, 1e-7), 1 - 1e-7)
    h = 2 * _atanh((q - c) / (q + c - 2 * q * c))
    e = -2 * _atanh((q - c) / (q + c)) if y else -2 * _atanh((c - q) / ((1 - q) + (1 - c)))
    dp, dx = round((p - c) * 2**38), round(h * 2**32)
    wi, wdp, wdx = round(w * 2**32), round(w * (p - c) * 2**38), round(w * h * 2**32)
    return b, [
        *(1, y, dp, y * dp, round((p - c) * (p - c) * 2**44), dx, round(h * h * 2**31), y * dx, round(e * 2**36)),
        *(wi, y * wi, wdp, y * wdp, round(w * ((p - c) * (p - c)) * 2**44)),
        *(wdx, round(w * (h * h) * 2**31), y * wdx, round(w * e * 2**36)),
        round(w * w * 2**24),
        round((w * w - 1) * (p - c) * 2**30),
        round((w * w - 1) * ((p - c) * (p - c)) * 2**36),
        round((w * w - 1) * h * 2**24),
        round((w * w - 1) * (h * h) * 2**24),
    ]


def _sum(p: Sequence[float], y: Sequence[int], w: Sequence[float] | None = None) -> NDArray[np.int64]:
    weight = None if w is None else np.array(w, dtype=np.float64)
    bins, values, _ = contributions(np.array(p, dtype=np.float64), np.array(y, dtype=np.int64), weight)
    total = np.zeros((N_BINS, values.shape[1]), dtype=np.int64)
    np.add.at(total, bins, values)
    return total


_scores = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 0.3, 1e-7, 1 - 1e-7, 5e-324]), st.sampled_from(_EDGES)
)
_rows = st.lists(st.tuples(_scores, st.integers(0, 1), st.floats(0, 1000)), min_size=1, max_size=40)


@given(_rows)
@settings(max_examples=100, deadline=None)
def test_every_column_equals_the_plain_python_recount_to_the_bit(rows: list[tuple[float, int, float]]) -> None:
    p, y, w = (list(column) for column in zip(*rows, strict=True))
    bins, values, extreme = contributions(np.array(p), np.array(y), np.array(w))
    recount = [_recount_row(*row) for row in rows]
    assert bins.tolist() == [b for b, _ in recount]
    assert values.tolist() == [columns for _, columns in recount]
    assert extreme.tolist() == [not 1e-7 <= score <= 1 - 1e-7 for score in p]
    plain = contributions(np.array(p), np.array(y))[1]
    assert plain.tolist() == [columns[:PLAIN] for _, columns in recount]


def test_a_long_stream_equals_the_recount_to_the_bit() -> None:
    rng = np.random.default_rng(11)
    p = 1 / (1 + np.exp(-rng.normal(-4, 3, 4000)))
    y = (rng.random(4000) < p).astype(np.int8)
    w = np.round(rng.gamma(2, 1, 4000), 3)
    total = np.zeros((N_BINS, WEIGHTED), dtype=object)
    for row in zip(p.tolist(), y.tolist(), w.tolist(), strict=True):
        b, columns = _recount_row(*row)
        total[b] += np.array(columns, dtype=object)
    np.testing.assert_array_equal(_sum(p.tolist(), y.tolist(), w.tolist()), total.astype(np.int64))


@given(_rows, st.integers(0, 40), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_merge_of_any_split_in_any_order_equals_the_whole(rows, cut, random) -> None:  # type: ignore[no-untyped-def]
    whole = _sum(*zip(*rows, strict=True))
    shuffled = list(rows)
    random.shuffle(shuffled)
    merged = np.zeros_like(whole)
    for part in (shuffled[:cut], shuffled[cut:]):
        if part:
            merged += _sum(*zip(*part, strict=True))
    np.testing.assert_array_equal(merged, whole)


@given(_rows)
@settings(max_examples=50, deadline=None)
def test_taking_every_row_back_leaves_exactly_zero(rows: list[tuple[float, int, float]]) -> None:
    total = _sum(*zip(*rows, strict=True))
    for p, y, w in reversed(rows):
        total -= _sum([p], [y], [w])
    assert not total.any()


@given(_rows)
@settings(max_examples=50, deadline=None)
def test_promoting_a_sum_equals_summing_rows_of_weight_one(rows: list[tuple[float, int, float]]) -> None:
    p, y, _ = zip(*rows, strict=True)
    np.testing.assert_array_equal(promote(_sum(p, y)), _sum(p, y, [1.0] * len(p)))


def test_every_label_type_counts_alike() -> None:
    p = np.array([0.2, 0.7])
    expected = contributions(p, np.array([0, 1], dtype=np.int64))[1]
    for dtype in (np.bool_, np.int8, np.uint8):
        np.testing.assert_array_equal(contributions(p, np.array([0, 1], dtype=dtype))[1], expected)


def test_no_rows_give_empty_columns() -> None:
    bins, values, extreme = contributions(np.empty(0), np.empty(0, dtype=np.int8))
    assert (bins.shape, values.shape, extreme.shape) == ((0,), (0, PLAIN), (0,))


def test_columns_are_named_in_the_order_of_the_architecture_page() -> None:
    names = "n y dp ydp dp2 dx dx2 ydx ll w wy wdp wydp wdp2 wdx wdx2 wydx wll w2 w2dp w2dp2 w2dx w2dx2"
    assert [column.name.lower() for column in Column] == names.split()


@pytest.mark.parametrize("value", [LIMIT, -LIMIT, 0])
def test_sums_within_the_limit_pass(value: int) -> None:
    check_range(np.full((3, PLAIN), value, dtype=np.int64))


@pytest.mark.parametrize("value", [LIMIT + 1, -LIMIT - 1, np.iinfo(np.int64).min])
def test_a_sum_beyond_the_limit_is_refused_by_name(value: int) -> None:
    values = np.zeros((4, WEIGHTED), dtype=np.int64)
    values[2, Column.WDP2] = value
    with pytest.raises(StateLimitError, match=rf"`wdp2` would reach {value}"):
        check_range(values)
