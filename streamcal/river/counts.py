"""The 284-bin counts as an object of river's, so that several metrics can share one."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from river.base import Base

from streamcal.stats.counts import PLAIN, WEIGHTED, check_range, contributions, promote
from streamcal.stats.layout import N_BINS

__all__ = ["MAX_WEIGHT", "CalibrationCounts"]

MAX_WEIGHT: Final = 1000.0
"""As `events.max_weight`: sums of larger weights could leave the counts' range."""


class CalibrationCounts(Base):
    """Counts of scores and labels, to the bit those of the live figures.

    Its invariant: `values` is the sum over the rows updated and not reverted, in integers, so that taking a row back
    leaves no trace. The first weight other than 1 adds the columns of weighted streams.

    Attributes
    ----------
    values : int64[284, 9] or int64[284, 23]
    sequence : int
        Grows with every change; whoever computes from `values` remembers it.

    Examples
    --------
    >>> counts = CalibrationCounts()
    >>> counts.add(0.3, True, 1.0)
    >>> counts.add(0.3, True, 1.0, sign=-1)
    >>> bool(counts.values.any())
    False
    """

    def __init__(self) -> None:
        self.values: NDArray[np.int64] = np.zeros((N_BINS, PLAIN), dtype=np.int64)
        self.sequence = 0

    def add(self, score: float, positive: bool, weight: float, *, sign: int = 1) -> None:
        """Count one row, or with `sign` -1 take it back.

        Raises
        ------
        ValueError
            If the score is not in [0, 1] or the weight not in [0, 1000].
        StateLimitError
            If a sum would leave the range of exact integers.
        """
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"score {score!r} is not a probability")
        if not (math.isfinite(weight) and 0.0 <= weight <= MAX_WEIGHT):
            raise ValueError(f"weight {weight!r} is not in [0, {MAX_WEIGHT:.0f}]")
        if weight != 1.0 and self.values.shape[1] == PLAIN:
            self.values = promote(self.values)
        weights = np.array([weight]) if self.values.shape[1] == WEIGHTED else None
        bins, values, _ = contributions(np.array([float(score)]), np.array([positive]), weights)
        changed = self.values[bins] + sign * values
        check_range(changed)
        self.values[bins] = changed
        self.sequence += 1
