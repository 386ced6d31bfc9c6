"""What is taken as a score where live scores are handed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["checked", "served"]

_EXCESS: Final = 1e-6
"""By how much a score may leave [0, 1] and still be taken as rounding, as for scores in the topics."""
_PART: Final = 32_768
"""Scores checked and mapped at once: 256 KiB stay in a core's cache, worth a factor of 1.5 on a million scores."""

Floats = NDArray[np.float64]


def checked(score: float | ArrayLike) -> Floats:
    """Scores as float64 in [0, 1], perhaps the array given; raises ValueError with the first value that is none."""
    return _within(_numbers(score))


def served(score: float | ArrayLike, apply: Callable[[Floats], Floats], apply_one: Callable[[float], float]) -> Any:
    """Checked scores through a map: a float for a number, else an array of its shape; raises as `checked`."""
    given = _numbers(score)
    if given.ndim == 0:
        return apply_one(float(_within(given)))
    if given.size <= _PART:
        return apply(_within(given))
    flat, result = given.reshape(-1), np.empty(given.size)
    for start in range(0, given.size, _PART):
        result[start : start + _PART] = apply(_within(flat[start : start + _PART]))
    return result.reshape(given.shape)


def _numbers(score: float | ArrayLike) -> NDArray[Any]:
    given = np.asarray(score)
    if given.dtype.kind not in "fiu":
        raise ValueError(f"score {score!r} is not a number")
    return given


def _within(given: NDArray[Any]) -> Floats:
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
