"""The early ratio on simulated streams, beside what the same moment looks like without it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from streamcal.early.cohorts import CohortLayout, Cohorts
from streamcal.early.estimate import early_estimate
from streamcal.snapshot import EarlyEstimate
from streamcal.stream.arrivals import Accepted, LabelChanges

MINUTE = 60_000
HOUR = 60 * MINUTE
HORIZON = 2 * HOUR
MEAN_DELAY = 30 * MINUTE
NOW = 1_700_000_000_000 // HOUR * HOUR
SEEN_SHARE = 0.578
"""Of the positives of a fresh uniform hour: (1 - (30/60) (1 - exp(-2))) / (1 - exp(-4))."""


@dataclass(frozen=True)
class Stream:
    """Calibrated predictions (ms, score), and per prediction the delay of its positive; infinite if it is none."""

    made: NDArray[np.int64]
    score: NDArray[np.float64]
    delay: NDArray[np.float64]

    def seen(self) -> NDArray[np.bool_]:
        return (self.made + self.delay <= NOW) & (self.delay <= HORIZON)


def stream(rng: np.random.Generator, n: int, start: int, stop: int, stretch: float = 1.0, odds: float = 1.0) -> Stream:
    """A label is positive within the horizon with the probability that the score says (its odds times `odds`)."""
    made = rng.integers(start, stop, n)
    score = 1 / (1 + np.exp(-rng.normal(-2, 1, n)))
    true = odds * score / (odds * score + 1 - score)
    quantile = rng.random(n) * (1 - np.exp(-HORIZON / MEAN_DELAY))
    delay = -np.log1p(-quantile) * MEAN_DELAY * stretch
    return Stream(made, score, np.where(rng.random(n) < true, delay, np.inf))


def cohorts_of(*streams: Stream, matured_until: int) -> Cohorts:
    cohorts = Cohorts(CohortLayout(HORIZON, MINUTE, 24 * 60))
    for part in streams:
        n = len(part.made)
        index = np.zeros(n, dtype=np.int32)
        cohorts.accept(Accepted(part.made, part.score, part.score, index, index))
        seen = part.seen()
        one = np.ones(int(seen.sum()), dtype=np.int8)
        delay = part.delay[seen].astype(np.int64)
        cohorts.label(LabelChanges(one, one, part.made[seen], delay, part.score[seen], index[seen]))
    cohorts.mature(matured_until, NOW)
    return cohorts


def estimate(cohorts: Cohorts, **options: bool) -> EarlyEstimate:
    ends, fresh = cohorts.fresh()
    complete = options.get("complete", True)
    found = early_estimate(cohorts.matured(), fresh, NOW - ends, cohorts.edges, min_count=20, complete=complete)
    assert found is not None
    return found


def history(rng: np.random.Generator, n: int) -> Stream:
    return stream(rng, n, NOW - 24 * HOUR, NOW - HORIZON)


def test_a_fresh_hour_is_calibrated_though_its_outcomes_look_like_a_score_far_too_high() -> None:
    rng = np.random.default_rng(5)
    fresh = stream(rng, 200_000, NOW - HOUR, NOW)
    early = estimate(cohorts_of(history(rng, 400_000), fresh, matured_until=NOW - HORIZON))
    naive = fresh.seen().sum() / fresh.score.sum()
    assert naive == pytest.approx(SEEN_SHARE, abs=0.006)
    assert early.ratio is not None
    assert early.ratio_se is not None
    assert abs(early.ratio - 1) < 3 * early.ratio_se
    assert early.ratio_se < 0.015
    # What the buckets give up: the positives between the last edge a cohort has passed and its age.
    assert 0.9 * fresh.seen().sum() < early.positives <= fresh.seen().sum()


def test_delays_that_stretch_read_as_a_fall_of_the_base_rate() -> None:
    """Hence a warning only. (1 - (39/60) (1 - exp(-60/39))) / (1 - (30/60) (1 - exp(-2))) = .863."""
    rng = np.random.default_rng(6)
    fresh = stream(rng, 400_000, NOW - HOUR, NOW, stretch=1.3)
    early = estimate(cohorts_of(history(rng, 400_000), fresh, matured_until=NOW - HORIZON))
    assert early.ratio is not None
    assert 1 / early.ratio == pytest.approx(0.863, abs=0.02)


def test_scores_too_high_are_told_before_any_cohort_has_matured() -> None:
    rng = np.random.default_rng(7)
    fresh = stream(rng, 100_000, NOW - HOUR, NOW, odds=0.5)
    early = estimate(cohorts_of(history(rng, 200_000), fresh, matured_until=NOW - HORIZON))
    true = fresh.score.sum() / np.isfinite(fresh.delay).sum()
    assert early.ratio is not None
    assert early.ratio_se is not None
    assert early.ratio == pytest.approx(true, abs=3 * early.ratio_se)
    assert early.ratio > 1.5


def test_the_standard_error_is_the_scatter_over_streams() -> None:
    """Few matured positives, so that both of its parts count."""
    z = []
    for seed in range(300):
        rng = np.random.default_rng(1000 + seed)
        fresh = stream(rng, 3_000, NOW - HOUR, NOW)
        early = estimate(cohorts_of(history(rng, 1_500), fresh, matured_until=NOW - HORIZON))
        assert early.ratio is not None
        assert early.ratio_se is not None
        # The ratio of expected to observed is skewed: on the scale of the logarithm it is not.
        z.append(np.log(early.ratio) / (early.ratio_se / early.ratio))
    assert np.std(z) == pytest.approx(1, abs=0.13)
    assert abs(np.mean(z)) < 0.2


def test_labels_that_never_come_are_allowed_for_by_score_band() -> None:
    rng = np.random.default_rng(8)
    cohorts = Cohorts(CohortLayout(HORIZON, MINUTE, 24 * 60))
    for part in (history(rng, 400_000), stream(rng, 200_000, NOW - HOUR, NOW)):
        index = np.zeros(len(part.made), dtype=np.int32)
        cohorts.accept(Accepted(part.made, part.score, part.score, index, index))
        # Labels of high scores are often lost; negatives are told at once.
        kept = rng.random(len(part.made)) < np.where(part.score > 0.3, 0.4, 0.9)
        positive = np.isfinite(part.delay)
        for label, rows in ((1, kept & part.seen()), (0, kept & ~positive)):
            sign = np.ones(int(rows.sum()), dtype=np.int8)
            delay = np.where(positive, part.delay, 0)[rows].astype(np.int64)
            cohorts.label(LabelChanges(sign, sign * label, part.made[rows], delay, part.score[rows], index[rows]))
    cohorts.mature(NOW - HORIZON, NOW)
    early = estimate(cohorts, complete=False)
    assert early.ratio is not None
    assert early.ratio_se is not None
    assert abs(early.ratio - 1) < 3 * early.ratio_se
    unaware = estimate(cohorts, complete=True)
    assert unaware.ratio is not None
    assert unaware.ratio > 1.2


def test_without_matured_positives_nothing_is_said() -> None:
    rng = np.random.default_rng(9)
    cohorts = cohorts_of(stream(rng, 10_000, NOW - HOUR, NOW), matured_until=NOW - HORIZON)
    ends, fresh = cohorts.fresh()
    assert early_estimate(cohorts.matured(), fresh, NOW - ends, cohorts.edges, min_count=20, complete=True) is None


def test_expected_positives_are_known_where_none_is_seen() -> None:
    rng = np.random.default_rng(10)
    fresh = stream(rng, 5_000, NOW - HOUR, NOW)
    silent = Stream(fresh.made, fresh.score, np.full(5_000, np.inf))
    early = estimate(cohorts_of(history(rng, 50_000), silent, matured_until=NOW - HORIZON))
    assert (early.positives, early.ratio, early.ratio_se) == (0, None, None)
    assert early.expected_positives > 300
