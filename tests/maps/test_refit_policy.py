"""Who is chosen, who is refused and why: on evidence made by hand and on counts recounted from rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamcal.maps.challengers import Challengers, ChallengerSettings
from streamcal.maps.costs import COSTS, DEFAULT_FAMILIES
from streamcal.maps.evidence import Evidence
from streamcal.maps.families import Identity, Intercept, Map, Platt, Tracking
from streamcal.maps.fit import FITS
from streamcal.maps.guards import dispersion, largest_step, mean_is_off, newest_start, scarcer
from streamcal.maps.policy import REFUSALS, WAGER, decide, gain_bar, objection, preferred
from streamcal.stats.counts import contributions
from streamcal.stats.fit_panes import FitPanes

HOUR = 3_600_000
PANES = 200
Floats = NDArray[np.float64]


def sigmoid(z: Floats) -> Floats:
    return 1 / (1 + np.exp(-z))


def window(
    rows: int,
    *,
    slope: float = 1.0,
    intercept: float | Floats = 0.0,
    mean: float = -1.0,
    seed: int = 1,
    flipped: Sequence[int] = (),
) -> FitPanes:
    """`PANES` panes whose outcomes follow sigmoid(slope * x + intercept); `intercept` may differ by pane."""
    rng = np.random.default_rng(seed)
    pane = np.sort(rng.integers(0, PANES, rows))
    x = rng.normal(mean, 1.5, rows)
    shift = np.broadcast_to(intercept, PANES)[pane]
    y = (rng.random(rows) < sigmoid(slope * x + shift)) ^ np.isin(pane, flipped)
    bins, values, _ = contributions(sigmoid(x), y)
    fits = FitPanes(9)
    fits.add(pane, bins, values, pane * HOUR)
    fits.move(0, PANES)
    return fits


def fitted(fits: FitPanes, *families: str, min_count: int = 50) -> Challengers:
    challengers = Challengers(ChallengerSettings(families, min_count, HOUR, HOUR, HOUR, 24 * HOUR, 0))
    challengers.refit(fits.whole(), PANES * HOUR)
    return challengers


def evidence(n: int = 5000, positives: int = 1000, **gains: Sequence[float]) -> Evidence:
    """Gains by block; families in the order of their cost."""
    made = Evidence([f for f in COSTS if f in gains], HOUR, 14 * 24 * HOUR, gain_bar(len(gains)))
    blocks = len(next(iter(gains.values())))
    for block in range(blocks):
        gained = {family: float(of_family[block]) for family, of_family in gains.items()}
        made.add((block + 1) * HOUR, gained, n // blocks, positives // blocks)
    return made


# --- who is chosen -------------------------------------------------------------------------------------------


def test_the_bar_is_odds_of_twenty_to_one_shared_by_the_families() -> None:
    assert math.exp(WAGER) == pytest.approx(20)
    assert math.exp(gain_bar(5)) == pytest.approx(100)


def test_the_cheapest_that_suffices_is_chosen_unless_a_dearer_one_is_clearly_better() -> None:
    assert preferred(evidence(intercept=[2] * 5, platt=[2.2] * 5, cir=[2.1] * 5)) == ["intercept", "platt", "cir"]
    assert preferred(evidence(intercept=[2] * 5, platt=[3] * 5, cir=[3.5] * 5)) == ["platt", "intercept", "cir"]
    assert preferred(evidence(intercept=[2] * 5, platt=[2.2] * 5, cir=[3] * 5)) == ["cir", "intercept", "platt"]
    # By 5 nats, but in one block of five: no clear difference.
    assert preferred(evidence(platt=[2] * 5, cir=[2, 2, 2, 2, 6.9]))[0] == "platt"
    assert preferred(evidence(platt=[2] * 5, cir=[3] * 5))[0] == "cir"


def test_a_gain_below_the_bar_or_its_standard_error_does_not_suffice() -> None:
    assert preferred(evidence(platt=[0.5] * 5)) == []
    assert preferred(evidence(platt=[0.7] * 5)) == ["platt"]
    assert preferred(evidence(platt=[-0.1, 90, 0, 0, 0])) == []


# --- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "mean"), [(0, -1.0), (40, -1.0), (3000, -9.0), (3000, 9.0)])
def test_too_few_labels_of_either_class_are_refused(rows: int, mean: float) -> None:
    fits = window(rows, mean=mean) if rows else FitPanes(9)
    decision = decide(evidence(platt=[9] * 5), fitted(fits, "platt"), fits, Identity(), 50)
    assert (decision.promoted, decision.reason) == (False, "too_few_labels")


def test_too_few_judged_rows_of_either_class_are_refused() -> None:
    fits = window(3000, slope=0.6)
    for n, positives, reason in [(5000, 19, "too_few_holdout"), (5000, 4985, "too_few_holdout"), (5000, 25, "")]:
        judged = evidence(n, 0, platt=[9] * 5)
        judged.positives = positives
        assert decide(judged, fitted(fits, "platt"), fits, Identity(), 50).reason == reason


def test_a_reversed_model_is_refused() -> None:
    fits = window(4000, slope=-0.5)
    challengers = fitted(fits, "platt", "cir")
    assert (
        decide(evidence(platt=[0] * 5, cir=[0] * 5), challengers, fits, Identity(), 50).reason == "slope_not_positive"
    )


def test_a_step_beyond_the_limit_is_refused_but_a_shift_of_the_level_passes() -> None:
    fits = window(20_000, slope=0.3, intercept=0.5)
    assert decide(evidence(platt=[9] * 5), fitted(fits, "platt"), fits, Identity(), 50).reason == "step_too_large"
    fits = window(20_000, intercept=2.5)
    assert decide(evidence(platt=[9] * 5), fitted(fits, "platt"), fits, Identity(), 50).reason == "step_too_large"
    decision = decide(evidence(intercept=[9] * 5), fitted(fits, "intercept"), fits, Identity(), 50)
    assert decision.promoted
    assert isinstance(decision.map_, Intercept)
    assert decision.map_.intercept == pytest.approx(2.5, abs=0.1)


def test_where_the_chosen_one_is_refused_the_next_that_suffices_is_tried() -> None:
    fits = window(20_000, intercept=2.5)
    judged = evidence(intercept=[9] * 5, platt=[20] * 5)
    assert preferred(judged) == ["platt", "intercept"]
    decision = decide(judged, fitted(fits, "intercept", "platt"), fits, Identity(), 50)
    assert (decision.promoted, decision.family) == (True, "intercept")


def test_a_map_that_the_newest_labels_contradict_is_refused() -> None:
    shifted = np.where(np.arange(PANES) < PANES - 4, 0.5, -1.5)
    fits = window(40_000, intercept=shifted)
    assert decide(evidence(platt=[9] * 5), fitted(fits, "platt"), fits, Identity(), 50).reason == "mean_off"


def test_a_family_in_force_is_refreshed_by_its_own_fit_on_twice_the_labels() -> None:
    fits = window(4000, slope=0.9)
    challengers = fitted(fits, "platt")
    labels = scarcer(fits.whole())
    cases: list[tuple[Map, int, float, str]] = [
        (Platt(0.8, 0.1), labels // 2, 0.1, ""),
        (Platt(0.8, 0.1), labels // 2 + 1, 0.1, "no_gain"),
        (Platt(0.8, 0.1), labels // 2, -0.1, "no_gain"),
        (Platt(0.8, 0.1), 0, 0.1, "no_gain"),
        (Intercept(0.1), labels // 2, 0.1, "no_gain"),
    ]
    for in_force, before, gain, reason in cases:
        decision = decide(evidence(platt=[gain] * 5), challengers, fits, in_force, 50, fitted_on=before)
        assert decision.reason == reason


def test_without_gain_nothing_is_promoted_and_what_was_found_is_told() -> None:
    fits = window(4000)
    decision = decide(evidence(platt=[0.5] * 5), fitted(fits, "platt"), fits, Identity(), 50)
    assert (decision.promoted, decision.reason, decision.family) == (False, "no_gain", "platt")
    assert decision.evidence["gain_platt"] == decision.evidence["gain"] == pytest.approx(2.5)
    assert decision.evidence["bar"] == pytest.approx(WAGER)
    assert decision.evidence["holdout_positives"] == 1000
    assert decision.reason in REFUSALS


# --- guards --------------------------------------------------------------------------------------------------


def test_the_step_is_measured_on_the_central_98_percent() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-2, 2, 990), np.full(5, -9.0), np.full(5, 9.0)])
    bins, values, _ = contributions(sigmoid(x), np.arange(1000) % 2 == 0)
    counts = np.zeros((284, 9), dtype=np.int64)
    np.add.at(counts, bins, values)
    assert largest_step(counts, Identity(), Platt(0.5, 0.0)) == pytest.approx(1.0, abs=0.07)
    assert largest_step(counts, Platt(1.0, 1.0), Platt(1.0, -0.25)) == pytest.approx(1.25)
    assert largest_step(np.zeros((284, 9), dtype=np.int64), Identity(), Platt(0.5, 0.0)) == 0.0


def test_the_spread_of_days_excuses_a_mean_and_a_burst_of_false_labels_does_not() -> None:
    # Shocks shared by panes: four standard errors of independent rows are nothing.
    shocks = np.random.default_rng(3).normal(0, 0.8, PANES // 10).repeat(10)
    fits = window(60_000, intercept=shocks)
    line = fitted(fits, "platt").newest("platt")
    assert isinstance(line, Platt)
    assert dispersion(fits) > 10
    assert not mean_is_off(fits, line, 50)
    # One part in fifty flipped leaves the spread of the other blocks as it is.
    calm = window(60_000)
    burst = window(60_000, flipped=range(100, 104))
    assert dispersion(burst) < 3 * dispersion(calm) < 9


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40), st.integers(1, 10))
def test_the_newest_labels_are_those_of_the_fewest_newest_panes_with_enough_of_both(
    panes: list[tuple[int, int]], least: int
) -> None:
    rows = np.array([[10 + i, a + b, a] for i, (a, b) in enumerate(panes)], dtype=np.int64)
    enough = [
        10 + start
        for start in range(len(panes))
        if min(sum(a for a, _ in panes[start:]), sum(b for _, b in panes[start:])) >= least
    ]
    assert newest_start(rows, least) == max(enough, default=10)


def test_a_family_whose_fit_fails_keeps_no_newest_map() -> None:
    fits = window(4000)
    challengers = fitted(fits, "platt")
    assert isinstance(challengers.newest("platt"), Platt)
    challengers.refit(window(4000, slope=-1.0).whole(), (PANES + 1) * HOUR)
    assert challengers.newest("platt") == "slope_not_positive"
    assert len(challengers.generations["platt"].maps) == 1


def test_families_go_from_the_cheapest_and_tracking_needs_eight_steps_a_day() -> None:
    assert (*FITS, "tracking") == COSTS
    assert set(DEFAULT_FAMILIES) < set(COSTS)
    chosen = ("tracking", "cir", "prior", "intercept")
    assert fitted(FitPanes(9), *chosen).families == ("intercept", "cir", "tracking")
    slow = ChallengerSettings(chosen, 50, 6 * HOUR, 6 * HOUR, 6 * HOUR, 24 * HOUR, 0)
    assert Challengers(slow).families == ("intercept", "cir")
    assert objection(window(4000), Identity(), Tracking(1.0, 0.0), 50) == ""
