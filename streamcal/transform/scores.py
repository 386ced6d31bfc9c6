"""What is taken as a score where live scores are handed over."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["checked"]

_EXCESS: Final = 1e-6
"""By how much a score may leave [0, 1] and still be taken as rounding, as for scores in the topics."""

Floats = NDArray[np.float64]


def checked(score: float | ArrayLike) -> Floats:
    """Scores as float64 in [0, 1], perhaps the array given; raises ValueError with the first value that is none."""
    given = np.asarray(score)
    if given.dtype.kind not in "fiu":
        raise ValueError(f"score {score!r} is not a number")
    scores: Floats = given.astype(np.float64, copy=False)
    if not scores.size:
        return scores
    lowest, highest = scores.min(), scores.max()
    if lowest >= 0.0 and highest <= 1.0:
        return scores
    # NaN is the minimum of whatever holds one, and fails every comparison.
    if not (lowest >= -_EXCESS and highest <= 1.0 + _EXCESS):
        good = (scores >= -_EXCESS) & (scores <= 1.0 + _EXCESS)
        raise ValueError(f"score {float(scores[~good].flat[0])!r} is not in [0, 1]")
    clipped: Floats = np.minimum(np.maximum(scores, 0.0), 1.0)
    return clipped
