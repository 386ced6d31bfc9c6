"""What segments add to the global map: an offset each and, where data allow, a change of slope.

The global map comes first, the segments stand on it. With s what is served to a segment now, one Newton step from the
offset in place asks for g = sum (y - s) and I = sum s (1 - s). `SegmentSums` keep I * offset + g in place of g, so that
sums taken at different offsets add, and fade; each step of a `SegmentTracker`, and each round of `pool_rows`, starts
where the last one ended. That makes the single step exact where offsets are large, and where one positive in a segment
of few would send it far off: it never starts from the segment's own estimate, but from the shrunk one.

A slope turns about `pivot`, the mean logit by weight s (1 - s), where it hardly touches the offset. It is estimated
beside the offset, shrunk about the global slope, and left at its parent's below `SLOPE_POSITIVES` positives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from streamcal.maps.laplace import Rows
from streamcal.maps.pooling import level_sizes, pool

__all__ = [
    "SegmentOffsets",
    "SegmentSums",
    "SegmentTracker",
    "no_offsets",
    "pool_rows",
    "segment_offsets",
    "segment_sums",
]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

SLOPE_POSITIVES: Final = 200.0
"""Standard error .05 to .07 of the slope: less cannot tell a slope of .9 from 1."""

STEEPEST_FALL: Final = -0.9
"""Change of slope down to which an estimate is believed: a map falls with the score from -1 on."""

ROUNDS: Final = 30
"""Most rounds of `pool_rows`. Newton's steps settle in five; the rest is for tau, which moves with the offsets."""

SETTLED: Final = 1e-9
"""Logits by which a round may still move an offset."""


class SegmentSums(NamedTuple):
    """A quadratic about each segment's log likelihood, in (offset, change of slope); every array is float64[S].

    `linear_*` is I * value + score at the values it was taken at, the others the matrix I over (1, raw logit);
    `positives` the weight of positive rows.
    """

    linear_offset: Floats
    linear_slope: Floats
    offset_offset: Floats
    offset_slope: Floats
    slope_slope: Floats
    positives: Floats


@dataclass(frozen=True, slots=True)
class SegmentOffsets:
    """What segments add, by level, coarsest (the root, one entry) first.

    The served logit of a segment is the global one plus ``intercepts + slopes * x``, x the raw logit.

    Attributes
    ----------
    intercepts, slopes : tuple of float64 arrays
    tau, slope_tau : tuple of float
        How far each level differs from its parents; offsets are compared at `pivot`.
    pivot : float
    """

    intercepts: tuple[Floats, ...]
    slopes: tuple[Floats, ...]
    tau: tuple[float, ...]
    slope_tau: tuple[float, ...]
    pivot: float


def no_offsets(parents: Sequence[Indices]) -> SegmentOffsets:
    """The global map for every segment."""
    zeros = tuple(np.zeros(size) for size in reversed(level_sizes(parents)))
    none = (0.0,) * len(parents)
    return SegmentOffsets(zeros, zeros, none, none, 0.0)


def segment_sums(rows: Rows, segment: Indices, global_logit: Floats, intercept: Floats, slope: Floats) -> SegmentSums:
    """Sums of rows at the offsets in place.

    Parameters
    ----------
    rows : Rows
        By segment of the finest level and bin.
    segment : intp[M]
    global_logit : float64[M]
        What the global map serves.
    intercept, slope : float64[S]
        In place, finest level.
    """
    x, size = rows.logit, len(intercept)
    added = intercept[segment] + slope[segment] * x
    served = expit(global_logit + added)
    spread = rows.weight * served * (1.0 - served)
    linear = rows.positive - rows.weight * served + spread * added
    columns = (linear, linear * x, spread, spread * x, spread * x * x, rows.positive)
    return SegmentSums(*(np.bincount(segment, column, size).astype(np.float64) for column in columns))


