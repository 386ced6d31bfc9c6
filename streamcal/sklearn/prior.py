"""A classifier whose probabilities are put right after training on altered class shares."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, validate_data

from streamcal.maps.document import MapDocument, new_document
from streamcal.maps.families import Prior
from streamcal.sklearn.targets import check_labels
from streamcal.sklearn.weights import Weight, infer_weight

__all__ = ["PriorCalibratedClassifier"]

Floats = NDArray[np.float64]


class PriorCalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Undo class weights and random resampling: p = p_w / (p_w + w (1 - p_w)).

    A weight w on positives, positives repeated w times and negatives kept with rate 1/w multiply the odds by w; this
    divides by it again. Nothing is fitted to do so and the ranking stays. It is exact where the sub-estimator's
    probabilities are right on the altered data.

    Parameters
    ----------
    estimator : estimator, default=None
        Binary classifier with ``predict_proba``, or a pipeline (scikit-learn's or imbalanced-learn's) or search that
        ends in one; None is `LogisticRegression()`.
    weight : float, default=None
        w, above 0; whole numbers are as good as others. None: inferred at ``fit`` as `streamcal.sklearn.weights` says.

    Attributes
    ----------
    estimator_ : estimator
        The fitted sub-estimator, uncorrected.
    weight_ : float
        w in use.
    weight_source_ : str
        What w was read from; ``given`` where it is the parameter.
    classes_ : ndarray of shape (2,)
        The positive class is the second.
    n_features_in_, feature_names_in_
        As the input has them.

    Notes
    -----
    Probabilities are the product's `prior` map of the raw ones, so they lie within [1e-7, 1 - 1e-7] and equal what a
    transformer serves from `map_document`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y = np.zeros((10, 1)), np.array([0] * 6 + [1] * 4)
    >>> even = PriorCalibratedClassifier(DummyClassifier(), weight=2).fit(X, y)
    >>> even.predict_proba(X[:1]).round(4).tolist()
    [[0.75, 0.25]]
    >>> even.prior()
    {'positive_weight': 2.0}
    """

    def __init__(self, estimator: Any = None, *, weight: float | None = None) -> None:
        self.estimator = estimator
        self.weight = weight

    def fit(self, X: Any, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the sub-estimator on all rows, and find out w.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Whatever the sub-estimator takes.
        y : array-like of shape (n_samples,)
            Labels of two classes.
        **fit_params
            Passed on. ``sample_weight`` (also as ``step__sample_weight``) counts as part of w where it is one number
            per class.

        Raises
        ------
        UnknownWeightError
            If `weight` is None and w cannot be inferred.
        ValueError
            If `weight` or `y` is not as said.
        TypeError
            If the sub-estimator gives no probabilities.
        """
        told = _checked(self.weight)
        validate_data(self, X, y, skip_check_array=True)
        targets = check_labels(y, binary=True)
        estimator = clone(self._unfitted())
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(f"{type(estimator).__name__} has no predict_proba: there are no probabilities to correct")
        routed = process_routing(self, "fit", **fit_params).estimator.fit if _routing() else fit_params
        self.estimator_ = estimator.fit(X, targets.y, **routed)
        targets.check_known_by(self.estimator_)
        self.classes_ = targets.classes
        found = told or infer_weight(self.estimator_, targets, fit_params)
        self.weight_, self.weight_source_ = found.value, found.source
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Corrected probabilities, float64 of shape (n_samples, 2), in the order of `classes_`."""
        check_is_fitted(self)
        raw = np.asarray(self.estimator_.predict_proba(X)[:, 1], dtype=np.float64)
        served = self.to_map().apply(raw)
        return np.column_stack([1.0 - served, served])

    def predict(self, X: Any) -> NDArray[Any]:
        """The class that is more probable after the correction."""
        column = self.predict_proba(X).argmax(axis=1)
        return self.classes_[column]  # type: ignore[no-any-return]

    def to_map(self) -> Prior:
        """The correction as a map of the product."""
        check_is_fitted(self)
        return Prior(positive_weight=self.weight_)

    def prior(self) -> dict[str, float]:
        """What ``models.<name>.prior`` of the daemon's configuration takes."""
        return dict(self.to_map().parameters())  # type: ignore[arg-type]  # this family has numbers only

    def map_document(self, model: str = "default", version: int = 1) -> MapDocument:
        """The correction as a map document, for ``prior: {map_file: ...}`` or the maps topic.

        Parameters
        ----------
        model : str
            Name the model's events carry.
        version : int
            At least 1.

        Examples
        --------
        `streamcal.maps.document.encode` gives the bytes to write to a file.
        """
        return new_document(model, version, self.to_map(), at_ms=0)

    def get_metadata_routing(self) -> MetadataRouter:
        """Parameters of ``fit`` go to the sub-estimator's ``fit``."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(estimator=self._unfitted(), method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags = get_tags(self._unfitted()).input_tags
        return tags

    def _unfitted(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator


def _routing() -> bool:
    return bool(get_config()["enable_metadata_routing"])


def _checked(weight: Any) -> Weight | None:
    if weight is None:
        return None
    if isinstance(weight, bool | np.bool_) or not isinstance(weight, Real) or not 0.0 < float(weight) < math.inf:
        raise ValueError(f"weight {weight!r} is not a finite number above 0")
    return Weight(float(weight), "given")
