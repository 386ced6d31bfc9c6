"""Map families that are a straight or bent line in the logit: intercept, temperature, beta.

All of them take scores within the clip, work on ln(p / (1 - p)) and answer through the sigmoid; see
`streamcal.maps.families` for what every family promises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from streamcal.maps.link import Floats, clip, clip_one, inside, logit, logit_one, sigmoid, sigmoid_one

__all__ = ["Beta", "Intercept", "Temperature"]

_HALVINGS: Final = 64
"""The logits of the clip span 33; halved 64 times nothing is left of that in float64."""
_WIDEST: Final = 17.0
"""Just beyond the largest logit the clip leaves, 16.12."""


def _finite(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} {value!r} is not finite")


@dataclass(frozen=True, slots=True)
class Intercept:
    """p = sigmoid(logit(score) + intercept): the level moves, the spread stays.

    Raises
    ------
    ValueError
        If the intercept is not finite.

    Examples
    --------
    >>> round(Intercept(intercept=-1.0).apply_one(0.5), 6)
    0.268941
    """

    family: ClassVar[str] = "intercept"
    intercept: float

    def __post_init__(self) -> None:
        _finite(intercept=self.intercept)

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        z = logit(clip(p))
        z += self.intercept
        return sigmoid(z)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        return sigmoid_one(logit_one(clip_one(p)) + self.intercept)

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`."""
        return clip(sigmoid(logit(inside(p)) - self.intercept))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {"intercept": self.intercept}


@dataclass(frozen=True, slots=True)
class Temperature:
    """p = sigmoid(logit(score) / temperature): above 1 it calms an over-confident model; .5 stays .5.

    Raises
    ------
    ValueError
        If the temperature is not above 0 and finite.

    References
    ----------
    Guo et al., "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> Temperature(temperature=2.0).apply_one(0.8) == Temperature(temperature=1.0).apply_one(2 / 3)
    True
    """

    family: ClassVar[str] = "temperature"
    temperature: float

    def __post_init__(self) -> None:
        _finite(temperature=self.temperature)
        if self.temperature <= 0.0:
            raise ValueError(f"temperature {self.temperature!r} is not above 0")

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        z = logit(clip(p))
        z /= self.temperature
        return sigmoid(z)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        return sigmoid_one(logit_one(clip_one(p)) / self.temperature)

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`."""
        return clip(sigmoid(logit(inside(p)) * self.temperature))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {"temperature": self.temperature}


@dataclass(frozen=True, slots=True)
class Beta:
    """p = sigmoid(a ln(score) - b ln(1 - score) + c): Platt with a slope of its own at either end.

    With a = b it is Platt. For rare events ln(1 - score) hardly varies, so that b means little.

    Raises
    ------
    ValueError
        If a parameter is not finite, a or b is below 0, or both are 0 (the map would erase the ranking).

    References
    ----------
    Kull, Silva Filho and Flach, "Beta calibration", AISTATS 2017.

    Examples
    --------
    >>> Beta(a=1.0, b=1.0, c=0.0).apply_one(0.5)
    0.5
    """

    family: ClassVar[str] = "beta"
    a: float
    b: float
    c: float

    def __post_init__(self) -> None:
        _finite(a=self.a, b=self.b, c=self.c)
        if self.a < 0.0 or self.b < 0.0 or self.a + self.b == 0.0:
            raise ValueError(f"a {self.a!r} and b {self.b!r} must not be below 0, nor both 0")

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        q = clip(p)
        rest = np.subtract(1.0, q)
        np.log(q, out=q)
        q *= self.a
        np.log(rest, out=rest)
        rest *= self.b
        q -= rest
        q += self.c
        return sigmoid(q)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        q = clip_one(p)
        z = float(np.log(q)) * self.a - float(np.log(1.0 - q)) * self.b
        return sigmoid_one(z + self.c)

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`; by bisection, since a and b differ in general."""
        target = logit(inside(p))
        low, high = np.full_like(target, -_WIDEST), np.full_like(target, _WIDEST)
        for _ in range(_HALVINGS):
            x = 0.5 * (low + high)
            # ln sigmoid(x) and -ln sigmoid(-x), exact for large |x| where 1 - sigmoid(x) is not
            z = self.c - self.a * np.logaddexp(0.0, -x) + self.b * np.logaddexp(0.0, x)
            low, high = np.where(z < target, x, low), np.where(z < target, high, x)
        return clip(sigmoid(high))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {"a": self.a, "b": self.b, "c": self.c}
