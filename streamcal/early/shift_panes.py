"""Scores of every series by prediction time, for each window and for the longest window before it.

Windows here end with the event time of the *predictions*: what needs no label does not wait for the outcomes. Time is
cut into slots, several panes long where the shortest window has many, and a window ends with the slot that holds the
moment before event time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamcal.early.score_shift import population_stability
from streamcal.early.tallying import tallied
from streamcal.snapshot import ScoreShift, Series
from streamcal.stats.aggregate_settings import WindowSpec
from streamcal.stats.cells import PaneStore
from streamcal.stats.layout import N_BINS, bin_index
from streamcal.stats.series import SeriesTable
from streamcal.stats.windows import WindowTotal
from streamcal.stream.arrivals import Accepted
from streamcal.stream.events import Names

__all__ = ["ShiftPanes", "score_cells", "slot_panes"]

_LEAST_SLOTS = 12
"""Slots of the shortest window: its end is true to a twelfth; in slots of five minutes a day has 288."""

_FARTHEST = 1 << 16
_NEVER = np.iinfo(np.int64).min

Ints = NDArray[np.int64]


def slot_panes(windows: Sequence[int]) -> int:
    """Panes of a slot: the most that divide every window, at most a twelfth of the shortest.

    >>> slot_panes([60, 1440]), slot_panes([7, 30])
    (5, 1)
    """
    shared = math.gcd(*windows)
    most = min(windows) // _LEAST_SLOTS
    return max((d for d in range(1, most + 1) if shared % d == 0), default=1)


def score_cells(accepted: Accepted, series: SeriesTable, slot_ms: int) -> tuple[Ints, Ints, Ints]:
    """Slot, code (``series * 284 + bin``) and rows of each cell of predictions; `accepted` is not empty.

    Series are numbered by `series`; cells may repeat.
    """
    slot = accepted.time_ms // slot_ms
    slots, place = _places(slot)
    profiles = int(accepted.profile.max()) + 1
    event = accepted.model.astype(np.int64) * profiles + accepted.profile
    code, (rows,) = tallied((event * len(slots) + place) * N_BINS + bin_index(accepted.score))
    event, slot, bins = code // (len(slots) * N_BINS), slots[code // N_BINS % len(slots)], code % N_BINS
    numbers = series.of_rows((event // profiles).astype(np.int32), (event % profiles).astype(np.int32))
    cuts = len(numbers)
    return np.tile(slot, cuts), (numbers * N_BINS + bins).ravel(), np.tile(rows, cuts)


@dataclass(frozen=True, slots=True)
class _Compared:
    name: str
    slots: int
    current: WindowTotal
    reference: WindowTotal


@dataclass(slots=True)
class ShiftPanes:
    """Rows by score bin, for all models; code ``series * 284 + bin``, rows counted once, unweighted.

    Guarantee: counts are the exact sum of the predictions folded in, whatever the order.

    Parameters
    ----------
    names : Names
    cuts : sequence of tuple of str
    max_segments : int
        Beyond it the segments of a cut share ``__other__``.
    pane_ms : int
    windows : sequence of WindowSpec
        The longest is the reference of the others.
    """

    STATE: ClassVar = ("series", "_store", "_totals", "_last_slot", "_stop")

    names: Names
    cuts: Sequence[tuple[str, ...]]
    max_segments: int
    pane_ms: int
    windows: Sequence[WindowSpec]
    series: SeriesTable = field(init=False)
    _compared: list[_Compared] = field(init=False)
    _store: PaneStore = field(default_factory=PaneStore)
    slot_ms: int = field(init=False)
    _longest: int = field(init=False)
    _last_slot: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _stop: int = 0

    def __post_init__(self) -> None:
        self.series = SeriesTable(self.names, self.cuts, self.max_segments)
        slot = slot_panes([spec.panes for spec in self.windows])
        self.slot_ms = slot * self.pane_ms
        self._longest = max(spec.panes for spec in self.windows) // slot
        totals = {
            spec.name: (spec.panes // slot, WindowTotal(self._store, 1, N_BINS), WindowTotal(self._store, 1, N_BINS))
            for spec in self.windows
        }
        self._compared = [_Compared(name, *held) for name, held in totals.items() if held[0] < self._longest]

    @property
    def _totals(self) -> dict[str, WindowTotal]:
        held = {f"{c.name} current": c.current for c in self._compared}
        return held | {f"{c.name} reference": c.reference for c in self._compared}

    def state_child(self, name: str, key: str) -> WindowTotal:
        """A total by its name."""
        held: WindowTotal = getattr(self, name)[key]
        return held

    @property
    def nbytes(self) -> int:
        """Bytes of all counts."""
        return self._store.nbytes + sum(c.current.values.nbytes + c.reference.values.nbytes for c in self._compared)

    def fold(self, accepted: Accepted) -> None:
        """Count predictions."""
        if self._compared and len(accepted):
            self.add(*score_cells(accepted, self.series, self.slot_ms))

    def add(self, slot: Ints, code: Ints, rows: Ints) -> None:
        """Count cells, numbered by `series`; shape (n,) each."""
        if not self._compared or not len(slot):
            return
        self._note(code // N_BINS, slot)
        panes, cells = self._store.add(slot, code, rows[:, None])
        for compared in self._compared:
            compared.current.add(panes, cells)
            compared.reference.add(panes, cells)

    def advance(self, event_time_ms: int) -> None:
        """Let the windows end with `event_time_ms`, that of the predictions; forget what left them."""
        stop = -(-event_time_ms // self.slot_ms)
        if stop <= self._stop or not self._compared:
            return
        self._stop = stop
        for compared in self._compared:
            start = stop - compared.slots
            compared.current.move(start, stop)
            compared.reference.move(start - self._longest, start)
        oldest = min(compared.reference.start for compared in self._compared)
        self._store.drop_before(oldest)
        quiet = np.flatnonzero((self._last_slot < oldest) & (self._last_slot != _NEVER))
        quiet = quiet[~self.series.is_whole()[quiet]]
        self._last_slot[quiet] = _NEVER
        self.series.free(quiet.tolist())

    @property
    def kept_from(self) -> int:
        """First slot that is still of use."""
        return self._stop - 2 * self._longest

    def shifts(self) -> dict[int, dict[tuple[Series, str], ScoreShift]]:
        """Per model index, the shift of each series and window that has rows enough on both sides."""
        alive = [_alive(total) for c in self._compared for total in (c.current, c.reference)]
        if not alive:
            return {}
        published = self.series.published(np.unique(np.concatenate(alive)))
        found: dict[int, dict[tuple[Series, str], ScoreShift]] = {}
        for compared in self._compared:
            current, reference = (_summed(t, list(published.values())) for t in (compared.current, compared.reference))
            index, floor = population_stability(current, reference)
            for place, (model, labels) in enumerate(published):
                if not np.isnan(index[place]):
                    shift = ScoreShift(float(index[place]), float(floor[place]))
                    found.setdefault(model, {})[labels, compared.name] = shift
        return found

    def _note(self, series: Ints, slot: Ints) -> None:
        held = len(self._last_slot)
        if len(self.series) > held:
            room = np.full(max(len(self.series), 2 * held) - held, _NEVER, dtype=np.int64)
            self._last_slot = np.concatenate([self._last_slot, room])
        np.maximum.at(self._last_slot, series, slot)
        np.minimum.at(self.series.first_pane, series, slot)


def _places(slot: Ints) -> tuple[Ints, Ints]:
    """Slots as a table and the place of each row in it: a run, or the distinct ones where they lie far apart."""
    first, last = int(slot.min()), int(slot.max())
    if last - first < _FARTHEST:
        return np.arange(first, last + 1), slot - first
    return np.unique(slot, return_inverse=True)


def _alive(total: WindowTotal) -> Ints:
    return np.flatnonzero(total.values.reshape(-1, N_BINS).any(axis=1))


def _summed(total: WindowTotal, members: Sequence[Sequence[int]]) -> Ints:
    """Rows per bin of each group of series, shape (len(members), 284)."""
    dense = total.values.reshape(-1, N_BINS)
    lengths = [len(numbers) for numbers in members]
    numbers = np.array([n for held in members for n in held], dtype=np.int64)
    rows = np.zeros((len(numbers), N_BINS), dtype=np.int64)
    inside = numbers < len(dense)
    rows[inside] = dense[numbers[inside]]
    if max(lengths, default=1) == 1:
        return rows
    return np.add.reduceat(rows, np.cumsum([0, *lengths[:-1]]), axis=0)
