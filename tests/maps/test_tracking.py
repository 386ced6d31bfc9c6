"""The tracking filter against brute-force Bayes on a grid, batch fits, and its own experts run one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from scipy.special import expit

from streamcal.maps.experts import DAY_MS, Expert, TrackingSettings
from streamcal.maps.laplace import Rows
from streamcal.maps.tracking import StepCells, TrackingFilter, step_cells
from streamcal.stats.counts import contributions
from streamcal.stats.layout import bin_index
from streamcal.stats.platt import Prior, fit_platt

HOUR = 3_600_000
STEPS_A_DAY = DAY_MS // HOUR
STILL = Expert(level_sd=0.0)


def _settings(*experts: Expert, memory: int = 30, **more: Any) -> TrackingSettings:
    return TrackingSettings(memory_steps=memory, step_ms=HOUR, experts=experts, **more)


def _cells(predicted: Any, x: Any, y: Any) -> StepCells:
    predicted = np.broadcast_to(np.asarray(predicted, dtype=np.int64), np.shape(x))
    return StepCells(predicted, Rows(np.ones(len(x)), np.asarray(y, dtype=float), np.asarray(x, dtype=float)))


def _drawn(rng: np.random.Generator, n: int, logit: Any) -> tuple[Any, Any]:
    """Raw logits and labels whose true logit is `logit` of them."""
    x = rng.normal(-1.0, 1.2, n)
    return x, (rng.random(n) < expit(logit(x))).astype(float)


def test_level_and_slope_are_those_of_bayes_on_a_grid() -> None:
    rng = np.random.default_rng(1)
    tracked = TrackingFilter(_settings(Expert(level_sd=0.4)), step=0)
    a, b = np.linspace(-4, 4, 321), np.linspace(-1.5, 3.5, 251)
    grid = np.exp(-0.5 * a[:, None] ** 2 - 0.5 * ((b[None, :] - 1.0) / 0.5) ** 2)
    walk = 0.4 / np.sqrt(STEPS_A_DAY)
    for step in range(80):
        level = 0.8 if step > 40 else -0.4
        x, y = _drawn(rng, 15, lambda x, level=level: level + 0.7 * x)
        tracked.update(step, _cells(step, x, y))
        z = a[:, None, None] + b[None, :, None] * x
        grid = grid * np.exp((y * z - np.logaddexp(0, z)).sum(axis=2))
        grid /= grid.sum()
        mean_a, mean_b = (grid.sum(1) * a).sum(), (grid.sum(0) * b).sum()
        sd_a = np.sqrt((grid.sum(1) * (a - mean_a) ** 2).sum())
        if step > 5:
            found = tracked.current()
            # Laplace's mode against the mean: a skewed posterior sets them apart by a fraction of its spread.
            assert abs(found.intercept - mean_a) < 0.2 * sd_a
            assert abs(found.slope - mean_b) < 0.06
            # The walk of the step after was added already.
            assert np.sqrt(tracked.state()["covariance"][0, 0, 0]) == pytest.approx(np.hypot(sd_a, walk), rel=0.08)
        grid = gaussian_filter(grid, (walk / (a[1] - a[0]), walk * np.sqrt(0.2) / (b[1] - b[0])))


def test_a_transient_is_that_of_bayes_on_a_grid() -> None:
    rng = np.random.default_rng(2)
    expert = Expert(level_sd=0.0, transient_sd=0.8, transient_hours=5.0)
    tracked = TrackingFilter(_settings(expert, intercept_sd=1e-6, slope_sd=1e-6), step=0)
    t = np.linspace(-5, 5, 801)
    keep = 0.5 ** (1 / 5)
    move = np.exp(-0.5 * (t[:, None] - keep * t[None, :]) ** 2 / (0.64 * (1 - keep**2)))
    move /= move.sum(axis=0)
    density = np.exp(-0.5 * (t / 0.8) ** 2)
    for step in range(60):
        truth = 1.2 if step % 20 < 10 else 0.0
        x, y = _drawn(rng, 12 if step % 7 else 0, lambda x, truth=truth: truth + x)
        if len(x):
            tracked.update(step, _cells(step, x, y))
        else:
            tracked.advance(step + 1)
        z = t[:, None] + x
        density = move @ (density * np.exp((y * z - np.logaddexp(0, z)).sum(axis=1)))
        density /= density.sum()
        mean = (density * t).sum()
        sd = np.sqrt((density * (t - mean) ** 2).sum())
        assert abs(tracked.current().intercept - mean) < 0.1 * sd


def test_without_movement_it_is_the_fit_of_all_rows() -> None:
    rng = np.random.default_rng(3)
    x, y = _drawn(rng, 12_000, lambda x: -0.4 + 0.7 * x)
    bins, values, _ = contributions(expit(x), y.astype(int))
    tracked = TrackingFilter(_settings(STILL), step=5)
    for step in range(40):
        part = slice(step * 300, step * 300 + 300)
        tracked.update(step + 5, step_cells(np.full(300, step + 5), bins[part], values[part]))
    dense = np.zeros((1, 284, 9), dtype=np.int64)
    np.add.at(dense[0], bins, values)
    fit = fit_platt(dense, prior=Prior())
    assert tracked.current().intercept == pytest.approx(fit.intercept[0], abs=0.1 * fit.intercept_se[0])
    assert tracked.current().slope == pytest.approx(fit.slope[0], abs=0.1 * fit.slope_se[0])


def _delayed(rng: np.random.Generator, steps: int, per_step: int, level: Any) -> list[tuple[Any, Any, Any]]:
    """By step in which they become known: step of prediction, raw logit, label; up to eight steps later."""
    at = np.repeat(np.arange(steps), per_step)
    x = rng.normal(-1.0, 1.2, len(at))
    y = (rng.random(len(at)) < expit(level(at) + x)).astype(float)
    known = at + rng.integers(0, 9, len(at))
    return [(at[known == step], x[known == step], y[known == step]) for step in range(steps)]


def test_experts_are_weighed_by_what_they_had_served() -> None:
    rng = np.random.default_rng(4)
    experts = (Expert(0.01), Expert(0.3), Expert(0.05, 0.4, 4.0), Expert(0.05, cycle_sd=0.05))
    together = TrackingFilter(_settings(*experts, loss_half_life_days=3.0), step=0)
    alone = [TrackingFilter(_settings(expert), step=0) for expert in experts]
    in_force: list[Any] = []
    log_weight = np.zeros(len(experts))
    for step, (predicted, x, y) in enumerate(_delayed(rng, 200, 20, lambda at: 0.5 * np.sin(at / 30))):
        in_force.append([expert.current() for expert in alone])
        weights = np.exp(log_weight - log_weight.max())
        weights /= weights.sum()
        assert together.weights == pytest.approx(weights, abs=1e-6)
        served = weights @ np.array(in_force[-1])
        assert together.current() == pytest.approx(tuple(served), abs=1e-6)
        for row in range(len(x)):
            a, b = np.array(in_force[predicted[row]]).T
            z = a + b * x[row]
            log_weight -= np.logaddexp(0, z) - y[row] * z
        log_weight *= 0.5 ** (1 / (3 * STEPS_A_DAY))
        for tracked in (together, *alone):
            tracked.update(step, _cells(predicted, x, y))


def _log_loss(tracked: TrackingFilter, stream: list[tuple[Any, Any, Any]]) -> float:
    """Summed loss of every row under the map in force when it was predicted."""
    a, b = np.empty(len(stream)), np.empty(len(stream))
    total = 0.0
    for step, (predicted, x, y) in enumerate(stream):
        a[step], b[step] = tracked.current()
        z = a[predicted] + b[predicted] * x
        total += float((np.logaddexp(0, z) - y * z).sum())
        tracked.update(step, _cells(predicted, x, y))
    return total


def _regret(settings: TrackingSettings, stream: list[tuple[Any, Any, Any]], level: Any) -> float:
    truth = 0.0
    for predicted, x, y in stream:
        z = level(predicted) + x
        truth += float((np.logaddexp(0, z) - y * z).sum())
    return _log_loss(TrackingFilter(settings, 0), stream) - truth


def test_a_calibrated_stream_costs_a_few_nats() -> None:
    settings = TrackingSettings(memory_steps=30, step_ms=HOUR)
    stream = _delayed(np.random.default_rng(5), 1500, 40, lambda at: 0.0 * at)
    assert _regret(settings, stream, lambda at: 0.0 * at) < 25


def test_the_mixture_comes_near_its_best_expert_where_the_truth_jumps() -> None:
    def level(at: Any) -> Any:
        return np.where(at < 500, -0.5, 0.6)

    experts = (Expert(0.01), Expert(0.15), Expert(0.5))
    stream = _delayed(np.random.default_rng(6), 1000, 40, level)
    alone = sorted(_regret(_settings(expert), stream, level) for expert in experts)
    mixed = _regret(_settings(*experts), stream, level)
    assert mixed < 1.25 * alone[0]
    assert mixed < alone[1]
    assert _regret(_settings(STILL), stream, level) > 5 * mixed


def test_a_daily_cycle_is_learned_and_served_ahead() -> None:
    def level(at: Any) -> Any:
        return 0.8 * np.cos(2 * np.pi * (at + 0.5) / STEPS_A_DAY)

    tracked = TrackingFilter(_settings(Expert(0.01, cycle_sd=0.01)), step=0)
    stream = _delayed(np.random.default_rng(7), 40 * STEPS_A_DAY, 40, level)
    for step, (predicted, x, y) in enumerate(stream):
        tracked.update(step, _cells(predicted, x, y))
    for _ in range(STEPS_A_DAY):
        assert tracked.current().intercept == pytest.approx(level(tracked.step), abs=0.15)
        tracked.advance(tracked.step + 1)


def test_labels_that_come_late_when_positive_do_not_tilt_what_is_served() -> None:
    # Calibrated; predicted from 6 to 18 h; negatives are known within 2 h, positives 6 to 10 h later, into the night.
    rng = np.random.default_rng(8)
    at = np.repeat(np.arange(60 * STEPS_A_DAY), 20)
    at = at[(at % STEPS_A_DAY >= 6) & (at % STEPS_A_DAY < 18)]
    x = rng.normal(-1.0, 1.2, len(at))
    y = (rng.random(len(at)) < expit(x)).astype(float)
    known = at + np.where(y > 0, rng.integers(6, 11, len(at)), rng.integers(0, 3, len(at)))
    tracked = TrackingFilter(_settings(Expert(0.05, transient_sd=0.3)), step=0)
    served = np.zeros((60 * STEPS_A_DAY, 2))
    for step in range(60 * STEPS_A_DAY):
        served[step] = tracked.current()
        rows = known == step
        if rows.any():
            tracked.update(step, _cells(at[rows], x[rows], y[rows]))
    late = at > 10 * STEPS_A_DAY
    z = served[at, 0] + served[at, 1] * x
    gap = (y - expit(z))[late].mean()
    assert abs(gap) < 3 * np.sqrt(0.19 / late.sum())


def test_rows_merged_or_shuffled_teach_the_same() -> None:
    rng = np.random.default_rng(9)
    x, y = _drawn(rng, 500, lambda x: x + 0.3)
    x = np.round(x)
    predicted = rng.integers(3, 6, 500)
    one, other = (TrackingFilter(TrackingSettings(memory_steps=30), step=0) for _ in range(2))
    one.update(6, _cells(predicted, x, y))
    key, inverse = np.unique(np.stack([predicted, x]), axis=1, return_inverse=True)
    rows = Rows(np.bincount(inverse).astype(float), np.bincount(inverse, y), key[1])
    other.update(6, StepCells(key[0].astype(np.int64), rows))
    assert one.current() == pytest.approx(other.current(), abs=1e-9)
    assert one.weights == pytest.approx(other.weights, abs=1e-9)


@pytest.mark.parametrize("gap", [1, 29, 30, 31, 500])
def test_a_quiet_gap_passed_at_once_is_one_passed_step_by_step(gap: int) -> None:
    rng = np.random.default_rng(10)
    one, other = (TrackingFilter(TrackingSettings(memory_steps=30), step=0) for _ in range(2))
    x, y = _drawn(rng, 300, lambda x: 0.5 + x)
    one.update(0, _cells(0, x, y))
    other.update(0, _cells(0, x, y))
    one.advance(1 + gap)
    nothing = _cells(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    for step in range(1, 1 + gap):
        other.update(step, nothing)
    for name, held in one.state().items():
        assert held == pytest.approx(other.state()[name], abs=1e-12), name


def test_a_saved_filter_goes_on_to_the_bit() -> None:
    settings = TrackingSettings(memory_steps=12, step_ms=HOUR)
    stream = _delayed(np.random.default_rng(11), 60, 20, lambda at: 0.3 + 0.0 * at)
    one = TrackingFilter(settings, 0)
    other = one
    for step, (predicted, x, y) in enumerate(stream):
        one.update(step, _cells(predicted, x, y))
        if step == 30:
            other = TrackingFilter.from_state(settings, one.state())
        elif step > 30:
            other.update(step, _cells(predicted, x, y))
    assert other is not one
    assert other.current() == one.current()
    assert all(np.array_equal(held, one.state()[name]) for name, held in other.state().items())


def test_a_state_of_other_experts_is_refused() -> None:
    state = TrackingFilter(_settings(STILL), 0).state()
    with pytest.raises(ValueError, match="these settings need"):
        TrackingFilter.from_state(_settings(STILL, Expert(0.1)), state)


def test_a_million_rows_far_from_the_prior_are_met_in_one_step() -> None:
    x = np.linspace(-10, 10, 81)
    n = np.full(81, 1e6 / 81)
    tracked = TrackingFilter(TrackingSettings(memory_steps=30), step=0)
    tracked.update(0, StepCells(np.zeros(81, dtype=np.int64), Rows(n, n * expit(-8.0 + 0.4 * x), x)))
    assert tracked.current() == pytest.approx((-8.0, 0.4), abs=0.1)


def test_doubling_all_weights_teaches_no_more() -> None:
    rng = np.random.default_rng(12)
    p, y = rng.random(200), rng.integers(0, 2, 200)
    w = rng.uniform(0.5, 2.0, 200)
    predicted = np.zeros(200, dtype=np.int64)
    once, twice = (step_cells(predicted, bin_index(p), contributions(p, y, f * w)[1]) for f in (1.0, 2.0))
    assert once.rows.weight == pytest.approx(twice.rows.weight, rel=1e-6)
    assert once.rows.positive == pytest.approx(twice.rows.positive, rel=1e-6)
    assert once.rows.weight.sum() == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-6)


def test_cells_of_counts_hold_the_mean_logit_of_their_rows() -> None:
    p, y = np.array([0.3, 0.31, 0.9]), np.array([1, 0, 1])
    bins, values, _ = contributions(p, y)
    cells = step_cells(np.array([7, 8, 9]), bins, values)
    assert cells.rows.logit == pytest.approx(np.log(p / (1 - p)), abs=1e-9)
    assert cells.rows.positive.tolist() == [1, 0, 1]
    assert cells.predicted.tolist() == [7, 8, 9]


def test_a_step_that_is_over_is_refused() -> None:
    tracked = TrackingFilter(_settings(STILL), step=4)
    with pytest.raises(ValueError, match="step 3 is over"):
        tracked.update(3, _cells(3, [0.1], [1]))


@pytest.mark.parametrize("more", [{"step_ms": 7}, {"step_ms": 6 * HOUR}, {"memory_steps": 0}, {"experts": ()}])
def test_settings_that_make_no_filter_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"divide the day|at least one"):
        TrackingSettings(**{"memory_steps": 10, **more})
