"""By how much training multiplied the odds of the positive class, read off a fitted estimator.

Theory of operation. A weight w on positives, positives repeated w times and negatives kept with rate 1/w all multiply
the odds by w, and factors of independent causes multiply. The reference is the data given to ``fit``: what they say of
the class shares is taken as true. Causes looked for:

- random resampling by the samplers of an imbalanced-learn pipeline, as counts before and after each;
- what the classifier was told (balancing counts the rows it was given): ``class_weight``, ``scale_pos_weight``
  (XGBoost, LightGBM, CatBoost), LightGBM's ``is_unbalance``, CatBoost's ``class_weights`` and ``auto_class_weights``;
- sample weights that are one number for each class.

What does not act as one factor, or cannot be seen, is refused: synthetic samplers, resampling inside an ensemble,
weights that vary within a class, estimators with none of the parameters above. A factor of 1 in silence would be a
wrong answer.

The formula supposes that the classifier met the altered odds. Averages of trees do so only about, and boosted trees
stopped early not at all: their scores come out too low. What is left is for a fitted map to mend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from streamcal.sklearn.targets import Shares, Targets

__all__ = ["UnknownWeightError", "Weight", "infer_weight"]


class UnknownWeightError(ValueError):
    """The weight of the positive class in training cannot be known from the estimator; it has to be given."""


def _unknown(what: str) -> UnknownWeightError:
    return UnknownWeightError(f"{what}; give weight= yourself (1 where training did not change the odds)")


@dataclass(frozen=True, slots=True)
class Weight:
    """Factor on the odds, and the parameters or steps it was read from."""

    value: float
    source: str


def infer_weight(fitted: Any, targets: Targets, fit_params: Mapping[str, Any]) -> Weight:
    """Factor by which the fitted estimator's odds are too high.

    Parameters
    ----------
    fitted : estimator
        After ``fit(X, y, **fit_params)``: a classifier, a pipeline of scikit-learn or imbalanced-learn that ends in
        one, or a search over them that was refitted.
    targets : Targets
        What it was fitted on.
    fit_params : mapping
        The parameters of that call.

    Raises
    ------
    UnknownWeightError
        If the factor cannot be known.
    """
    before = targets.shares()
    classifier, shares, factors = _last_step(fitted, before)
    parameters = classifier.get_params(deep=False)
    factors += _sample_weights(parameters, targets, fit_params)
    told = _told(type(classifier).__name__, parameters, shares)
    if not told and not factors:
        raise _unknown(f"{type(classifier).__name__} has no parameter that says how it weighs classes")
    factors += told
    at_work = [factor for factor in factors if factor.value != 1.0] or factors[:1]
    return Weight(math.prod(factor.value for factor in at_work), " and ".join(factor.source for factor in at_work))


def _last_step(fitted: Any, shares: Shares) -> tuple[Any, Shares, list[Weight]]:
    """The classifier inside pipelines and searches, what it was given, and what samplers on the way did."""
    factors: list[Weight] = []
    while True:
        if hasattr(fitted, "best_estimator_"):
            fitted = fitted.best_estimator_
        elif isinstance(fitted, Pipeline):
            for _, step in fitted.steps[:-1]:
                if hasattr(step, "fit_resample"):
                    before, shares = shares, _resampled(step, shares)
                    factors.append(Weight(shares.odds / before.odds, type(step).__name__))
            fitted = fitted.steps[-1][1]
        else:
            return fitted, shares, factors


# --- resampling ------------------------------------------------------------------------------------------------


def _resampled(sampler: Any, shares: Shares) -> Shares:
    """What a plain random sampler made of the classes; only those keep the shape of the odds."""
    kind = _random_sampler(sampler)
    strategy = {_plain(label): int(count) for label, count in sampler.sampling_strategy_.items()}
    counts = dict(zip(shares.classes.tolist(), (shares.negatives, shares.positives), strict=True))
    if not strategy.keys() <= counts.keys():
        raise _unknown(f"{kind} resampled other labels than those of y: {sorted(strategy)}")
    for label, count in strategy.items():
        # The strategy of an over-sampler holds the rows it adds, that of an under-sampler the rows it keeps.
        counts[label] = counts[label] + count if kind == "RandomOverSampler" else count
    negatives, positives = counts.values()
    return Shares(shares.classes, negatives, positives)


def _random_sampler(sampler: Any) -> str:
    """Name of a plain random sampler of imbalanced-learn, which need not be installed."""
    kind = type(sampler)
    known = kind.__name__ in {"RandomOverSampler", "RandomUnderSampler"}
    if not (known and kind.__module__.startswith("imblearn.")):
        raise _unknown(f"{kind.__name__} does not multiply the odds by one factor")
    if getattr(sampler, "shrinkage", None) is not None:
        raise _unknown("RandomOverSampler with shrinkage makes rows that were not there")
    return kind.__name__


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


# --- parameters of the classifier --------------------------------------------------------------------------------


def _class_weight(value: Any, shares: Shares) -> float:
    """``class_weight``: None, a dict by label, or balanced; in a forest also by bootstrap sample."""
    if value is None:
        return 1.0
    if isinstance(value, str) and value in {"balanced", "balanced_subsample"}:
        # Each tree's bootstrap sample has these shares but for chance.
        return shares.balance
    if isinstance(value, Mapping):
        weights = {_plain(label): weight for label, weight in value.items()}
        negative, positive = (weights.get(label, 1.0) for label in shares.classes.tolist())
        return _ratio("class_weight", negative, positive)
    raise _unknown(f"class_weight {value!r} is neither a dict, nor 'balanced' or 'balanced_subsample'")


def _class_weights(value: Any, shares: Shares) -> float:
    """CatBoost's ``class_weights``: a list in the order of the classes, or a dict."""
    if value is None or isinstance(value, Mapping):
        return _class_weight(value, shares)
    negative, positive = value
    return _ratio("class_weights", negative, positive)


