from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_sample_weight

from streamcal.maps.document import decode, encode
from streamcal.runtime.config import load_config
from streamcal.sklearn import PriorCalibratedClassifier, UnknownWeightError
from streamcal.transform import CalibrationTransformer, FileSource

FROZEN = json.loads(Path(__file__).with_name("imbalanced_calibrate.json").read_text(encoding="utf-8"))["cases"]


def rows(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(20130101)
    X = rng.normal(size=(n, 3))
    z = X @ np.array([1.0, -0.5, 0.25]) - 3.0
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)


X, Y = rows()
NEGATIVES, POSITIVES = 3678, 322


class Boosted(LogisticRegression):
    """What a booster looks like from outside: a weight on positives, and no class_weight."""

    def __init__(self, scale_pos_weight: float | None = None) -> None:
        super().__init__()
        self.scale_pos_weight = scale_pos_weight

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"scale_pos_weight": self.scale_pos_weight}

    def fit(self, X: np.ndarray, y: np.ndarray) -> Boosted:
        return super().fit(X, y, np.where(y == 1, self.scale_pos_weight or 1.0, 1.0))


class Fixed(ClassifierMixin, BaseEstimator):
    """Gives one probability."""

    def __init__(self, p: float, scale_pos_weight: float = 1.0) -> None:
        self.p = p
        self.scale_pos_weight = scale_pos_weight

    def fit(self, X: np.ndarray, y: np.ndarray) -> Fixed:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.tile([1 - self.p, self.p], (len(X), 1))


def resampled(*samplers: Any, last: Any = None) -> Any:
    from imblearn.pipeline import make_pipeline as imbalanced_pipeline

    return imbalanced_pipeline(*samplers, LogisticRegression() if last is None else last)


def random_samplers() -> tuple[Any, Any]:
    from imblearn.over_sampling import RandomOverSampler
    from imblearn.under_sampling import RandomUnderSampler

    return RandomOverSampler, RandomUnderSampler


# --- the numbers -------------------------------------------------------------------------------------------------


def test_scale_pos_weight_30_makes_point_6_into_point_047619() -> None:
    fitted = PriorCalibratedClassifier(Fixed(0.6, scale_pos_weight=30)).fit(X, Y)
    np.testing.assert_allclose(fitted.predict_proba(X[:1]), [[1 - 0.047619, 0.047619]], atol=5e-7)
    assert fitted.predict(X[:1]).tolist() == [0]


def test_one_in_ten_negatives_kept_is_a_weight_of_ten() -> None:
    fitted = PriorCalibratedClassifier(Fixed(0.0917), weight=10).fit(X, Y)
    assert fitted.predict_proba(X[:1])[0, 1] == pytest.approx(0.01, abs=2e-5)


@pytest.mark.parametrize("case", FROZEN)
def test_agrees_with_imbalanced_calibrate_where_both_apply(case: str) -> None:
    over, under = random_samplers()
    estimator = {
        "class_weight dict": LogisticRegression(class_weight={0: 1, 1: 5}),
        "class_weight balanced": LogisticRegression(class_weight="balanced"),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression(class_weight={0: 0.5, 1: 10})),
        "undersampled": resampled(under(sampling_strategy=0.5, random_state=7)),
        "oversampled": resampled(over(sampling_strategy=0.5, random_state=7)),
        "natural": LogisticRegression(),
    }[case]
    fitted = PriorCalibratedClassifier(estimator).fit(X, Y)
    assert fitted.weight_ == pytest.approx(FROZEN[case]["weight"], rel=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(X[:5])[:, 1], FROZEN[case]["p"], rtol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(class_weight="balanced"), LogisticRegression(class_weight={1: 20}), Boosted(30.0)],
    ids=["balanced", "dict", "scale_pos_weight"],
)
def test_the_mean_prediction_meets_the_base_rate_again(estimator: Any) -> None:
    fitted = PriorCalibratedClassifier(estimator).fit(X, Y)
    assert fitted.estimator_.predict_proba(X)[:, 1].mean() > 0.25
    assert fitted.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=0.03)


