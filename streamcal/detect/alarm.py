"""When an alarm is raised and when it clears: the latch of each series, and the plain ECE threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_FAULT", "AlarmEvent", "EceThreshold", "Latch"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Faults = NDArray[np.int8]

NO_FAULT: Final = -1


@dataclass(frozen=True, slots=True)
class AlarmEvent:
    """An alarm raised or cleared.

    Attributes
    ----------
    pane : int
        The sealed pane that decided it.
    series : int
    fault : str
        One of `FAULTS`.
    raised : bool
        False: cleared.
    evidence : float
        Natural logarithm of the evidence after that pane; for a raised alarm what crossed the threshold.
    phi : float
        Over-dispersion the pane was weighed with.
    """

    pane: int
    series: int
    fault: str
    raised: bool
    evidence: float
    phi: float


class Latch:
    """Alarms in force; one row per series.

    Guarantee: a series has at most one alarm, and every raised one is cleared before the next is raised. An
    alarm of another fault takes the place of the one in force; one of the same fault only renews it.

    Parameters
    ----------
    clear_after : int
        Calm panes in a row after which an alarm clears.

    Attributes
    ----------
    fault : int8[S]
        Index into `FAULTS`, `NO_FAULT` where no alarm is in force.
    calm : int64[S]
        Calm panes in a row.
    """

    ROWS: Final = ("fault", "calm")
    """Names of the state arrays."""

    def __init__(self, clear_after: int) -> None:
        self._clear_after = clear_after
        self.fault: Faults = np.zeros(0, dtype=np.int8)
        self.calm: Ints = np.zeros(0, dtype=np.int64)

    def reserve(self, size: int) -> None:
        """Make room for series below `size`, without alarms."""
        more = size - len(self.fault)
        self.fault = np.concatenate([self.fault, np.full(more, NO_FAULT, dtype=np.int8)])
        self.calm = np.concatenate([self.calm, np.zeros(more, dtype=np.int64)])

    def forget(self, series: Ints) -> None:
        """Drop the alarms of some series without a word."""
        self.fault[series] = NO_FAULT
        self.calm[series] = 0

    def update(self, series: Ints, crossed: Bools, fault: Faults, calm: Bools) -> tuple[list[tuple[int, int]], Ints]:
        """Take in one pane.

        Parameters
        ----------
        series : int64[n]
            Series with rows in the pane.
        crossed, calm : bool[n]
            Whether the evidence crossed the threshold; whether the pane was calm.
        fault : int8[n]
            What the leading bet says.

        Returns
        -------
        cleared : list of (position in `series`, fault)
        raised : int64[r]
            Positions in `series`.
        """
        held = self.fault[series]
        if not crossed.any() and (held == NO_FAULT).all():  # nearly always; what follows would say the same
            self.calm[series] = np.where(calm, self.calm[series] + 1, 0)
            return [], np.empty(0, dtype=np.intp)
        row = np.where(calm & ~crossed, self.calm[series] + 1, 0)
        over = (held != NO_FAULT) & (row >= self._clear_after)
        replaced = crossed & (held != fault)
        ending = over | (replaced & (held != NO_FAULT))
        cleared = [(int(at), int(held[at])) for at in np.flatnonzero(ending)]
        self.fault[series] = np.where(crossed, fault, np.where(over, NO_FAULT, held))
        self.calm[series] = row
        return cleared, np.flatnonzero(replaced)


@dataclass(frozen=True, slots=True)
class EceThreshold:
    """A plain threshold on ECE, for those who must have one: gated, but without any promise on false alarms.

    Attributes
    ----------
    above : float
        ECE above which it is exceeded.
    min_n : int
        Labelled predictions below which it is not.
    min_z : float
        Standard deviations above the noise floor below which it is not.
    """

    above: float
    min_n: int
    min_z: float

    def exceeded(self, ece: Floats, n: Floats | Ints, z: Floats) -> Bools:
        """Whether each series' ECE is beyond the threshold; bool, of the arguments' shape. NaN (absent) is not.

        Examples
        --------
        >>> EceThreshold(above=0.05, min_n=1000, min_z=3.0).exceeded(
        ...     np.array([0.06, 0.06, 0.2, np.nan]), np.array([5000, 5000, 50, 0]), np.array([9.0, 1.0, 9.0, np.nan])
        ... ).tolist()
        [True, False, False, False]
        """
        return np.asarray((ece > self.above) & (n >= self.min_n) & (z >= self.min_z))
