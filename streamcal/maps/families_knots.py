"""Map families given by knots: isotonic, girb, cir. See `streamcal.maps.knots` for how a curve is evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from streamcal.maps.knots import CHUNK, Curve, cells_of, checked_knots
from streamcal.maps.link import (
    BELOW_ONE,
    HIGHEST,
    LOWEST,
    TINY,
    Floats,
    clip,
    clip_one,
    inside,
    logit,
    logit_one,
    odds,
    sigmoid,
    sigmoid_one,
)

__all__ = ["Cir", "Girb", "Isotonic"]

_LARGEST_LOGIT: Final = 700.0
"""No sigmoid tells larger ones apart in float64."""
_SLACK: Final = 1e-13
"""Wider than the rounding of `log` and `exp` at the logits the clip leaves (4e-15): a knot's table cells are taken
this much to either side, so that the cell of an argument never contradicts a comparison."""


def _score_curve(scores: tuple[float, ...], values: tuple[float, ...]) -> Curve:
    cells = cells_of(odds(np.array(scores)))
    if len(scores) < 2 or values[0] == values[-1]:
        raise ValueError("a curve of one value erases the ranking")
    return Curve(scores, values, 0.0, cells, cells)


@dataclass(frozen=True, slots=True)
class Isotonic:
    """Straight lines between knots in the score, constant on flats and beyond the ends (isotonic regression).

    Parameters
    ----------
    scores : sequence of float
        Raw scores of the knots within [1e-7, 1 - 1e-7], ascending.
    values : sequence of float
        Served scores, strictly inside (0, 1), never falling, the last above the first.

    Raises
    ------
    ValueError
        If the knots are not as said.

    Notes
    -----
    `inverse` answers the lowest raw score served as at least `p`: on a flat its left end, below the lowest value
    1e-7, above the highest 1 - 1e-7. It is what a cut-off on served scores means on raw ones.

    Examples
    --------
    >>> Isotonic([0.25, 0.5, 0.75], [0.25, 0.5, 0.5]).apply_one(0.375)
    0.375
    """

    family: ClassVar[str] = "isotonic"
    scores: Sequence[float]
    values: Sequence[float]
    _curve: Curve = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scores = checked_knots("scores", self.scores, LOWEST, HIGHEST)
        values = checked_knots("values", self.values, TINY, BELOW_ONE)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "_curve", _score_curve(scores, values))

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        flat = p.reshape(-1)
        served = np.empty_like(flat)
        for start in range(0, len(flat), CHUNK):
            q = clip(flat[start : start + CHUNK])
            served[start : start + CHUNK] = self._curve.at(q, odds(q))
        return served.reshape(p.shape)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        return self._curve.one(clip_one(p))

    def inverse(self, p: Floats) -> Floats:
        """The lowest raw scores served as at least `p`; see the notes of the class."""
        return clip(self._curve.lowest_reaching(p))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {"scores": list(self.scores), "values": list(self.values)}


class Girb(Isotonic):
    """Grouped isotonic: one knot per group of scores, straight lines between them, constant beyond the ends.

    Parameters, errors and inverse as `Isotonic`; flats where groups were pooled.

    Examples
    --------
    >>> Girb([0.25, 0.75], [0.125, 0.625]).apply_one(0.5)
    0.375
    """

    __slots__ = ()
    family: ClassVar[str] = "girb"


@dataclass(frozen=True, slots=True)
class Cir:
    """Smoothed centred isotonic: straight lines from logit to logit, the change at an end carried on beyond it.

    Strictly increasing, so the ranking stays whole.

    Parameters
    ----------
    logits : sequence of float
        ln(p / (1 - p)) of raw scores, ascending.
    served_logits : sequence of float
        The same of served scores, ascending strictly; within [-700, 700] both.

    Raises
    ------
    ValueError
        If the knots are not as said.

    References
    ----------
    Oron and Flournoy, "Centered isotonic regression: point and interval estimation for dose-response studies", 2017.

    Examples
    --------
    >>> Cir([0.0], [0.0]).apply_one(0.5)
    0.5
    """

    family: ClassVar[str] = "cir"
    logits: Sequence[float]
    served_logits: Sequence[float]
    _curve: Curve = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        logits = checked_knots("logits", self.logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)
        served = checked_knots("served_logits", self.served_logits, -_LARGEST_LOGIT, _LARGEST_LOGIT)
        if any(not above > below for below, above in pairwise(served)):
            raise ValueError("served_logits do not ascend strictly")
        low, high = (
            cells_of(np.array([math.exp(x * (1.0 + side) + side) for x in logits])) for side in (-_SLACK, _SLACK)
        )
        object.__setattr__(self, "logits", logits)
        object.__setattr__(self, "served_logits", served)
        object.__setattr__(self, "_curve", Curve(logits, served, 1.0, low, high))

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        flat = p.reshape(-1)
        served = np.empty_like(flat)
        for start in range(0, len(flat), CHUNK):
            ratio = odds(clip(flat[start : start + CHUNK]))
            served[start : start + CHUNK] = sigmoid(self._curve.at(np.log(ratio), ratio))
        return served.reshape(p.shape)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        return sigmoid_one(self._curve.one(logit_one(clip_one(p))))

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`."""
        return clip(sigmoid(self._curve.lowest_reaching(logit(inside(p)))))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {"logits": list(self.logits), "served_logits": list(self.served_logits)}