# --- inference ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "weight", "source"),
    [
        (LogisticRegression(class_weight={0: 2, 1: 6}), 3.0, "class_weight"),
        (LogisticRegression(class_weight={1: 4}), 4.0, "class_weight"),
        (RandomForestClassifier(5, class_weight="balanced_subsample"), NEGATIVES / POSITIVES, "class_weight"),
        (RandomForestClassifier(5), 1.0, "class_weight"),
        (Boosted(30), 30.0, "scale_pos_weight"),
        (Boosted(None), 1.0, "scale_pos_weight"),
        (make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Boosted(7))), 7.0, "scale_pos_weight"),
        (GridSearchCV(LogisticRegression(class_weight={1: 4}), {"C": [0.1, 1]}, cv=2), 4.0, "class_weight"),
    ],
)
def test_the_weight_is_read_off_the_estimator(estimator: Any, weight: float, source: str) -> None:
    fitted = PriorCalibratedClassifier(estimator).fit(X, Y)
    assert fitted.weight_ == pytest.approx(weight)
    assert fitted.weight_source_ == source


def test_several_samplers_multiply_and_balancing_counts_what_it_was_given() -> None:
    over, under = random_samplers()
    both = over(sampling_strategy=0.2, random_state=0), under(sampling_strategy=0.5, random_state=0)
    natural = NEGATIVES / POSITIVES
    # .2 and .5 are positives by negatives after each step, in whole rows
    assert PriorCalibratedClassifier(resampled(*both)).fit(X, Y).weight_ == pytest.approx(0.5 * natural, rel=1e-3)
    balanced = resampled(*both, last=LogisticRegression(class_weight="balanced"))
    fitted = PriorCalibratedClassifier(balanced).fit(X, Y)
    assert fitted.weight_ == pytest.approx(natural)
    assert fitted.weight_source_ == "RandomOverSampler and RandomUnderSampler and class_weight"
    assert fitted.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=0.03)


def test_a_sampler_speaks_for_a_classifier_without_weights() -> None:
    _, under = random_samplers()
    fitted = PriorCalibratedClassifier(resampled(under(random_state=0), last=GaussianNB())).fit(X, Y)
    assert fitted.weight_ == pytest.approx(NEGATIVES / POSITIVES)


def test_sample_weights_of_one_number_per_class_are_counted() -> None:
    balanced = compute_sample_weight("balanced", Y)
    fitted = PriorCalibratedClassifier(LogisticRegression()).fit(X, Y, sample_weight=balanced)
    assert fitted.weight_ == pytest.approx(NEGATIVES / POSITIVES)
    assert fitted.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=0.03)
    in_steps = PriorCalibratedClassifier(make_pipeline(StandardScaler(), LogisticRegression(class_weight={1: 2})))
    in_steps.fit(X, Y, logisticregression__sample_weight=np.where(Y == 1, 3.0, 1.0))
    assert in_steps.weight_ == pytest.approx(6.0)
    alike = PriorCalibratedClassifier(LogisticRegression()).fit(X, Y, sample_weight=np.full(len(Y), 7.0))
    assert alike.weight_ == 1.0


FEW = 600


def refusals() -> list[Any]:
    varied = np.random.default_rng(0).uniform(1, 2, FEW)
    balanced = compute_sample_weight("balanced", Y[:FEW])
    per_class = "with a balanced class_weight"
    return [
        pytest.param(LogisticRegression(), {"sample_weight": varied}, "varies within a class", id="varied"),
        pytest.param(LogisticRegression(class_weight="balanced"), {"sample_weight": balanced}, per_class, id="twice"),
        pytest.param(LogisticRegression(class_weight={0: 0, 1: 1}), {}, "must be above 0", id="zero"),
        pytest.param(GaussianNB(), {}, "GaussianNB has no parameter", id="no parameter"),
        pytest.param(BaggingClassifier(LogisticRegression(class_weight="balanced"), 2), {}, "Bagging", id="ensemble"),
        pytest.param(SVC(probability=True, class_weight="balanced"), {}, "SVC fits its probabilities", id="SVC"),
        pytest.param(GaussianNB(priors=[0.5, 0.5]), {}, "class shares of its own", id="priors"),
        pytest.param(DummyClassifier(), {}, "DummyClassifier has no parameter", id="dummy"),
    ]


@pytest.mark.filterwarnings("ignore:The `probability` parameter:FutureWarning")  # of SVC, from scikit-learn 1.9 on
@pytest.mark.parametrize(("estimator", "fit_params", "reason"), refusals())
def test_what_cannot_be_inferred_is_refused_until_it_is_told(
    estimator: Any, fit_params: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnknownWeightError, match=reason) as caught:
        PriorCalibratedClassifier(estimator).fit(X[:FEW], Y[:FEW], **fit_params)
    assert "give weight= yourself" in str(caught.value)
    if "above 0" not in reason:
        assert PriorCalibratedClassifier(estimator, weight=2).fit(X[:FEW], Y[:FEW], **fit_params).weight_ == 2.0


