"""The scheduled refit: judged on panes the candidate has not seen, recounted from rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from streamcal.maps.families import Identity, Platt
from streamcal.maps.policy import GAIN_BAR, REFUSALS, RefitSettings, attempt, holdout_start
from streamcal.stats.counts import WEIGHTED, contributions
from streamcal.stats.layout import N_BINS

SETTINGS = RefitSettings(min_count=50)


def counted(
    p: NDArray[np.float64], y: NDArray[np.integer], weight: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    bins, values, _ = contributions(p, y, weight)
    counts = np.zeros((N_BINS, values.shape[1]), dtype=np.int64)
    np.add.at(counts, bins, values)
    return counts


def sigmoid(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-z))


def logit(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(p) - np.log1p(-p)


def stream(
    n: int, slope: float, intercept: float, seed: int = 1, mean: float = -1.0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores whose outcomes follow sigmoid(slope * logit(score) + intercept)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, 1.5, n)
    return sigmoid(x), (rng.random(n) < sigmoid(slope * x + intercept)).astype(np.int64)


def row_log_loss(q: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    return float(-np.where(y == 1, np.log(q), np.log1p(-q)).sum())


def test_an_over_confident_model_is_corrected_at_the_first_attempt() -> None:
    p, y = stream(6000, 0.55, -0.43)
    decision = attempt(counted(p[:5400], y[:5400]), counted(p[5400:], y[5400:]), Identity(), SETTINGS)
    assert decision.promoted
    assert decision.reason == ""
    # The map in force is fitted on all labels; at this size the prior moves it by less than a standard error.
    fit = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(p)[:, None], y)
    assert isinstance(decision.map_, Platt)
    assert decision.map_.slope == pytest.approx(fit.coef_[0, 0], abs=0.01)
    assert decision.map_.intercept == pytest.approx(fit.intercept_[0], abs=0.01)
    assert (decision.n, decision.positives) == (6000, int(y.sum()))


def test_the_gain_is_the_difference_of_log_losses_on_the_held_out_rows() -> None:
    p, y = stream(4000, 0.8, 0.05, seed=7)
    champion = Platt(0.85, 0.0)
    decision = attempt(counted(p[:3000], y[:3000]), counted(p[3000:], y[3000:]), champion, SETTINGS)
    candidate = decision.map_
    assert decision.reason == "no_gain"
    assert candidate is not None
    held_p, held_y = p[3000:], y[3000:]
    gain = row_log_loss(champion.apply(held_p), held_y) - row_log_loss(candidate.apply(held_p), held_y)
    # Bins of an eighth in the logit stand for their rows: a hundredth of the bar.
    assert decision.evidence["gain"] == pytest.approx(gain, abs=0.03)
    assert decision.evidence["holdout_n"] == 1000
    assert decision.evidence["holdout_positives"] == held_y.sum()


def test_a_refit_replaces_the_map_and_does_not_stack_on_it() -> None:
    # A map with offset -1 is live: raw .5 is served as .268941. Refitting on the same truth must say the same.
    p, y = stream(400_000, 1.0, -1.0, seed=3)
    older, newer = counted(p[:390_000], y[:390_000]), counted(p[390_000:], y[390_000:])
    kept = attempt(older, newer, Platt(1.0, -1.0), SETTINGS)
    assert kept.reason == "no_gain"
    assert kept.map_ is not None
    assert kept.map_.apply_one(0.5) == pytest.approx(0.268941, abs=0.002)
    fresh = attempt(older, newer, Identity(), SETTINGS)
    assert fresh.promoted
    assert fresh.map_ is not None
    assert fresh.map_.apply_one(0.5) == pytest.approx(0.268941, abs=0.002)


def test_separable_rows_give_the_finite_map() -> None:
    p, y = np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1])
    refuted = counted(p, 1 - y)
    decision = attempt(counted(p, y), refuted, Identity(), RefitSettings(min_count=1))
    assert decision.reason == "no_gain"
    assert isinstance(decision.map_, Platt)
    assert decision.map_.slope == pytest.approx(1.187371, rel=1e-6)
    assert decision.map_.intercept == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_calibrated_champion_is_kept_all_month(seed: int) -> None:
    p, y = stream(24 * 30 * 20, 1.0, 0.0, seed=seed)
    rows = counted_by_pane(p, y, 20)
    promoted = 0
    for now in range(24, 24 * 30, 3):
        window = rows[max(0, now - 336) : now]
        split = holdout_start(window[:, :, 0].sum(1), window[:, :, 1].sum(1), SETTINGS)
        promoted += attempt(window[:split].sum(0), window[split:].sum(0), Identity(), SETTINGS).promoted
    assert promoted == 0


def counted_by_pane(p: NDArray[np.float64], y: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    return np.stack([counted(p[i : i + rows], y[i : i + rows]) for i in range(0, len(p), rows)])


def test_a_drift_that_only_newer_panes_show_is_not_corrected_before_it_is_learnt() -> None:
    # The candidate knows only the old truth, and so does the champion: nothing is gained.
    p, y = stream(5000, 1.0, 0.0)
    shifted_p, shifted_y = stream(400, 1.0, 1.0, seed=2)
    decision = attempt(counted(p, y), counted(shifted_p, shifted_y), Identity(), SETTINGS)
    assert decision.reason == "no_gain"


@pytest.mark.parametrize(
    ("older_rows", "newer_rows", "mean", "reason"),
    [
        (0, 0, -1.0, "too_few_labels"),
        (40, 40, -1.0, "too_few_labels"),
        (4000, 40, -1.0, "too_few_holdout"),
        (40, 4000, -1.0, "too_few_labels"),
        (3000, 3000, -9.0, "too_few_labels"),
        (3000, 3000, 9.0, "too_few_labels"),
    ],
)
def test_too_few_rows_of_either_class_are_refused(older_rows: int, newer_rows: int, mean: float, reason: str) -> None:
    p, y = stream(older_rows + newer_rows, 1.0, 0.0, mean=mean)
    older, newer = counted(p[:older_rows], y[:older_rows]), counted(p[older_rows:], y[older_rows:])
    decision = attempt(older, newer, Identity(), SETTINGS)
    assert (decision.promoted, decision.reason, decision.map_) == (False, reason, None)
    assert "gain" not in decision.evidence


def test_a_reversed_model_is_refused() -> None:
    p, y = stream(4000, -0.5, 0.0)
    decision = attempt(counted(p[:3000], y[:3000]), counted(p[3000:], y[3000:]), Identity(), SETTINGS)
    assert decision.reason == "slope_not_positive"
    assert decision.reason in REFUSALS


def test_the_bar_is_odds_of_twenty_to_one() -> None:
    assert math.exp(GAIN_BAR) == pytest.approx(20)


def test_doubled_weights_are_no_new_evidence() -> None:
    p, y = stream(4000, 0.8, 0.0)
    gains = []
    for weight in (1.0, 2.0):
        w = np.full(4000, weight)
        older, newer = counted(p[:3000], y[:3000], w[:3000]), counted(p[3000:], y[3000:], w[3000:])
        assert older.shape[1] == WEIGHTED
        gains.append(attempt(older, newer, Platt(0.85, 0.0), SETTINGS).evidence["gain"])
    plain = attempt(counted(p[:3000], y[:3000]), counted(p[3000:], y[3000:]), Platt(0.85, 0.0), SETTINGS)
    assert gains[0] == pytest.approx(plain.evidence["gain"], abs=1e-6)
    # Twice the weight in the fit halves the pull of the prior, hence not exactly.
    assert gains[1] == pytest.approx(gains[0], abs=0.1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40), st.integers(1, 10))
def test_the_hold_out_is_the_fewest_newest_panes_with_enough_of_both(
    panes: list[tuple[int, int]], min_count: int
) -> None:
    positives = np.array([a for a, _ in panes], dtype=np.int64)
    n = positives + np.array([b for _, b in panes], dtype=np.int64)
    enough = [
        start
        for start in range(len(panes))
        if min(sum(a for a, _ in panes[start:]), sum(b for _, b in panes[start:])) >= 2 * min_count
    ]
    assert holdout_start(n, positives, RefitSettings(min_count)) == max(enough, default=0)
