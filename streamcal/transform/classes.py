"""Scores of several classes in the shapes callers have them: a mapping by class, or an array with classes last.

`apply_classes` is the offline form; `CalibrationTransformer.transform_classes` does the same with the maps in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamcal.maps.classes import serve_classes
from streamcal.transform.scores import checked

if TYPE_CHECKING:
    from streamcal.maps.compiled import CompiledMap

__all__ = ["ClassScores", "apply_classes", "class_scores"]

Floats = NDArray[np.float64]


class ClassScores(NamedTuple):
    """Scores by class, and the shape to answer in.

    Attributes
    ----------
    names : tuple of str
    columns : list of float64[n]
        One for each class.
    shape : tuple of int
        Of the scores of one class; empty for one row.
    named : bool
        Whether the answer is a mapping by class.
    """

    names: tuple[str, ...]
    columns: list[Floats]
    shape: tuple[int, ...]
    named: bool

    def answer(self, columns: Sequence[Floats]) -> dict[str, Any] | Floats:
        """Columns in the shape in which the scores came."""
        if not self.named:
            return np.stack(columns, axis=-1).reshape(*self.shape, len(columns))
        shaped = [column.reshape(self.shape) if self.shape else float(column[0]) for column in columns]
        return dict(zip(self.names, shaped, strict=True))


def class_scores(scores: Mapping[str, ArrayLike] | ArrayLike, classes: Sequence[str] | None) -> ClassScores:
    """Read scores of several classes.

    Parameters
    ----------
    scores : mapping or array_like
        Class to a score, or to an array of one shape for all; or an array whose last axis is the classes.
    classes : sequence of str or None
        Names along the last axis; for a mapping, which classes there must be, and in which order they are added up.
        None: the mapping's own.

    Raises
    ------
    ValueError
        If there are fewer than two classes, one is missing, repeated or too many, shapes differ, or a score is not in
        [0, 1].
    """
    names = tuple(classes) if classes is not None else tuple(scores) if isinstance(scores, Mapping) else ()
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"classes {names!r}: two or more names are needed, each once")
    if isinstance(scores, Mapping):
        if scores.keys() != set(names):
            raise ValueError(f"scores of classes {sorted(scores)} where {sorted(names)} are expected")
        columns = [checked(scores[name]) for name in names]
    else:
        array = checked(scores)
        if array.ndim == 0 or array.shape[-1] != len(names):
            raise ValueError(f"scores of shape {array.shape} do not end with {len(names)} classes")
        columns = list(np.moveaxis(array, -1, 0))
    shape = columns[0].shape
    if any(column.shape != shape for column in columns):
        raise ValueError(f"the classes' scores have shapes {[column.shape for column in columns]}")
    # Contiguous: the speed of a map, and the shape that columns of segments are matched with.
    flat = [np.ascontiguousarray(column).reshape(-1) for column in columns]
    return ClassScores(names, flat, shape, isinstance(scores, Mapping))


def apply_classes(
    scores: Mapping[str, ArrayLike] | ArrayLike,
    maps: Mapping[str, CompiledMap],
    classes: Sequence[str] | None = None,
    segments: Mapping[str, Any] | None = None,
) -> dict[str, Any] | Floats:
    """Served scores of several classes through maps at hand (`MapDocument.compile`), to the bit what is served live.

    Parameters
    ----------
    scores, classes
        See `class_scores`.
    maps : mapping
        Class to its map; a class without one keeps its normalised score.
    segments : mapping, optional
        Dimension to the value all rows share, or to one value per row.

    Returns
    -------
    dict or float64 array
        As the scores; they sum to 1 over the classes.

    Raises
    ------
    ValueError
        As `class_scores`, or if a row's scores are all 0.

    Examples
    --------
    >>> apply_classes({"cat": 0.75, "dog": 0.75}, {})
    {'cat': 0.5, 'dog': 0.5}
    """
    given = class_scores(scores, classes)
    served_by: list[Callable[[Floats], Floats] | None] = [
        partial(maps[name].apply, segments=segments) if name in maps else None for name in given.names
    ]
    return given.answer(serve_classes(given.columns, served_by))