def segment_offsets(
    sums: SegmentSums, parents: Sequence[Indices], *, slopes: bool = True, root_sd: float = np.inf
) -> SegmentOffsets:
    """Pool slopes where data allow and turn no map over, then offsets beside them.

    Parameters
    ----------
    sums : SegmentSums
    parents : sequence of intp arrays
        As `pool` takes them.
    slopes : bool
        Whether segments may turn the slope.
    root_sd : float
        Prior of the offset that all segments have in common; 0 leaves it to the global map.
    """
    information = sums.offset_offset
    total = float(information.sum())
    pivot = float(sums.offset_slope.sum()) / total if total > 0 else 0.0
    safe = np.where(information > 0, information, 1.0)
    # The same quadratic over (1, x - pivot).
    linear_slope = sums.linear_slope - pivot * sums.linear_offset
    cross = sums.offset_slope - pivot * information
    curvature = sums.slope_slope - 2.0 * pivot * sums.offset_slope + pivot * pivot * information

    profile = curvature - cross * cross / safe
    enough = (sums.positives > SLOPE_POSITIVES) & (profile > 0) & slopes
    turn = (linear_slope - cross * sums.linear_offset / safe) / np.where(enough, profile, 1.0)
    enough &= turn > STEEPEST_FALL  # labels that fall as scores rise are no change of slope
    turned = pool(turn, np.where(enough, profile, 0.0), parents, root_variance=0.0)
    about = (sums.linear_offset - cross * turned.offsets[-1]) / safe
    moved = pool(about, information, parents, root_variance=root_sd**2)
    intercepts = tuple(move - pivot * slope for move, slope in zip(moved.offsets, turned.offsets, strict=True))
    return SegmentOffsets(intercepts, turned.offsets, moved.tau, turned.tau, pivot)


def pool_rows(
    rows: Rows,
    segment: Indices,
    global_logit: Floats,
    parents: Sequence[Indices],
    *,
    slopes: bool = True,
    root_sd: float = np.inf,
) -> SegmentOffsets:
    """Offsets from the counts of a window, repeated from their own result until they settle.

    Parameters
    ----------
    rows, segment, global_logit
        As `segment_sums` takes them.
    parents, slopes, root_sd
        As `segment_offsets` takes them.
    """
    at = no_offsets(parents)
    for _ in range(ROUNDS):
        intercept, slope = at.intercepts[-1], at.slopes[-1]
        sums = segment_sums(rows, segment, global_logit, intercept, slope)
        at = segment_offsets(sums, parents, slopes=slopes, root_sd=root_sd)
        moved = np.abs(at.intercepts[-1] - intercept) + np.abs(at.slopes[-1] - slope)
        if float(moved.max(initial=0.0)) < SETTLED:
            break
    return at


class SegmentTracker:
    """Offsets that follow the stream: sums that fade by half in `half_life_steps`.

    Faded sums weigh less against the prior, so a segment gone quiet goes back to its parent by itself.
    Invariant: sums and offsets have one entry per segment of the finest level.

    Parameters
    ----------
    half_life_steps : float
    slopes : bool
    root_sd : float
        0: the global map follows what all segments have in common.
    """

    STATE = ("_sums", "_intercept", "_slope")

    def __init__(self, half_life_steps: float, *, slopes: bool = True, root_sd: float = 0.0) -> None:
        self._keep = 0.5 ** (1.0 / half_life_steps)
        self._slopes, self._root_sd = slopes, root_sd
        self._sums = np.zeros((len(SegmentSums._fields), 0))
        self._intercept = np.zeros(0)
        self._slope = np.zeros(0)

    def update(
        self, steps: int, rows: Rows, segment: Indices, global_logit: Floats, parents: Sequence[Indices]
    ) -> SegmentOffsets:
        """Offsets in force after `steps` steps, the last of which brought `rows`.

        Parameters
        ----------
        steps : int
            At least 1; quiet ones before it included.
        rows, segment, global_logit
            As `segment_sums` takes them, `global_logit` by the global map that will be in force beside the offsets.
        parents : sequence of intp arrays
            As `pool` takes them. Segments may be added from one call to the next, numbers keep their meaning.
        """
        grown = len(parents[0]) - len(self._intercept)
        if grown > 0:
            self._sums = np.pad(self._sums, ((0, 0), (0, grown)))
            self._intercept, self._slope = np.pad(self._intercept, (0, grown)), np.pad(self._slope, (0, grown))
        self._sums *= self._keep**steps
        if len(segment):
            self._sums += np.stack(segment_sums(rows, segment, global_logit, self._intercept, self._slope))
        found = segment_offsets(SegmentSums(*self._sums), parents, slopes=self._slopes, root_sd=self._root_sd)
        self._intercept, self._slope = found.intercepts[-1], found.slopes[-1]
        return found

    def rearrange(self, order: Indices) -> None:
        """Give segments other numbers: segment i is what `order[i]` was, and begins anew where that is -1."""
        kept = order >= 0
        self._sums, self._intercept, self._slope = (
            np.where(kept, held[..., order], 0.0) if held.shape[-1] else np.zeros((*held.shape[:-1], len(order)))
            for held in (self._sums, self._intercept, self._slope)
        )

    @property
    def information(self) -> Floats:
        """What is known of each segment's offset: the inverse of its variance; float64[S]."""
        return np.asarray(self._sums[SegmentSums._fields.index("offset_offset")])