def _scale_pos_weight(value: Any, _: Shares) -> float:
    return 1.0 if value is None else _ratio("scale_pos_weight", 1.0, value)


def _is_unbalance(value: Any, shares: Shares) -> float:
    return shares.balance if value else 1.0


def _auto_class_weights(value: Any, shares: Shares) -> float:
    factors = {None: 1.0, "None": 1.0, "Balanced": shares.balance, "SqrtBalanced": math.sqrt(shares.balance)}
    if value not in factors:
        raise _unknown(f"auto_class_weights {value!r} is not known")
    return factors[value]


_TOLD: Final[Mapping[str, Callable[[Any, Shares], float]]] = {
    "class_weight": _class_weight,
    "class_weights": _class_weights,
    "auto_class_weights": _auto_class_weights,
    "scale_pos_weight": _scale_pos_weight,
    **dict.fromkeys(("is_unbalance", "unbalance", "unbalanced_sets"), _is_unbalance),
}
"""Parameter of a classifier to the factor its value stands for; the last three are one, by LightGBM's aliases."""

_OWN_PRIORS: Final[Mapping[str, Any]] = {
    "sampling_strategy": None,
    "priors": None,
    "class_prior": None,
    "fit_prior": True,
}
"""Parameters by which a classifier sets class shares itself, and the value with which it does not."""

_OWN_CALIBRATION: Final = frozenset({"SVC", "NuSVC"})
"""scikit-learn's classifiers whose `class_weight` their probabilities do not follow: at a base rate of .105, `SVC`
with balanced weights answers .104 on average, and the correction would make .014 of it."""


def _told(name: str, parameters: Mapping[str, Any], shares: Shares) -> list[Weight]:
    """Factors that the classifier's own parameters stand for, those of 1 too."""
    if name in _OWN_CALIBRATION and parameters["class_weight"] is not None:
        raise _unknown(f"{name} fits its probabilities on unweighted rows, so that class_weight hardly moves them")
    for key, neutral in _OWN_PRIORS.items():
        if key in parameters and parameters[key] is not neutral:
            raise _unknown(f"{name} with {key} sets class shares of its own")
    return [Weight(factor(parameters[key], shares), key) for key, factor in _TOLD.items() if key in parameters]


def _ratio(name: str, negative: Any, positive: Any) -> float:
    """Weight of positives over that of negatives.

    Raises UnknownWeightError where one of them trains on nothing: no factor brings that back.
    """
    if not (0.0 < float(negative) < math.inf and 0.0 < float(positive) < math.inf):
        raise _unknown(f"{name} weighs the classes {negative!r} and {positive!r}, which must be above 0")
    return float(positive) / float(negative)


# --- sample weights -----------------------------------------------------------------------------------------------


def _sample_weights(parameters: Mapping[str, Any], targets: Targets, fit_params: Mapping[str, Any]) -> Iterator[Weight]:
    """Sample weights that are one number per class; all alike they are no factor."""
    for key, value in fit_params.items():
        if value is None or not (key == "sample_weight" or key.endswith("__sample_weight")):
            continue
        factor = _per_class(key, np.asarray(value, dtype=np.float64), targets)
        if factor == 1.0:
            continue
        if parameters.get("class_weight") in ("balanced", "balanced_subsample"):
            # Releases and estimators differ in whether balancing counts rows or their weights.
            raise _unknown(f"{key} together with a balanced class_weight has no one meaning")
        yield Weight(factor, key)


def _per_class(key: str, weights: NDArray[np.float64], targets: Targets) -> float:
    if weights.shape != targets.y.shape:
        raise ValueError(f"{key} has shape {weights.shape}, y has {targets.y.shape}")
    of_class = [weights[targets.y == label] for label in targets.classes]
    if any(not np.allclose(own, own[0], rtol=1e-9, atol=0.0) for own in of_class):
        raise _unknown(f"{key} varies within a class, so that it does not act as one factor on the odds")
    negative, positive = (float(own[0]) for own in of_class)
    return 1.0 if math.isclose(negative, positive, rel_tol=1e-9) else _ratio(key, negative, positive)
