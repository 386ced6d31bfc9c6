"""What challengers are judged on, and how their gains add up: recounted row by row."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streamcal.maps.evidence import CEILING, FLOOR, MIN_BLOCKS, MOST_BLOCKS, Evidence
from streamcal.maps.families import Identity, Map, Platt
from streamcal.maps.judged import Generations, JudgedRows, judged_rows
from streamcal.stats.counts import contributions
from streamcal.stats.fit_panes import FitPanes

Floats = NDArray[np.float64]
HOUR = 3_600_000
STEP = HOUR // 4


def entered(
    predicted_ms: NDArray[np.int64], p: Floats, y: NDArray[np.bool_], weight: Floats | None = None
) -> JudgedRows:
    bins, values, _ = contributions(p, y, weight)
    fits = FitPanes(values.shape[1], STEP)
    fits.add(np.arange(len(p)) % 5, bins, values, predicted_ms)
    fits.move(0, 5)
    return judged_rows(fits.take_entered(), STEP)


def sample(rows: int = 4000) -> tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]:
    rng = np.random.default_rng(4)
    p = 1 / (1 + np.exp(-rng.normal(-1.0, 1.5, rows)))
    return rng.integers(0, 10 * HOUR, rows), p, rng.random(rows) < p


def row_loss(q: Floats, y: NDArray[np.bool_]) -> Floats:
    return np.asarray(-np.where(y, np.log(q), np.log1p(-q)))


def test_rows_are_judged_by_the_map_in_force_when_their_step_began() -> None:
    predicted, p, y = sample()
    maps: list[tuple[int, Map]] = [
        (2 * HOUR, Platt(0.7, 0.2)),
        (5 * HOUR + 1, Platt(1.3, -0.5)),
        (8 * HOUR, Identity()),
    ]
    generations = Generations()
    for moment, map_ in maps:
        generations.put(moment, map_)
    rows = entered(predicted, p, y)
    loss = generations.log_loss(rows)
    step = predicted // STEP * STEP
    assert np.isnan(loss[rows.predicted_ms < 2 * HOUR]).all()
    expected = 0.0
    for (moment, map_), end in zip(maps, [5 * HOUR + 1, 8 * HOUR, 99 * HOUR], strict=True):
        mine = (step >= moment) & (step < end)
        expected += float(row_loss(map_.apply(p[mine]), y[mine]).sum())
    # Bins of an eighth in the logit stand for their rows.
    assert float(np.nansum(loss)) == pytest.approx(expected, abs=0.3)
    assert int(rows.n.sum()) == len(p)
    assert int(rows.positives.sum()) == int(y.sum())


def test_rows_since_a_moment_are_those_of_steps_that_begin_then_or_later() -> None:
    predicted, p, y = sample()
    rows = entered(predicted, p, y)
    for moment in (0, 3 * HOUR, 3 * HOUR + 1, 20 * HOUR):
        assert int(rows.since(moment).n.sum()) == int((predicted // STEP * STEP >= moment).sum())


def test_what_was_in_force_at_a_moment_outlives_forgetting_what_was_before_it() -> None:
    generations = Generations([10, 20, 30], [Platt(1.0, 0.1), Platt(1.0, 0.2), Platt(1.0, 0.3)])
    generations.forget_before(25)
    assert generations.from_ms == [20, 30]
    generations.forget_before(5)
    assert generations.from_ms == [20, 30]
    generations.put(30, Identity())
    assert generations.newest == Identity()
    assert len(generations.maps) == 2


def test_doubled_weights_are_no_new_evidence() -> None:
    predicted, p, y = sample(500)
    plain = entered(predicted, p, y)
    for weight in (1.0, 2.0):
        weighted = entered(predicted, p, y, np.full(500, weight))
        np.testing.assert_allclose(weighted.weight, plain.weight, rtol=1e-9)
        np.testing.assert_allclose(weighted.score, plain.score, rtol=1e-9)


def test_gains_add_up_between_floor_and_ceiling() -> None:
    evidence = Evidence(["a", "b"], HOUR, 14 * 24 * HOUR, bar=4.0)
    a, b = 0.0, 0.0
    rng = np.random.default_rng(1)
    for hour, (gain_a, gain_b) in enumerate(rng.normal(0, 3, (300, 2)).tolist()):
        evidence.add((hour + 1) * HOUR, {"a": gain_a, "b": gain_b}, 10, 3)
        a, b = (min(max(gain, FLOOR), CEILING * 4.0) for gain in (a + gain_a, b + gain_b))
        assert evidence.gain_of("a") == pytest.approx(a)
        assert evidence.gain_of("b") == pytest.approx(b)
    assert (evidence.n, evidence.positives) == (3000, 900)
    evidence.restart()
    assert (evidence.gain_of("a"), evidence.n, len(evidence.blocks)) == (0.0, 0, 0)


def test_blocks_are_aligned_stretches_of_time_that_grow_and_then_move_on() -> None:
    evidence = Evidence(["a", "b"], HOUR, 14 * 24 * HOUR, bar=4.0)
    rng = np.random.default_rng(2)
    gains = rng.normal(0, 1, (500, 2))
    for hour, (gain_a, gain_b) in enumerate(gains.tolist()):
        evidence.add((hour + 1) * HOUR, {"a": gain_a, "b": gain_b}, 1, 0)
        assert len(evidence.blocks) <= MOST_BLOCKS
        length = evidence.block_ms // HOUR
        blocks = np.arange(hour + 1) // length
        kept = [gains[: hour + 1][blocks == block] for block in evidence.blocks.tolist()]
        np.testing.assert_allclose(evidence.sums, [part.sum(axis=0) for part in kept], atol=1e-9)
        if length < 16:
            assert evidence.blocks[0] == 0
    assert evidence.block_ms == 16 * HOUR
    difference = evidence.sums[:, 0] - evidence.sums[:, 1]
    gain, error = evidence.recent("a", over="b")
    assert gain == pytest.approx(difference.sum())
    assert error == pytest.approx(np.sqrt(len(difference)) * difference.std(ddof=1))


def test_a_lone_burst_has_a_standard_error_as_large_as_itself() -> None:
    evidence = Evidence(["a"], HOUR, 14 * 24 * HOUR, bar=4.0)
    for hour in range(10):
        evidence.add((hour + 1) * HOUR, {"a": 1000.0 if hour == 6 else 0.0}, 1, 0)
    assert evidence.recent("a") == pytest.approx((1000.0, 1000.0))


def test_with_few_blocks_the_error_is_not_known() -> None:
    evidence = Evidence(["a"], HOUR, 14 * 24 * HOUR, bar=4.0)
    for hour in range(MIN_BLOCKS - 1):
        evidence.add((hour + 1) * HOUR, {"a": 1.0}, 1, 0)
    assert evidence.recent("a")[1] == np.inf
