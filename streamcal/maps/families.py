"""Calibration maps: from a raw score to a served one.

Every map clips its input to [1e-7, 1 - 1e-7], answers strictly inside (0, 1), and never reverses the order of two
scores (beyond the rounding of `log` and `exp`, a few units in the last place). `apply` and `apply_one` agree **to
the bit**, so a score served live is the score a replay computes.

Sign convention: p = sigmoid(slope * logit(score) + intercept); a slope below 1 corrects an over-confident model.

A further family is one frozen dataclass and one entry of `FAMILIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Protocol

from streamcal.errors import MapDocumentError
from streamcal.maps.families_knots import Cir, Girb, Isotonic
from streamcal.maps.families_logit import Beta, Intercept, Temperature
from streamcal.maps.link import (
    BELOW_ONE,
    TINY,
    Floats,
    clip,
    clip_one,
    inside,
    logit,
    logit_one,
    sigmoid,
    sigmoid_one,
)

__all__ = [
    "FAMILIES",
    "Beta",
    "Cir",
    "Girb",
    "Identity",
    "Intercept",
    "Isotonic",
    "Map",
    "Parameters",
    "Platt",
    "Prior",
    "Temperature",
    "Tracking",
    "from_parameters",
]

Parameters = Mapping[str, float | Sequence[float]]
"""What a map document stores: numbers, and lists of numbers where a family has knots."""


class Map(Protocol):
    """What every family offers; instances are immutable and safe to share between threads."""

    family: ClassVar[str]

    def apply(self, p: Floats) -> Floats:
        """Served scores of raw scores `p`: float64, any shape of at least one dimension, no NaN."""
        ...

    def apply_one(self, p: float) -> float:
        """The same for one score, to the bit."""
        ...

    def inverse(self, p: Floats) -> Floats:
        """The raw scores, within the clip, that are served as `p`; on a flat the lowest of them."""
        ...

    def parameters(self) -> dict[str, float | list[float]]:
        """What a map document stores; `from_parameters` reads it back."""
        ...


def same_map(one: Map, other: Map) -> bool:
    """Whether two maps are of one family and have the same parameters, to the bit."""
    return one.family == other.family and one.parameters() == other.parameters()


@dataclass(frozen=True, slots=True)
class Identity:
    """The score as it is, within the clip.

    >>> Identity().apply_one(0.3)
    0.3
    """

    family: ClassVar[str] = "identity"

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        return clip(p)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        return clip_one(p)

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`."""
        return clip(p)

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {}


@dataclass(frozen=True, slots=True)
class Prior:
    """Correction of the odds after training on altered class shares; ranking does not move.

    Keeping negatives with rate r, or weighting positives by w = 1/r, multiplies the odds by 1/r, so
    p = p' / (p' + (1 - p') / r) = p' / (p' + w (1 - p')): the logit moves by ln r = -ln w. Computed on the odds
    and not the logit: four exact-rounded operations, the same bits on every machine.

    Parameters
    ----------
    negative_sampling_rate : float, optional
        Share of negatives kept in training, in (0, 1].
    positive_weight : float, optional
        Weight of positives in the loss, or their oversampling factor; above 0. Exactly one of the two is given.

    Raises
    ------
    ValueError
        If neither or both are given, or the one given is out of range.

    Examples
    --------
    >>> round(Prior(negative_sampling_rate=0.01).apply_one(0.5), 8)
    0.00990099
    """

    family: ClassVar[str] = "prior"
    negative_sampling_rate: float | None = None
    positive_weight: float | None = None

    def __post_init__(self) -> None:
        rate, weight = self.negative_sampling_rate, self.positive_weight
        if (rate is None) == (weight is None):
            raise ValueError("a prior takes either negative_sampling_rate or positive_weight")
        if rate is not None and not 0.0 < rate <= 1.0:
            raise ValueError(f"negative_sampling_rate {rate!r} is not in (0, 1]")
        if weight is not None and not 0.0 < weight < math.inf:
            raise ValueError(f"positive_weight {weight!r} is not above 0 and finite")

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        q = clip(p)
        negatives = 1.0 - q
        if self.positive_weight is not None:
            negatives *= self.positive_weight
        else:
            negatives /= self._rate
        return inside(q / (q + negatives))

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        q = clip_one(p)
        negatives = 1.0 - q
        if self.positive_weight is not None:
            negatives *= self.positive_weight
        else:
            negatives /= self._rate
        return min(max(q / (q + negatives), TINY), BELOW_ONE)

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`."""
        q = inside(p)
        positives = q * self.positive_weight if self.positive_weight is not None else q / self._rate
        return clip(positives / (positives + (1.0 - q)))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        if self.positive_weight is not None:
            return {"positive_weight": self.positive_weight}
        return {"negative_sampling_rate": self._rate}

    @property
    def _rate(self) -> float:
        assert self.negative_sampling_rate is not None
        return self.negative_sampling_rate


@dataclass(frozen=True, slots=True)
class Platt:
    """p = sigmoid(slope * logit(score) + intercept).

    Raises
    ------
    ValueError
        If a parameter is not finite or the slope is not above 0 (the map would reverse or erase the ranking).

    Examples
    --------
    >>> Platt(slope=1.0, intercept=0.0).apply_one(0.5)
    0.5
    """

    family: ClassVar[str] = "platt"
    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.intercept)):
            raise ValueError(f"slope {self.slope!r} and intercept {self.intercept!r} must be finite")
        if self.slope <= 0.0:
            raise ValueError(f"slope {self.slope!r} is not above 0")

    def apply(self, p: Floats) -> Floats:
        """See `Map.apply`."""
        z = logit(clip(p))
        z *= self.slope
        z += self.intercept
        return sigmoid(z)

    def apply_one(self, p: float) -> float:
        """See `Map.apply_one`."""
        return sigmoid_one(logit_one(clip_one(p)) * self.slope + self.intercept)

    def inverse(self, p: Floats) -> Floats:
        """See `Map.inverse`."""
        return clip(sigmoid((logit(inside(p)) - self.intercept) / self.slope))

    def parameters(self) -> dict[str, float | list[float]]:
        """See `Map.parameters`."""
        return {"slope": self.slope, "intercept": self.intercept}


class Tracking(Platt):
    """Platt's form as the tracking filter publishes it; the name tells a moving map from a fitted one.

    >>> Tracking(slope=1.0, intercept=0.0)
    Tracking(slope=1.0, intercept=0.0)
    """

    __slots__ = ()
    family: ClassVar[str] = "tracking"


FAMILIES: Final[Mapping[str, Callable[..., Map]]] = MappingProxyType(
    {
        made.family: made
        for made in (Identity, Prior, Intercept, Temperature, Platt, Beta, Isotonic, Girb, Cir, Tracking)
    }
)
"""Family name, as documents and metrics carry it, to what builds the map from its parameters."""


def from_parameters(family: str, parameters: Parameters) -> Map:
    """Build the map a document describes.

    Raises
    ------
    MapDocumentError
        If the family is unknown, or its parameters are not those it takes, not finite or not monotone.

    Examples
    --------
    >>> from_parameters("platt", {"slope": 0.6, "intercept": 0.0})
    Platt(slope=0.6, intercept=0.0)
    """
    build = FAMILIES.get(family)
    if build is None:
        raise MapDocumentError(
            f"unknown map family {family!r}; known: {', '.join(FAMILIES)}",
            hint="a newer streamcal may have written it: upgrade this process",
        )
    try:
        return build(**parameters)
    except (TypeError, ValueError) as cause:
        raise MapDocumentError(f"parameters {dict(parameters)!r} do not make a {family} map: {cause}") from cause
