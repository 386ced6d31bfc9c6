from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB

from streamcal.maps.document import decode, encode
from streamcal.sklearn import GIRBCalibrator

N = 40_000


def correlated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two features that say the same: naive Bayes counts it twice and is over-confident."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    X = np.column_stack([first, first + 0.1 * rng.normal(size=n)])
    return X, rng.random(n) < 1 / (1 + np.exp(-(first - 1)))


def three_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    first = rng.normal(size=n) + y
    return np.column_stack([first, first + 0.1 * rng.normal(size=n)]), np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def fitted() -> GIRBCalibrator:
    return GIRBCalibrator(GaussianNB()).fit(*correlated(N, 1))


def gap(p: np.ndarray, y: np.ndarray) -> float:
    """ECE over ten equal-width bins."""
    which = np.minimum((p * 10).astype(int), 9)
    return sum(abs(np.sum(p[which == b] - y[which == b])) for b in range(10)) / len(p)


def test_later_rows_are_calibrated_and_their_order_is_kept(fitted: GIRBCalibrator) -> None:
    X, y = correlated(N, 2)
    raw, served = fitted.estimator_.predict_proba(X)[:, 1], fitted.predict_proba(X)[:, 1]
    assert gap(raw, y) > 0.05
    assert gap(served, y) < 0.012
    assert log_loss(y, served) < log_loss(y, raw) - 0.02
    assert (np.diff(served[np.argsort(raw)]) >= 0).all()
    assert served.min() > 0
    assert served.max() < 1


def test_it_is_near_isotonic_regression_on_the_rows_themselves(fitted: GIRBCalibrator) -> None:
    X, y = correlated(N, 1)
    held_out = cross_val_predict(GaussianNB(), X, y, cv=5, method="predict_proba")[:, 1]
    rows = IsotonicRegression(out_of_bounds="clip").fit(held_out, y)
    raw = fitted.estimator_.predict_proba(X)[:, 1]
    assert np.abs(rows.predict(raw) - fitted.predict_proba(X)[:, 1]).mean() < 0.015


def test_groups_are_of_equal_count_and_their_values_are_the_observed_rates() -> None:
    # ten scores, one a group; the observed rates rise, so that nothing is pooled
    scores = np.repeat(np.arange(0.05, 1, 0.1), 400)
    rates = np.repeat([0.02, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 0.97], 400)
    y = (np.arange(4000) % 400) < np.rint(rates * 400)
    frozen = FrozenEstimator(Scores().fit(scores[:, None], y))
    fitted = GIRBCalibrator(frozen, groups=10, strength=0).fit(scores[:, None], y)
    np.testing.assert_allclose(fitted.maps_[0].scores, np.arange(0.05, 1, 0.1), rtol=1e-9)
    np.testing.assert_allclose(fitted.maps_[0].values, rates[::400], rtol=1e-9)
    between = fitted.predict_proba([[0.1], [0.001], [0.999]])[:, 1]
    np.testing.assert_allclose(between, [0.06, 0.02, 0.97], rtol=1e-6)


class Scores(GaussianNB):
    """Takes the one feature for the probability."""

    def predict_proba(self, X: Any) -> np.ndarray:
        p = np.asarray(X, dtype=float)[:, 0]
        return np.column_stack([1 - p, p])


def test_cross_validation_takes_few_groups_where_more_would_be_noise() -> None:
    X, y = correlated(4_000, 3)
    by_size = GIRBCalibrator(GaussianNB(), groups=50, min_count=1, strength=0).fit(X, y)
    chosen = GIRBCalibrator(GaussianNB(), groups="cross_validation", min_count=1, strength=0).fit(X, y)
    assert len(chosen.maps_[0].scores) < len(by_size.maps_[0].scores)


