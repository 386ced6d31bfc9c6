"""Models of several classes, one against the rest: their names, their ids, and scores that sum to 1.

A prediction of such a model is counted as one row per class, under the model ``<model>/<class>``, and an outcome as one
row per class: 1 for the class it names, 0 for the others. Everything behind the codec then works per class as for any
other model.

Rows of a class have an id of their own: the id's hash, altered by the class and its class set. An outcome that names no
model so finds exactly the rows of its class, in models with the same classes, and one of a model with a single score
finds none of them. With one id for all classes each of K outcome rows would be held against K prediction rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.values import hash_ids

__all__ = ["NO_CLASSES", "ClassSets", "Classes", "class_model", "class_salts", "normalised", "normalised_rows"]

Classes = tuple[str, ...]
"""Names in the order in which scores are added up; empty: the model has one score."""

Floats = NDArray[np.float64]


def class_model(model: str, name: str) -> str:
    """The model under which one class is counted, fitted and published.

    >>> class_model("digits", "7")
    'digits/7'
    """
    return f"{model}/{name}"


@dataclass(frozen=True)
class ClassSets:
    """Which classes each model has.

    Guarantee: ``<model>/<class>`` is the name of at most one pair, as class names hold no slash.

    Attributes
    ----------
    usual : tuple of str
        Of the models not in `of_model`; empty: they have one score.
    of_model : mapping of str to tuple of str

    Examples
    --------
    >>> sets = ClassSets(of_model={"pets": ("cat", "dog")})
    >>> sets.of("pets"), sets.of("ctr"), sets.parent("pets/cat"), sets.parent("pets/cow")
    (('cat', 'dog'), (), 'pets', None)
    """

    usual: Classes = ()
    of_model: Mapping[str, Classes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.sets)

    def of(self, model: str) -> Classes:
        """The classes of a model."""
        return self.of_model.get(model, self.usual)

    def parent(self, model: str) -> str | None:
        """The model of which `model` is one class, or None."""
        parent, slash, name = model.rpartition("/")
        return parent if slash and name in self.of(parent) else None

    def counted(self, models: Iterable[str]) -> list[str]:
        """Names under which `models` are counted: their classes', or their own."""
        found: dict[str, None] = {}
        for model in models:
            classes = () if self.parent(model) is not None else self.of(model)
            found |= dict.fromkeys([class_model(model, name) for name in classes] or [model])
        return list(found)

    @cached_property
    def sets(self) -> tuple[Classes, ...]:
        """The distinct class sets."""
        return tuple(dict.fromkeys(classes for classes in (self.usual, *self.of_model.values()) if classes))

    @cached_property
    def names(self) -> Classes:
        """Every class of any model, once."""
        return tuple(dict.fromkeys(name for classes in self.sets for name in classes))

    @property
    def single_scores(self) -> bool:
        """Whether a model can have one score."""
        return not self.usual or not all(self.of_model.values())


NO_CLASSES: Final = ClassSets()
"""Every model has one score."""


def class_salts(classes: Classes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """What the two words of an id's hash are combined with (exclusive or) for each class, in any order of the set."""
    # Names of classes hold no control characters.
    together = "\x1f".join(sorted(classes))
    return hash_ids([f"{name}\x1f{together}" for name in classes])


def normalised(columns: Sequence[Floats]) -> list[Floats]:
    """Columns divided by their sum, row by row; new arrays.

    Parameters
    ----------
    columns : sequence of float64[n]
        At least one; finite, not below 0. Added in their order, so that whoever adds the same gets the same bits.

    Raises
    ------
    ValueError
        If a row's scores are all 0.

    Examples
    --------
    >>> [column.tolist() for column in normalised([np.array([1.0, 0.5]), np.array([3.0, 0.5])])]
    [[0.25, 0.5], [0.75, 0.5]]
    """
    total = columns[0].copy()
    for column in columns[1:]:
        total += column
    if not (total > 0.0).all():
        raise ValueError(f"the scores of row {int(np.flatnonzero(~(total > 0.0))[0])} are 0 for every class")
    # Subnormal scores divide like any others; of a sum of at least one score no quotient exceeds 1.
    return [column / total for column in columns]


def normalised_rows(scores: Floats, record: NDArray[np.int64]) -> Floats:
    """Scores divided by the sum over the rows of their record; a record of one row keeps its score.

    Parameters
    ----------
    scores : float64[n]
    record : int64[n]
        From 0 up; the rows of a record stand together, its classes in their order.

    Examples
    --------
    >>> normalised_rows(np.array([0.2, 0.5, 0.75]), np.array([0, 1, 1])).tolist()
    [0.2, 0.4, 0.6]
    """
    first = np.flatnonzero(np.diff(record, prepend=-1))
    size = np.diff(first, append=len(record))
    result = scores.copy()
    for count in np.unique(size[size > 1]).tolist():
        at = first[size == count] + np.arange(count)[:, None]
        result[at] = np.stack(normalised(list(scores[at])))
    return result
