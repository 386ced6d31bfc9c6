"""What a tracking filter is made of: the ideas of how fast the truth moves that it mixes, and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CYCLE_START_SD", "DAY_MS", "EXPERTS", "HARMONICS", "SLOPE_SHARE", "Expert", "TrackingSettings", "harmonics"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DAY_MS: Final = 86_400_000
HARMONICS: Final = 2
"""Once and twice a day: morning and evening may differ, and noon from midnight. Three gain 2e-4 on flights."""

SLOPE_SHARE: Final = 0.2
"""Variance of the slope's walk as a share of the level's: scores age by their level before they age by their spread."""

CYCLE_START_SD: Final = 0.22
"""Prior of each harmonic's amplitude: half of all days swing by less than a quarter of a logit."""


@dataclass(frozen=True, slots=True)
class Expert:
    """One idea of how the truth moves; sds are in logits.

    Attributes
    ----------
    level_sd : float
        How far the level walks in a day.
    transient_sd : float
        Spread of the transient at rest; 0 for none.
    transient_hours : float
        Its half-life.
    cycle_sd : float
        How far each harmonic walks in a day; negative for no daily cycle.
    """

    level_sd: float
    transient_sd: float = 0.0
    transient_hours: float = 6.0
    cycle_sd: float = -1.0


EXPERTS: Final[tuple[Expert, ...]] = tuple(
    Expert(level, transient, 6.0, cycle)
    for level, transient, cycle in product((0.02, 0.05, 0.15), (0.0, 0.3, 0.6), (-1.0, 0.015))
)
"""Levels that walk .2 in a hundred days, in sixteen or in two; days that are as the last, or 35 % or 80 % off in the
odds. Chosen on four months of one stream, where a factor of two in any of them moves the log loss by .001."""


@dataclass(frozen=True, slots=True)
class TrackingSettings:
    """What a filter is.

    Attributes
    ----------
    step_ms : int
        Length of a step; divides the day and is at most three hours, which two harmonics need.
    memory_steps : int
        How old a prediction may be when it becomes known: horizon, skew and one. Older ones count as this old.
    experts : tuple of Expert
    loss_half_life_days : float
        Of the losses that experts are mixed by.
    intercept_sd, slope_sd : float
        Prior at the start, about the identity map.
    """

    memory_steps: int
    step_ms: int = 900_000
    experts: tuple[Expert, ...] = EXPERTS
    loss_half_life_days: float = 30.0
    intercept_sd: float = 1.0
    slope_sd: float = 0.5

    def __post_init__(self) -> None:
        if self.step_ms <= 0 or DAY_MS % self.step_ms or self.step_ms > DAY_MS // 8:
            raise ValueError(f"step_ms {self.step_ms} does not divide the day into eight steps or more")
        if self.memory_steps < 1 or not self.experts:
            raise ValueError("a filter takes a memory of at least one step and at least one expert")


def harmonics(step: Ints, step_ms: int) -> Floats:
    """Cosines and sines of the time of day in the middle of each step.

    Parameters
    ----------
    step : int64[n]
    step_ms : int

    Returns
    -------
    float64[n, 2 * HARMONICS]

    Examples
    --------
    The first of eight steps a day has its middle at 01:30, a sixteenth of the way round.

    >>> harmonics(np.array([0]), DAY_MS // 8).round(3).tolist()
    [[0.924, 0.707, 0.383, 0.707]]
    """
    day = (step * step_ms % DAY_MS + step_ms / 2) / DAY_MS
    angle = 2.0 * np.pi * np.outer(day, np.arange(1, HARMONICS + 1))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