def test_three_classes_have_a_map_each_and_sum_to_one() -> None:
    fitted = GIRBCalibrator(GaussianNB()).fit(*three_classes(6_000, 4))
    X, y = three_classes(6_000, 5)
    served = fitted.predict_proba(X)
    np.testing.assert_allclose(served.sum(axis=1), 1.0, rtol=1e-12)
    assert fitted.families_ == ["girb"] * 3
    assert log_loss(y, served) < log_loss(y, fitted.estimator_.predict_proba(X))
    assert set(fitted.predict(X)) == {"a", "b", "c"}
    with pytest.raises(ValueError, match="3 classes have a map each"):
        fitted.map_document()


def test_with_few_labels_it_is_platt_scaling_or_an_error() -> None:
    X, y = correlated(60, 6)
    assert GIRBCalibrator(GaussianNB()).fit(X, y).families_ == ["platt"]
    with pytest.raises(ValueError, match="too_few_labels"):
        GIRBCalibrator(GaussianNB(), fallback="raise").fit(X, y)


def test_a_frozen_model_is_left_as_it_is() -> None:
    model = GaussianNB().fit(*correlated(2_000, 7))
    fitted = GIRBCalibrator(FrozenEstimator(model)).fit(*correlated(20_000, 8))
    X, y = correlated(20_000, 9)
    assert fitted.estimator_.estimator is model
    assert gap(fitted.predict_proba(X)[:, 1], y) < 0.02
    with pytest.raises(ValueError, match="knows the classes"):
        GIRBCalibrator(FrozenEstimator(model)).fit(*three_classes(300, 1))


def test_weights_count() -> None:
    X, y = correlated(20_000, 10)
    heavy = GIRBCalibrator(GaussianNB()).fit(X, y, sample_weight=np.where(y, 3.0, 1.0))
    odds = lambda p: p / (1 - p)  # noqa: E731 -- a formula
    plain = GIRBCalibrator(GaussianNB()).fit(X, y)
    times = odds(heavy.predict_proba(X)[:, 1].mean()) / odds(plain.predict_proba(X)[:, 1].mean())
    assert 2.0 < times < 3.5
    with pytest.raises(ValueError, match="divide them all"):
        GIRBCalibrator().fit(X, y, sample_weight=np.full(len(y), 1e6))


def test_a_search_over_its_parameters_works() -> None:
    X, y = correlated(2_000, 12)
    search = GridSearchCV(GIRBCalibrator(GaussianNB()), {"groups": np.array([3, 8])}, cv=2, scoring="neg_log_loss")
    assert search.fit(X, y).best_estimator_.families_ == ["girb"]


def test_what_is_no_probability_is_an_error() -> None:
    X, y = correlated(200, 13)
    with pytest.raises(ValueError, match=r"predict_proba answers what is no probability"):
        GIRBCalibrator(FrozenEstimator(Broken().fit(X, y))).fit(X, y)


class Broken(GaussianNB):
    def predict_proba(self, X: Any) -> np.ndarray:
        return np.full((len(X), 2), np.nan)


@pytest.mark.parametrize(
    "bad",
    [{"groups": 1}, {"groups": "many"}, {"grouping": "area"}, {"fallback": "guess"}, {"min_count": 0}],
)
def test_a_wrong_parameter_is_an_error_at_fit(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"group|many|area|guess|min_count"):
        GIRBCalibrator(**bad).fit(*correlated(200, 0))


def test_a_classifier_without_probabilities_is_an_error() -> None:
    with pytest.raises(TypeError, match="no predict_proba"):
        GIRBCalibrator(RidgeClassifier()).fit(*correlated(200, 0))


def test_the_map_is_exported_and_the_estimator_survives_pickling() -> None:
    X, y = correlated(4_000, 11)
    fitted = GIRBCalibrator(LogisticRegression()).fit(X, y)
    document = decode(encode(fitted.map_document("churn", version=3)))
    assert (document.model, document.version, document.family) == ("churn", 3, "girb")
    assert document.counts.n == 4_000
    raw = fitted.estimator_.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(document.to_map().apply(raw), fitted.predict_proba(X)[:, 1])
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
