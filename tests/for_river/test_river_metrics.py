from __future__ import annotations

import copy
import datetime as dt
import math
import pickle
from typing import Any

import numpy as np
import pytest
from recount_counts import add_into, bin_of, row_columns
from river import evaluate, linear_model, metrics, optim, preprocessing, utils
from river.datasets import Phishing
from sklearn.linear_model import LogisticRegression
from stats_oracle import expand

from streamcal.river import ECE, CalibrationCounts, PlattSlope, PredictedToObservedRatio

ALL = (ECE, PlattSlope, PredictedToObservedRatio)

OVER_CONFIDENT = [
    *((0.05, 300, 44), (0.15, 150, 39), (0.25, 100, 34), (0.35, 80, 33), (0.45, 70, 33)),
    *((0.55, 70, 37), (0.65, 60, 36), (0.75, 60, 40), (0.85, 60, 44), (0.95, 50, 43)),
]
"""A worked example: 1,000 held-out rows as score, rows, positives."""


def stream(n: int = 600, seed: int = 7) -> list[tuple[bool, float]]:
    rng = np.random.default_rng(seed)
    p = rng.beta(1.5, 3.0, n)
    return list(zip((rng.random(n) < p**1.3).tolist(), p.tolist(), strict=True))


def oracle(rows: list[tuple[bool, float]]) -> dict[type, float]:
    """The three figures by other means: plain numpy, and scikit-learn without a penalty."""
    y, p = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    # bins are (lo, hi] of float32 scores
    bins = np.ceil(p.astype(np.float32).astype(float) * 10).clip(1, 10)
    ece = sum(abs((p - y)[bins == b].sum()) for b in range(1, 11)) / len(p)
    logit = np.log(p / (1 - p))[:, None]
    slope = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit, y).coef_[0, 0]
    return {ECE: ece, PlattSlope: slope, PredictedToObservedRatio: p.sum() / y.sum()}


@pytest.mark.parametrize("metric", ALL)
def test_a_metric_is_what_other_means_compute(metric: Any) -> None:
    rows = stream()
    ours = metric()
    for n, (y, p) in enumerate(rows, 1):
        ours.update(y, p)
        if n in {100, 300, 600}:
            assert ours.get() == pytest.approx(oracle(rows[:n])[metric], rel=2e-4)


def test_the_worked_example() -> None:
    shared = CalibrationCounts()
    ece, slope, ratio = ECE(shared), PlattSlope(shared), PredictedToObservedRatio(shared)
    for p, y in zip(*expand(OVER_CONFIDENT), strict=True):
        ece.update(bool(y), float(p))
    assert ece.get() == pytest.approx(0.0820, abs=5e-5)
    assert slope.get() == pytest.approx(0.60314, abs=1e-5)
    assert ratio.get() == pytest.approx(343 / 383, abs=1e-3)


def test_the_counts_are_those_of_an_independent_recount() -> None:
    metric, bins = ECE(), {}
    for number, (y, p) in enumerate(stream(200)):
        w = 1.0 if number < 50 else 1.0 + number % 3
        metric.update(y, p, w=w)
        add_into(bins, bin_of(p), row_columns(p, int(y), w, weighted=True))
    assert metric.counts.values.shape == (284, 23)
    expected = np.zeros((284, 23), dtype=np.int64)
    for index, columns in bins.items():
        expected[index] = columns
    np.testing.assert_array_equal(metric.counts.values, expected)


@pytest.mark.parametrize("metric", ALL)
def test_reverting_everything_leaves_no_trace(metric: Any) -> None:
    rows, kept, ours = stream(300), metric(), metric()
    for y, p in rows[200:]:
        kept.update(y, p)
    for y, p in rows:
        ours.update(y, {True: p, False: 1 - p})
    for y, p in rows[:200]:
        ours.revert(y, p)
    np.testing.assert_array_equal(ours.counts.values, kept.counts.values)
    assert ours.get() == kept.get()
    for y, p in rows[200:]:
        ours.revert(y, p)
    assert not ours.counts.values.any()
    assert math.isnan(ours.get())


@pytest.mark.parametrize("metric", ALL)
def test_rolling_windows_equal_the_rows_in_them(metric: Any) -> None:
    rows = stream(400)
    by_count = utils.Rolling(metric, window_size=150)
    by_time = utils.TimeRolling(metric, period=dt.timedelta(minutes=150))
    for minute, (y, p) in enumerate(rows):
        by_count.update(y, p)
        by_time.update(y, p, t=dt.datetime(2026, 1, 1) + dt.timedelta(minutes=minute))  # noqa: DTZ001 -- river's are naive
    assert by_count.get() == pytest.approx(oracle(rows[-150:])[metric], rel=2e-4)
    assert by_time.get() == by_count.get()


@pytest.mark.parametrize("metric", ALL)
def test_a_metric_behaves_as_rivers_own(metric: Any) -> None:
    ours = metric()
    for y, p in stream(200):
        ours.update(y, p)
    assert isinstance(ours, metrics.base.BinaryMetric)
    assert ours.works_with(linear_model.LogisticRegression())
    assert not ours.works_with(linear_model.LinearRegression())
    assert ours.works_with_weights
    assert not ours.requires_labels
    assert repr(ours).startswith(f"{metric.__name__}: ")
    assert math.isnan(ours.clone().get())
    assert ours.clone()._get_params().keys() == ours._get_params().keys()
    assert copy.deepcopy(ours).get() == pickle.loads(pickle.dumps(ours)).get() == ours.get()
    both = ours + metrics.LogLoss()
    both.update(True, {True: 0.5, False: 0.5})
    assert both.get()[0] == ours.get()


def test_progressive_validation_takes_the_metrics() -> None:
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression(optimizer=optim.SGD(0.1))
    judged = ECE() + PlattSlope() + PredictedToObservedRatio() + metrics.Accuracy()
    evaluate.progressive_val_score(Phishing(), model, judged)
    ece, slope, ratio, accuracy = judged.get()
    assert 0.0 < ece < 0.2
    assert 0.3 < slope < 3.0
    assert 0.8 < ratio < 1.25
    assert accuracy > 0.8


def test_the_better_metric_is_nearer_to_calibrated() -> None:
    def ratio(*rows: tuple[bool, float]) -> PredictedToObservedRatio:
        metric = PredictedToObservedRatio()
        for y, p in rows:
            metric.update(y, p)
        return metric

    thrice, half, right = ratio((True, 1.0), *[(False, 1.0)] * 2), ratio((True, 0.5)), ratio((True, 0.6), (True, 0.9))
    assert right.is_better_than(thrice)
    assert right > half
    assert half > thrice
    assert not right.is_better_than(PredictedToObservedRatio())


def test_another_label_can_be_the_positive_one() -> None:
    words = PredictedToObservedRatio(pos_val="fraud")
    words.update("fraud", {"fraud": 0.5, "fine": 0.5})
    words.update("fine", {"fine": 1.0})
    assert words.get() == pytest.approx(0.5)


@pytest.mark.parametrize("score", [-0.01, 1.01, math.nan, math.inf])
def test_what_is_no_probability_is_an_error_and_counts_nothing(score: float) -> None:
    metric = ECE()
    with pytest.raises(ValueError, match="not a probability"):
        metric.update(True, score)
    with pytest.raises(ValueError, match="not in"):
        metric.update(True, 0.5, w=-1.0)
    assert not metric.counts.values.any()


def test_bins_of_another_number_are_an_error() -> None:
    with pytest.raises(ValueError, match="7 equal-width bins do not fit"):
        ECE(ece_bins=7)
