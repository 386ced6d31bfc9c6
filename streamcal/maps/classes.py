"""Several classes, one against the rest: a map per class, and sums of 1 before and after.

The map of a class is one of the model ``<model>/<class>``. A row's scores are first divided by their sum, which is
what figures and fits of a class read; each then goes through its class's map, and the results are divided by their
sum again. Classes are added in the order given, in float64, so that live rows and a replay agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.classes import class_model, normalised

__all__ = ["class_model", "normalised", "serve_classes"]

Floats = NDArray[np.float64]


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
