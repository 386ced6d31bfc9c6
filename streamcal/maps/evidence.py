"""What speaks for each challenger: its gain over the map in force, added up since the last change.

Theory of operation
-------------------
*Gain.* Log loss of the map in force less that of the challenger, in nats, each by what it said when the prediction was
made. Where the map in force is calibrated and outcomes are independent given the scores, exp(gain) is a test
martingale: it ever reaches 20 F with probability 1 / (20 F), for F challengers together with 1/20.

*Floor.* A challenger that learns from a window pays for its noise: half a nat per parameter and window, a dozen nats
per window for the isotonic ones. After a calm year it would be hundreds of nats behind and need weeks of a real fault
to come back. So the sum does not fall below `FLOOR`. That forgives, and forgiving costs: each rise from the
floor to the bar has probability exp(floor - bar). Of 20 calm years one has a promotion, on its first day
(`benchmarks/maps.py`).

*Ceiling.* Nor does the sum rise above twice the bar: a burst of false labels may gain thousands of nats within hours
for whoever believed it first, and the sum would stay above the bar for months while that challenger loses day by day.

*Blocks.* Outcomes of one time vary together, so the gain also has to exceed its standard error over blocks of time.
There are at most 16 blocks: they begin as long as the time between attempts, are merged in pairs when there are
more, and once they are a day long (a fourteenth of the fit window) the oldest are dropped. A lone burst, however large,
fills one block or two and has a standard error nearly as large as itself. Comparisons of challengers with each other
use the blocks alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CEILING", "FLOOR", "MIN_BLOCKS", "MOST_BLOCKS", "Evidence", "surpasses"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FLOOR: Final = -7.0
"""Nats. With a bar of 4 to 5, exp(-12) per rise: below one in a thousand years of hourly attempts for a line, and what
it adds to the delay of a correction is 7 nats of evidence."""

CEILING: Final = 2.0
"""Bars. What was true stays true for as long as a guard or a cool-down holds it up: it goes on gaining."""

MOST_BLOCKS: Final = 16
"""Merged when there are more, so 9 to 16 of them: enough for a standard error, few enough to outlast a bad day."""

MIN_BLOCKS: Final = 4
"""Below it the standard error is not known: two blocks agree by chance every other time."""

LONGEST_SHARE: Final = 14
"""The longest block is at most the fit window over this, a day of 14: 16 hours where attempts are hourly. Blocks twice
as long cost .0015 of log loss on flights, half as long save .0009 and are fooled by a day's weather more often."""


def surpasses(gain: float, error: float, bar: float) -> bool:
    """Whether a gain is above `bar` and above its standard error."""
    # The error of a lone block is the gain itself, but for rounding.
    return gain > bar and gain > error * (1.0 + 1e-9)


class Evidence:
    """Gains of the challengers since the last change.

    Parameters
    ----------
    families : sequence of str
    every_ms : int
        Length of the first blocks.
    window_ms : int
        The fit window.
    bar : float
        Nats that a challenger has to gain.

    Attributes
    ----------
    gain : float64[F]
        Sums over everything since the last change, kept between `FLOOR` and twice the bar.
    n, positives : int
        Rows judged since then.
    block_ms : int
        Present length of a block.
    blocks : int64[B]
        Block numbers (time // `block_ms`), ascending.
    sums : float64[B, F]
        Gains of each block.
    """

    STATE = ("gain", "n", "positives", "block_ms", "blocks", "sums")

    def __init__(self, families: Sequence[str], every_ms: int, window_ms: int, bar: float) -> None:
        self.families = tuple(families)
        self.every_ms = every_ms
        self.bar = bar
        doublings = max(int(math.log2(max(window_ms / LONGEST_SHARE / every_ms, 1.0))), 0)
        self.longest_ms = every_ms << doublings
        self.restart()

    def restart(self) -> None:
        """Begin again: the map in force has changed."""
        size = len(self.families)
        self.gain: Floats = np.zeros(size)
        self.n = self.positives = 0
        self.block_ms = self.every_ms
        self.blocks: Ints = np.empty(0, dtype=np.int64)
        self.sums: Floats = np.empty((0, size))

    def add(self, moment_ms: int, gains: Mapping[str, float], n: int, positives: int) -> None:
        """Add the gains of rows that became known at `moment_ms` or shortly before."""
        gained = np.array([gains[family] for family in self.families])
        self.gain = np.clip(self.gain + gained, FLOOR, CEILING * self.bar)
        self.n += n
        self.positives += positives
        block = (moment_ms - 1) // self.block_ms
        if len(self.blocks) and self.blocks[-1] == block:
            self.sums[-1] += gained
        else:
            self.blocks = np.append(self.blocks, block)
            self.sums = np.concatenate([self.sums, gained[None]])
        while len(self.blocks) > MOST_BLOCKS:
            self._make_room()

    def gain_of(self, family: str) -> float:
        """Gain of one challenger since the last change, in nats."""
        return float(self.gain[self.families.index(family)])

    def recent(self, family: str, over: str | None = None) -> tuple[float, float]:
        """Gain over the blocks held, over the map in force or another challenger, and its standard error.

        The error is infinite while there are fewer than `MIN_BLOCKS`.
        """
        found = self.sums[:, self.families.index(family)]
        if over is not None:
            found = found - self.sums[:, self.families.index(over)]
        if len(found) < MIN_BLOCKS:
            return float(found.sum()), math.inf
        return float(found.sum()), float(np.sqrt(len(found) * found.var(ddof=1)))

    def suffices(self, family: str) -> bool:
        """Whether a challenger has gained the bar, and of late more than its standard error."""
        gain, error = self.recent(family)
        return self.gain_of(family) >= self.bar and surpasses(gain, error, 0.0)

    def _make_room(self) -> None:
        """Merge pairs of blocks, or drop the oldest where they are as long as they get."""
        if self.block_ms >= self.longest_ms:
            self.blocks, self.sums = self.blocks[1:], self.sums[1:]
            return
        self.block_ms *= 2
        merged, place = np.unique(self.blocks // 2, return_inverse=True)
        sums = np.zeros((len(merged), self.sums.shape[1]))
        np.add.at(sums, place, self.sums)
        self.blocks, self.sums = merged, sums