def test_samplers_that_make_rows_are_refused() -> None:
    from imblearn.ensemble import BalancedRandomForestClassifier
    from imblearn.over_sampling import SMOTE

    over, _ = random_samplers()
    for pipeline in (resampled(SMOTE()), resampled(over(shrinkage=0.5)), BalancedRandomForestClassifier(2)):
        with pytest.raises(UnknownWeightError):
            PriorCalibratedClassifier(pipeline).fit(X, Y)


@pytest.mark.parametrize("weight", [5, 5.0, np.int64(5), np.float32(5)])
def test_whole_numbers_are_weights(weight: Any) -> None:
    fitted = PriorCalibratedClassifier(LogisticRegression(class_weight="balanced"), weight=weight).fit(X, Y)
    assert (fitted.weight_, fitted.weight_source_) == (5.0, "given")


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), True, "5"])
def test_what_is_no_weight_is_an_error(weight: Any) -> None:
    with pytest.raises(ValueError, match="not a finite number above 0"):
        PriorCalibratedClassifier(LogisticRegression(), weight=weight).fit(X, Y)


def test_a_classifier_without_probabilities_is_an_error() -> None:
    with pytest.raises(TypeError, match="RidgeClassifier has no predict_proba"):
        PriorCalibratedClassifier(RidgeClassifier()).fit(X, Y)


# --- as an estimator ---------------------------------------------------------------------------------------------


def test_labels_may_be_words_and_the_second_is_the_positive_one() -> None:
    words = np.where(Y == 1, "fraud", "all right")
    fitted = PriorCalibratedClassifier(LogisticRegression(class_weight={"fraud": 8})).fit(X, words)
    assert fitted.weight_ == 8.0
    assert fitted.classes_.tolist() == ["all right", "fraud"]
    assert set(fitted.predict(X)) <= {"all right", "fraud"}


def test_it_works_inside_cross_validation_and_survives_pickling() -> None:
    estimator = PriorCalibratedClassifier(LogisticRegression(class_weight="balanced"))
    held_out = cross_val_predict(estimator, X, Y, cv=3, method="predict_proba")
    assert held_out[:, 1].mean() == pytest.approx(Y.mean(), rel=0.05)
    fitted = clone(estimator).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict_proba(X) == fitted.predict_proba(X)).all()
    assert not hasattr(estimator.estimator, "coef_")


def test_metadata_routing_hands_sample_weights_on() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = PriorCalibratedClassifier(LogisticRegression().set_fit_request(sample_weight=True))
        fitted = estimator.fit(X, Y, sample_weight=np.where(Y == 1, 4.0, 1.0))
    assert fitted.weight_ == pytest.approx(4.0)
    plain = PriorCalibratedClassifier(LogisticRegression()).fit(X, Y, sample_weight=np.where(Y == 1, 4.0, 1.0))
    np.testing.assert_array_equal(fitted.predict_proba(X), plain.predict_proba(X))


# --- day 0 -------------------------------------------------------------------------------------------------------


def test_the_exported_map_serves_what_the_classifier_predicts(tmp_path: Path) -> None:
    fitted = PriorCalibratedClassifier(LogisticRegression(class_weight="balanced")).fit(X, Y)
    path = tmp_path / "map.json"
    path.write_bytes(encode(fitted.map_document(model="churn")))
    document = decode(path.read_bytes())
    assert (document.model, document.family, document.fit_window) == ("churn", "prior", None)
    raw = fitted.estimator_.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(document.to_map().apply(raw), fitted.predict_proba(X)[:, 1])
    with CalibrationTransformer(FileSource(path)) as transformer:
        assert transformer.wait_caught_up(30.0)
        served, version = transformer.transform(float(raw[0]), model="churn")
    assert (served, version) == (fitted.predict_proba(X)[0, 1], 1)


def test_the_prior_is_what_the_configuration_takes(tmp_path: Path) -> None:
    fitted = PriorCalibratedClassifier(LogisticRegression(class_weight={1: 20})).fit(X, Y)
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"models": {"churn": {"prior": fitted.prior()}}}), encoding="utf-8")
    prior = load_config(path, environ={}, require_kafka=False).models["churn"].prior
    assert prior is not None
    assert prior.positive_weight == 20.0
