from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.early.tallying import tallied


@given(st.lists(st.tuples(st.sampled_from([0, 1, 7, 1 << 21, 1 << 40]), st.integers(-5, 5))))
def test_small_and_large_codes_are_counted_alike(rows: list[tuple[int, int]]) -> None:
    code = np.array([c for c, _ in rows], dtype=np.int64)
    distinct, (count, total) = tallied(code, np.array([w for _, w in rows], dtype=np.float64))
    expected: Counter[int] = Counter(c for c, _ in rows)
    assert dict(zip(distinct.tolist(), count.tolist(), strict=True)) == dict(expected)
    assert total.tolist() == [sum(w for c, w in rows if c == held) for held in sorted(expected)]
