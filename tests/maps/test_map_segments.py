"""Offsets of segments against their truth in seeded streams, and against exact posteriors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from streamcal.maps.laplace import Rows
from streamcal.maps.segments import SegmentTracker, no_offsets, pool_rows, segment_offsets, segment_sums
from streamcal.state.trees import dump, load


def _flat(size: int) -> list[Any]:
    return [np.zeros(size, dtype=np.intp)]


def _merged(segment: Any, x: Any, y: Any) -> tuple[Rows, Any]:
    """Rows by segment and an eighth of a logit, as bins hold them."""
    key = segment * 1000 + np.floor(x * 8).astype(int) + 500
    cells, inverse = np.unique(key, return_inverse=True)
    n = np.bincount(inverse).astype(float)
    return Rows(n, np.bincount(inverse, y), np.bincount(inverse, x) / n), (cells // 1000).astype(np.intp)


def _drawn(rng: np.random.Generator, sizes: Any, offset: Any, slope: Any = 1.0) -> tuple[Rows, Any]:
    segment = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(np.log(0.02 / 0.98) - 0.3, 1.0, len(segment))
    z = np.broadcast_to(slope, len(sizes))[segment] * (x + 4) - 4 + offset[segment]
    return _merged(segment, x, (rng.random(len(segment)) < expit(z)).astype(float))


def _common(rows: Rows) -> float:
    """What the global map is off by, by maximum likelihood."""
    a = 0.0
    for _ in range(30):
        s = expit(rows.logit + a)
        a += float((rows.positive - rows.weight * s).sum() / (rows.weight * s * (1 - s)).sum())
    return a


def _own(rows: Rows, segment: Any, size: int) -> Any:
    """Each segment's own maximum likelihood, held to 4 where it has one class."""
    a = np.zeros(size)
    for _ in range(60):
        s = expit(rows.logit + a[segment])
        score = np.bincount(segment, rows.positive - rows.weight * s, size)
        step = score / np.bincount(segment, rows.weight * s * (1 - s), size)
        a = np.clip(a + np.clip(step, -1, 1), -4, 4)
    return a


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_hundred_small_segments_are_known_better_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    positives = np.exp(rng.uniform(np.log(3), np.log(300), 200))
    offset = rng.normal(0, 0.3, 200)
    rows, segment = _drawn(rng, np.rint(positives / 0.02).astype(int), offset)
    common = _common(rows)
    found = pool_rows(rows, segment, rows.logit + common, _flat(200))

    def rmse(estimate: Any) -> float:
        return float(np.sqrt(np.mean((estimate - offset) ** 2)))

    pooled = rmse(common + found.intercepts[-1] + found.slopes[-1] * rows.logit.mean())
    assert pooled <= 0.65 * rmse(common)
    assert pooled < rmse(_own(rows, segment, 200))
    assert found.tau[0] == pytest.approx(0.3, abs=0.06)


def test_segments_that_do_not_differ_get_offsets_near_nothing() -> None:
    rng = np.random.default_rng(4)
    rows, segment = _drawn(rng, rng.integers(200, 10_000, 200), np.zeros(200))
    found = pool_rows(rows, segment, rows.logit, _flat(200))
    assert np.abs(found.intercepts[-1] + found.slopes[-1] * -4).max() < 0.1
    assert np.sqrt(np.mean((found.intercepts[-1] + found.slopes[-1] * -4) ** 2)) < 0.03


def test_offsets_settle_at_the_mode_of_the_posterior() -> None:
    rng = np.random.default_rng(5)
    rows, segment = _drawn(rng, [300, 900, 5000, 50], np.array([1.2, -0.8, 0.5, 0.0]))
    found = pool_rows(rows, segment, rows.logit, _flat(4), slopes=False, root_sd=0.5)
    tau, root = found.tau[0], found.intercepts[0][0]
    assert tau > 0.3

    def against(a: Any) -> float:
        z = rows.logit + a[segment]
        loss = (rows.weight * np.logaddexp(0, z) - rows.positive * z).sum()
        return float(loss + ((a - root) ** 2).sum() / (2 * tau**2))

    mode = minimize(against, np.zeros(4), tol=1e-10).x
    assert found.intercepts[-1] == pytest.approx(mode, abs=1e-4)


def test_slopes_are_found_where_data_allow_and_left_alone_elsewhere() -> None:
    rng = np.random.default_rng(6)
    sizes = np.array([60_000] * 6 + [2_000] * 20)
    slope = np.array([0.7, 1.3, 0.8, 1.2, 0.9, 1.1] + [1.0] * 20)
    rows, segment = _drawn(rng, sizes, np.zeros(26), slope)
    found = pool_rows(rows, segment, rows.logit, _flat(26))
    assert found.slopes[-1][:6] == pytest.approx(slope[:6] - 1, abs=0.06)
    assert found.slope_tau[0] == pytest.approx(np.std(slope[:6]), abs=0.08)
    assert np.ptp(found.slopes[-1][6:]) == 0.0
    without = pool_rows(rows, segment, rows.logit, _flat(26), slopes=False)
    assert np.abs(without.slopes[-1]).max() == 0.0


