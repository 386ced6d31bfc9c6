"""Several classes, one against the rest: a map per class, and sums of 1 before and after.

The map of a class is one of the model ``<model>/<class>``. A row's scores are first divided by their sum, which is
what figures and fits of a class read; each then goes through its class's map, and the results are divided by their
sum again. Classes are added in the order given, in float64, so that live rows and a replay agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["class_model", "normalised", "serve_classes"]

Floats = NDArray[np.float64]


def class_model(model: str, name: str) -> str:
    """The model under which one class is counted, fitted and published.

    >>> class_model("digits", "7")
    'digits/7'
    """
    return f"{model}/{name}"


def normalised(columns: Sequence[Floats]) -> list[Floats]:
    """Columns divided by their sum, row by row; new arrays.

    Parameters
    ----------
    columns : sequence of float64[n]
        At least one; finite, not below 0.

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


def serve_classes(columns: Sequence[Floats], served_by: Sequence[Callable[[Floats], Floats] | None]) -> list[Floats]:
    """Served scores of every class; they sum to 1.

    Parameters
    ----------
    columns : sequence of float64[n]
        Raw scores by class, in [0, 1].
    served_by : sequence of callable or None
        For each class what applies its map to a column; None leaves the normalised score as it is.

    Raises
    ------
    ValueError
        If a row's scores are all 0.

    Examples
    --------
    >>> halved = serve_classes([np.array([0.5]), np.array([0.5])], [lambda p: p / 2, None])
    >>> [round(float(column[0]), 4) for column in halved]
    [0.3333, 0.6667]
    """
    raw = normalised(columns)
    return normalised([p if apply is None else apply(p) for p, apply in zip(raw, served_by, strict=True)])
