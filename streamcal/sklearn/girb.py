"""A classifier whose probabilities go through a grouped isotonic map learnt on rows it was not fitted on."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter, validate_data

from streamcal.maps.document import Counts, MapDocument, new_document
from streamcal.maps.families import Identity, Map
from streamcal.maps.fit import fit_platt
from streamcal.maps.fit_girb import GirbSettings, fit_girb
from streamcal.sklearn.targets import check_labels
from streamcal.stats.counts import PLAIN, WEIGHTED, contributions
from streamcal.stats.layout import N_BINS

__all__ = ["GIRBCalibrator"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_WEIGHT: Final = 1000.0
"""As `events.max_weight`: sums of larger weights could leave the counts' range."""


class GIRBCalibrator(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Group the scores, pool group rates until they rise, join them by straight lines.

    The map is `streamcal.maps.fit_girb`'s, from the same 284-bin counts as live refits. It is fitted on out-of-fold
    scores, or, for a `FrozenEstimator`, on the scores of the rows given. Several classes are one map each against the
    rest, normalised to sum 1.

    Parameters
    ----------
    estimator : estimator, default=None
        Classifier with ``predict_proba``; None is `LogisticRegression()`. `sklearn.frozen.FrozenEstimator(model)` is
        used as it is: then give ``fit`` rows that the model has not seen.
    groups : int or {"size", "cross_validation"}, default="size"
        Number of groups: given, by the number of rows (10 to 50), or with least log loss on left-out fifths. Never
        more than a tenth of the rows of the scarcer class.
    grouping : {"count", "width"}, default="count"
        Groups of equal count or of equal width.
    min_count : int, default=50
        Rows a group holds at least; smaller ones join the next.
    strength : float, default=1
        Smoothing: rows of the scarcer class that a group's Platt estimate is worth; 0 is none.
    cv : int, cross-validation generator or iterable, default=5
        Folds of the out-of-fold scores; stratified and in the order of the rows where it is a number.
    fallback : {"platt", "raise"}, default="platt"
        What to do where there are too few labels for groups, or rates do not rise: Platt scaling (and where even
        that would reverse the ranking, no map), or a `ValueError`. `families_` tells.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on all rows.
    maps_ : list of Map
        One per class, for two classes that of the second alone.
    families_ : list of str
        Their families: ``girb``, or ``platt`` or ``identity`` where groups could not be fitted.
    classes_ : ndarray
    n_features_in_, feature_names_in_
        As the input has them.

    Notes
    -----
    Prefer Platt scaling below about 10,000 rows and for events rarer than .1 %: there this estimator has few groups,
    and they are drawn towards the Platt fit. Later rows tell whether the map helps, never those it was fitted on.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 1))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))
    >>> calibrated = GIRBCalibrator(groups=5).fit(X, y)
    >>> calibrated.families_
    ['girb']
    >>> bool((np.diff(calibrated.predict_proba([[-1.0], [0.0], [1.0]])[:, 1]) > 0).all())
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        groups: int | Literal["size", "cross_validation"] = "size",
        grouping: Literal["count", "width"] = "count",
        min_count: int = 50,
        strength: float = 1.0,
        cv: Any = 5,
        fallback: Literal["platt", "raise"] = "platt",
    ) -> None:
        self.estimator = estimator
        self.groups = groups
        self.grouping = grouping
        self.min_count = min_count
        self.strength = strength
        self.cv = cv
        self.fallback = fallback

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the sub-estimator on all rows, and the maps on scores of rows it had not seen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Whatever the sub-estimator takes.
        y : array-like of shape (n_samples,)
            Labels of two or more classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights from 0 to 1000, for the maps, and for the sub-estimator if it takes them.

        Raises
        ------
        ValueError
            If a parameter or the input is not as said, or, with ``fallback="raise"``, where groups cannot be fitted.
        TypeError
            If the sub-estimator gives no probabilities.
        """
        settings = self._settings()
        validate_data(self, X, y, skip_check_array=True)
        targets = check_labels(y, binary=False)
        labels, self.classes_ = targets.y, targets.classes
        weight = None if sample_weight is None else _weights(sample_weight, X)
        scores = self._scores(X, labels, weight)
        targets.check_known_by(self.estimator_)
        codes = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        self.maps_ = [self._map(scores[:, k], labels == self.classes_[k], weight, settings) for k in codes]
        self.families_ = [map_.family for map_ in self.maps_]
        self.counts_ = Counts(len(labels), int(np.count_nonzero(labels == self.classes_[1])))
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Calibrated probabilities, float64 of shape (n_samples, n_classes), in the order of `classes_`."""
        check_is_fitted(self)
        raw = _probabilities(self.estimator_.predict_proba(X), self.estimator_)
        if len(self.maps_) == 1:
            served = self.maps_[0].apply(raw[:, 1])
            return np.column_stack([1.0 - served, served])
        each = np.column_stack([map_.apply(raw[:, k]) for k, map_ in enumerate(self.maps_)])
        each /= each.sum(axis=1, keepdims=True)  # above 0: every map answers above 0
        return each

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the largest calibrated probability."""
        column = self.predict_proba(X).argmax(axis=1)
        return self.classes_[column]  # type: ignore[no-any-return]

    def map_document(self, model: str = "default", version: int = 1) -> MapDocument:
        """The map as a document, for ``prior: {map_file: ...}`` or the maps topic.

        Raises
        ------
        ValueError
            If there are more than two classes: a stream carries one score.
        """
        check_is_fitted(self)
        if len(self.maps_) != 1:
            raise ValueError(f"{len(self.classes_)} classes have a map each; a map document holds one")
        return new_document(model, version, self.maps_[0], at_ms=0, counts=self.counts_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._unfitted()).input_tags
        return tags

    def _unfitted(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _settings(self) -> GirbSettings:
        if self.fallback not in {"platt", "raise"}:
            raise ValueError(f"fallback {self.fallback!r} is neither 'platt' nor 'raise'")
        if self.grouping not in {"count", "width"}:
            raise ValueError(f"grouping {self.grouping!r} is neither 'count' nor 'width'")
        groups: Any = self.groups  # anything: scikit-learn's estimators take what they are given until fit
        groups = int(groups) if isinstance(groups, Integral) else groups
        if not isinstance(groups, int) and groups not in {"size", "cross_validation"}:
            raise ValueError(f"groups {groups!r} is neither a whole number, nor 'size' nor 'cross_validation'")
        return GirbSettings(self.grouping, groups, self.min_count, self.strength)

    def _scores(self, X: Any, labels: NDArray[Any], weight: Floats | None) -> Floats:
        """Fit `estimator_`; scores of every row from a model that had not seen it."""
        estimator = self._unfitted()
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(f"{type(estimator).__name__} has no predict_proba: there are no probabilities to calibrate")
        if isinstance(estimator, FrozenEstimator):
            self.estimator_ = estimator
            return _probabilities(estimator.predict_proba(X), estimator)
        passed = (
            {} if weight is None or not has_fit_parameter(estimator, "sample_weight") else {"sample_weight": weight}
        )
        folds = check_cv(self._folds(labels), labels, classifier=True)
        scores = cross_val_predict(clone(estimator), X, labels, cv=folds, method="predict_proba", params=passed)
        self.estimator_ = clone(estimator).fit(X, labels, **passed)
        return _probabilities(scores, estimator)

    def _folds(self, labels: NDArray[Any]) -> Any:
        """`cv`, where it is a number no more than the rows of the rarest class."""
        if not isinstance(self.cv, Integral):
            return self.cv
        rarest = int(np.unique(labels, return_counts=True)[1].min())
        if rarest < 2:
            raise ValueError("every class needs two rows at least, so that one can be left out")
        return min(int(self.cv), rarest)

    def _map(self, score: Floats, label: NDArray[np.bool_], weight: Floats | None, settings: GirbSettings) -> Map:
        parts = _counts_by_fold(score, label, weight, settings.folds)
        counts = parts.sum(axis=0)
        platt = fit_platt(counts, Identity())
        prior: Map = Identity() if isinstance(platt, str) else platt
        fit = fit_girb(counts, prior, settings, parts)
        if not isinstance(fit, str):
            return fit
        if self.fallback == "raise":
            raise ValueError(f"no grouped isotonic map: {fit}; fallback='platt' would take Platt scaling")
        return prior


def _probabilities(given: ArrayLike, estimator: Any) -> Floats:
    """Scores in [0, 1], float64; single precision may leave them a little outside."""
    scores = np.asarray(given, dtype=np.float64)
    if not (np.abs(scores - 0.5) <= 0.5 + 1e-6).all():
        raise ValueError(
            f"{type(estimator).__name__}.predict_proba answers what is no probability: NaN, or outside [0, 1]"
        )
    return np.clip(scores, 0.0, 1.0)


def _counts_by_fold(score: Floats, label: NDArray[np.bool_], weight: Floats | None, folds: int) -> Ints:
    """The 284-bin counts of each fold, int64[folds, 284, K]; each class is dealt out row by row."""
    bins, values, _ = contributions(score, label, weight)
    fold = np.empty(len(score), dtype=np.intp)
    for side in (label, ~label):
        fold[side] = np.arange(np.count_nonzero(side)) % folds
    counts = np.zeros((folds, N_BINS, PLAIN if weight is None else WEIGHTED), dtype=np.int64)
    np.add.at(counts, (fold, bins), values)
    return counts


def _weights(sample_weight: ArrayLike, X: Any) -> Floats:
    weight: Floats = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if float(weight.max()) > MAX_WEIGHT:
        raise ValueError(f"sample_weight reaches {weight.max()!r}; up to {MAX_WEIGHT:.0f} are counted, divide them all")
    return weight
