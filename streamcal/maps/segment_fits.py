"""What segments differ by from each map that might be in force: followed for all of them, whatever is in force.

For every reference (a family's newest fit, or a map of another origin) a `SegmentTracker` follows the gaps of all
segments. All trackers, and all tables that are remembered, have one entry per segment held, in the order of their
values, so nothing depends on the order in which segments came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Map
from streamcal.maps.judged import JudgedRows, weighed, weighs
from streamcal.maps.laplace import Rows
from streamcal.maps.levels import Key, Levels
from streamcal.maps.link import logit
from streamcal.maps.segments import SegmentTracker
from streamcal.state.trees import recorded
from streamcal.stats.cells import reduce_cells
from streamcal.stats.layout import N_BINS
from streamcal.stats.segment_panes import SegmentsEntered

__all__ = ["Lines", "SegmentFits"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]

QUIET: Final = 0.01
"""Information of a segment's offset from which nothing is left of it but its parent: a standard error of 10 logits."""

_UNIT_MS: Final = 60_000


@recorded
class Lines(NamedTuple):
    """What is added to the served logit, and to its slope, by level, coarsest first without the root."""

    intercepts: tuple[Floats, ...]
    slopes: tuple[Floats, ...]


class SegmentFits:
    """Gaps of segments to maps.

    Parameters
    ----------
    dimensions : sequence of str
        Of the finest segments; each prefix is a level above.
    half_life_ms : float
    most : int
        Segments held: of more, those of which most is known.

    Attributes
    ----------
    levels : Levels
        The segments held.
    tables : list of Lines
        Tables that are remembered; they follow the segments held.
    """

    STATE = ("tables", "_keys", "_trackers", "_newest", "_learned_ms")

    def __init__(self, dimensions: Sequence[str], half_life_ms: float, most: int) -> None:
        self._dimensions = tuple(dimensions)
        self._most = most
        self._half_life = half_life_ms / _UNIT_MS
        self._keys: list[Key] = []
        self._trackers: dict[str, SegmentTracker] = {}
        self._newest: dict[str, Lines] = {}
        self._learned_ms: int | None = None
        self.levels = Levels(dimensions, [])
        self.tables: list[Lines] = []

    def state_child(self, _name: str, key: str) -> SegmentTracker:
        """The tracker of a reference."""
        return self._tracker(key)

    def state_loaded(self) -> None:
        """Find the levels of what was loaded."""
        self.levels = Levels(self._dimensions, self._keys)

    def newest(self, reference: str) -> Lines:
        """The newest gaps to a reference; none where nothing has been learned of it."""
        found = self._newest.get(reference)
        if found is not None:
            return found
        zeros = tuple(np.zeros(len(keys)) for keys in self.levels.keys)
        return Lines(zeros, zeros)

    def forget(self, reference: str) -> None:
        """Begin again with a reference."""
        self._trackers.pop(reference, None)
        self._newest.pop(reference, None)

    def learn(self, entered: SegmentsEntered, maps: Mapping[str, Map], moment_ms: int) -> None:
        """Follow the gaps of segments to what `maps` serve, by reference."""
        last, self._learned_ms = self._learned_ms, moment_ms
        steps = 1 if last is None else max((moment_ms - last) // _UNIT_MS, 1)
        self._hold(sorted({*self._keys, *entered.keys}))
        of_key = _order(self._keys, entered.keys)
        cells = reduce_cells(of_key[entered.segment] * N_BINS + entered.bins, entered.values)
        held = weighs(cells.values)
        segment, bins = np.divmod(cells.code[held], N_BINS)
        rows = weighed(segment, bins, cells.values[held], segment)
        for reference, map_ in maps.items():
            self._learn(reference, map_, rows, segment.astype(np.intp), steps)
        self._forget_quiet()

    def of_segments(self, table: Lines, keys: Sequence[Key]) -> tuple[Floats, Floats]:
        """Intercept and change of slope of each segment, its parent's where it is not held."""
        intercept, slope = np.zeros(len(keys)), np.zeros(len(keys))
        for level, held in enumerate(self.levels.keys):
            order = _order(held, [key[: level + 1] for key in keys])
            known = order >= 0
            intercept[known] = table.intercepts[level][order[known]]
            slope[known] = table.slopes[level][order[known]]
        return intercept, slope

    def _learn(self, reference: str, map_: Map, rows: JudgedRows, segment: Indices, steps: int) -> None:
        z = np.asarray(logit(map_.apply(rows.score)))
        merged = Rows(rows.weight, rows.positive, z)
        found = self._tracker(reference).update(steps, merged, segment, z, self.levels.parents)
        self._newest[reference] = Lines(found.intercepts[1:], found.slopes[1:])

    def _tracker(self, reference: str) -> SegmentTracker:
        if reference not in self._trackers:
            self._trackers[reference] = SegmentTracker(self._half_life)
            self._trackers[reference].rearrange(np.full(len(self._keys), -1, dtype=np.intp))
        return self._trackers[reference]

    def _hold(self, keys: list[Key]) -> None:
        """Hold these segments, ascending; new ones have had what their parents had."""
        if keys == self._keys:
            return
        before, self._keys = self.levels, keys
        self.levels = Levels(self._dimensions, keys)
        orders = [_order(old, new) for old, new in zip(before.keys, self.levels.keys, strict=True)]
        for tracker in self._trackers.values():
            tracker.rearrange(orders[-1])
        parents = self.levels.parents[::-1]
        self.tables[:] = [_rearranged(table, orders, parents) for table in self.tables]
        self._newest = {name: _rearranged(table, orders, parents) for name, table in self._newest.items()}

    def _forget_quiet(self) -> None:
        if not self._trackers or not self._keys:
            return
        known = np.max([tracker.information for tracker in self._trackers.values()], axis=0)
        kept = known >= QUIET
        if kept.sum() > self._most:
            kept[np.argsort(-known, kind="stable")[self._most :]] = False
        if not kept.all():
            self._hold([key for key, keep in zip(self._keys, kept.tolist(), strict=True) if keep])


def _order(old: Sequence[Key], new: Sequence[Key]) -> Indices:
    """Where each of `new` is in `old`, -1 where it is not."""
    place = {key: number for number, key in enumerate(old)}
    return np.array([place.get(key, -1) for key in new], dtype=np.intp)


def _rearranged(table: Lines, orders: Sequence[Indices], parents: Sequence[Indices]) -> Lines:
    """The table of other segments; what was not there has what its parent has. All by level, coarsest first."""
    moved = []
    for lines in table:
        above, levels = np.zeros(1), []
        for held, order, parent in zip(lines, orders, parents, strict=True):
            value = above[parent]
            value[order >= 0] = held[order[order >= 0]]
            levels.append(value)
            above = value
        moved.append(tuple(levels))
    return Lines(*moved)
