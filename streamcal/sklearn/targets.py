"""Labels as scikit-learn's estimators take them, and the rows of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

__all__ = ["Shares", "Targets", "check_labels"]


def check_labels(y: ArrayLike, *, binary: bool) -> Targets:
    """Labels of two classes or more, of exactly two where `binary`.

    Raises
    ------
    ValueError
        If they are not; the messages are those that scikit-learn's own checks ask for.
    """
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    kind = type_of_target(labels, input_name="y", raise_unknown=True)
    if binary and kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"y holds {len(labels)} rows of one class at most; two classes are needed")
    return Targets(labels, classes)


@dataclass(frozen=True, slots=True)
class Targets:
    """Labels and their classes in ascending order; of two the second is the positive one."""

    y: NDArray[Any]
    classes: NDArray[Any]

    def check_known_by(self, fitted: Any) -> None:
        """Raise ValueError unless the columns of the estimator's probabilities are these classes, in this order."""
        if not np.array_equal(fitted.classes_, self.classes):
            name = type(fitted).__name__
            raise ValueError(f"{name} knows the classes {list(fitted.classes_)}, y has {list(self.classes)}")

    def shares(self) -> Shares:
        """How many rows each of two classes has."""
        positives = int(np.count_nonzero(self.y == self.classes[1]))
        return Shares(self.classes, len(self.y) - positives, positives)


@dataclass(frozen=True, slots=True)
class Shares:
    """Rows of each class, as one step of a pipeline is given them."""

    classes: NDArray[Any]
    negatives: int
    positives: int

    @property
    def odds(self) -> float:
        """Positives by negatives."""
        return self.positives / self.negatives

    @property
    def balance(self) -> float:
        """The factor that makes both classes weigh the same."""
        return self.negatives / self.positives