def test_a_step_is_exact_in_a_quadratic_whatever_it_starts_from() -> None:
    # Sums taken at two different offsets, of two halves of the rows, add up to those of one.
    rng = np.random.default_rng(7)
    rows, segment = _drawn(rng, [4000, 4000], np.array([0.05, -0.05]))
    at, near = np.zeros(2), np.array([0.001, -0.001])
    one = segment_sums(rows, segment, rows.logit, at, at)
    other = segment_sums(rows, segment, rows.logit, near, at)
    assert other.linear_offset == pytest.approx(one.linear_offset, abs=1e-4 * one.offset_offset.max())


def test_a_tracker_that_forgets_nothing_ends_at_the_pooled_fit() -> None:
    rng = np.random.default_rng(8)
    parents = [np.array([0, 0, 0, 1, 1, 1], dtype=np.intp), np.zeros(2, dtype=np.intp)]
    offset = np.array([0.5, 0.7, 0.3, -0.5, -0.3, -0.6])
    tracker = SegmentTracker(1e12, slopes=False)
    parts = [_drawn(rng, [400] * 6, offset) for _ in range(60)]
    for rows, segment in parts:
        found = tracker.update(1, rows, segment, rows.logit, parents)
    whole = Rows(*(np.concatenate(columns) for columns in zip(*(rows for rows, _ in parts), strict=True)))
    segments = np.concatenate([segment for _, segment in parts])
    expected = pool_rows(whole, segments, whole.logit, parents, slopes=False, root_sd=0.0)
    for level, exact in zip(found.intercepts, expected.intercepts, strict=True):
        assert level == pytest.approx(exact, abs=0.02)


def test_a_segment_gone_quiet_returns_to_its_parent() -> None:
    rng = np.random.default_rng(9)
    parents = [np.array([0, 0, 0, 1, 1, 1], dtype=np.intp), np.zeros(2, dtype=np.intp)]
    offset = np.array([1.5, 0.7, 0.3, -0.5, -0.3, -0.6])
    tracker = SegmentTracker(20.0, slopes=False)
    gaps = []
    for step in range(400):
        rows, segment = _drawn(rng, [0 if step >= 100 else 400, 400, 400, 400, 400, 400], offset)
        found = tracker.update(1, rows, segment, rows.logit, parents)
        gaps.append(found.intercepts[2][0] - found.intercepts[1][0])
    assert gaps[99] > 0.4
    assert abs(gaps[399]) < 0.05


def test_a_gap_of_many_steps_is_that_many_quiet_ones() -> None:
    rng = np.random.default_rng(10)
    one, other = SegmentTracker(5.0), SegmentTracker(5.0)
    rows, segment = _drawn(rng, [3000] * 4, np.array([0.5, -0.5, 0.2, 0.0]))
    nothing = Rows(np.empty(0), np.empty(0), np.empty(0))
    for tracker in (one, other):
        tracker.update(1, rows, segment, rows.logit, _flat(4))
    one.update(3, nothing, np.empty(0, dtype=np.intp), np.empty(0), _flat(4))
    for _ in range(3):
        other.update(1, nothing, np.empty(0, dtype=np.intp), np.empty(0), _flat(4))
    assert one.information == pytest.approx(other.information, rel=1e-12)
    assert dump(one)["_sums"] == pytest.approx(dump(other)["_sums"], rel=1e-12)


def test_segments_may_come_be_forgotten_and_be_saved() -> None:
    rng = np.random.default_rng(11)
    tracker = SegmentTracker(1000.0, slopes=False)
    offset = np.array([0.8, -0.8, 0.4])
    rows, segment = _drawn(rng, [20_000] * 2, offset[:2])
    tracker.update(1, rows, segment, rows.logit, _flat(2))
    rows, segment = _drawn(rng, [20_000] * 3, offset)
    found = tracker.update(1, rows, segment, rows.logit, _flat(3))
    assert found.intercepts[-1] == pytest.approx(offset, abs=0.15)
    saved = SegmentTracker(1000.0, slopes=False)
    load(saved, dump(tracker))
    tracker.rearrange(np.array([-1, 1, 2]))
    nothing = Rows(np.empty(0), np.empty(0), np.empty(0))
    after = tracker.update(1, nothing, np.empty(0, dtype=np.intp), np.empty(0), _flat(3))
    assert after.intercepts[-1][0] == after.intercepts[0][0] == 0.0
    kept = saved.update(1, nothing, np.empty(0, dtype=np.intp), np.empty(0), _flat(3))
    assert kept.intercepts[-1] == pytest.approx(found.intercepts[-1], abs=0.02)


def test_no_rows_give_no_offsets() -> None:
    parents = [np.array([0, 0, 1], dtype=np.intp), np.zeros(2, dtype=np.intp)]
    nothing = segment_sums(
        Rows(np.empty(0), np.empty(0), np.empty(0)), np.empty(0, dtype=np.intp), np.empty(0), np.zeros(3), np.zeros(3)
    )
    found, none = segment_offsets(nothing, parents), no_offsets(parents)
    for level, zero in zip(found.intercepts, none.intercepts, strict=True):
        assert level.tolist() == zero.tolist()
