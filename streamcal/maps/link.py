"""Logit and sigmoid, once for arrays and once for single floats, equal to the bit.

The scalar forms call the same numpy loops as the array forms: numpy's vector `log` and `exp` differ from the
C library's by one unit in the last place in up to 5 % of arguments, so `math` would make a live scalar and its
replay in an array disagree. Each numpy call on a float costs about 0.1 microseconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.layout import SCORE_CLIP

__all__ = [
    "BELOW_ONE",
    "HIGHEST",
    "LOWEST",
    "TINY",
    "Floats",
    "clip",
    "clip_one",
    "inside",
    "logit",
    "logit_one",
    "odds",
    "sigmoid",
    "sigmoid_one",
]

Floats = NDArray[np.float64]

LOWEST: Final = SCORE_CLIP
HIGHEST: Final = 1.0 - SCORE_CLIP
BELOW_ONE: Final = 1.0 - 2.0**-53
"""The largest float64 below 1: what a sigmoid that rounds to 1 is replaced by."""
TINY: Final = 2.0**-1022
"""Smallest normal float64: an inverse accepts whatever a map may answer, which reaches below the 1e-7 clip."""
_STEEPEST: Final = 700.0
"""exp(700) is finite in float64 and its reciprocal positive; exp(710) is neither."""


def clip(p: Floats) -> Floats:
    """A new array with `p` moved into [1e-7, 1 - 1e-7]."""
    q = np.maximum(p, LOWEST)
    return np.minimum(q, HIGHEST, out=q)


def clip_one(p: float) -> float:
    """`clip` of one score."""
    return LOWEST if p < LOWEST else HIGHEST if p > HIGHEST else p  # noqa: FURB136 -- `min` doubles its cost


def inside(p: Floats) -> Floats:
    """A new array with `p` moved into (0, 1) by less than any map can tell."""
    return np.minimum(np.maximum(p, TINY), BELOW_ONE)


def odds(p: Floats) -> Floats:
    """Odds p / (1 - p), a new array; ascending with `p` even after rounding."""
    ratio = np.subtract(1.0, p)
    return np.divide(p, ratio, out=ratio)


def logit(p: Floats) -> Floats:
    """ln(p / (1 - p)) of probabilities strictly inside (0, 1), to 3e-16 or one unit in the last place.

    One logarithm of the odds: 1 - p is exact from .5 up, and rounding it below that moves the logit by 1e-16.
    """
    ratio = odds(p)
    return np.log(ratio, out=ratio)


def logit_one(p: float) -> float:
    """`logit` of one probability."""
    return float(np.log(p / (1.0 - p)))


def sigmoid(z: Floats) -> Floats:
    """1 / (1 + exp(-z)), strictly inside (0, 1); written over `z`, since large new arrays cost more than the sums."""
    np.negative(z, out=z)
    np.minimum(z, _STEEPEST, out=z)
    np.exp(z, out=z)
    z += 1.0
    np.divide(1.0, z, out=z)
    return np.minimum(z, BELOW_ONE, out=z)


def sigmoid_one(z: float) -> float:
    """`sigmoid` of one logit."""
    p = 1.0 / (1.0 + float(np.exp(-z if z > -_STEEPEST else _STEEPEST)))
    return p if p < BELOW_ONE else BELOW_ONE  # noqa: FURB136 -- `min` doubles its cost
