"""What corrections per segment of one model learn from: raw scores in the frozen parts of panes, told apart by segment.

The same rows as in `streamcal.stats.fit_panes`, kept only until an attempt has read them: what is learned from them is
a few sums per segment. A cell is one segment of one cut, one step of prediction and one bin.

Code within a segment: how many steps before the end of its pane a row was predicted, and its bin. Steps back are
small where steps since 1970 are not, so that codes of many segments and panes fit into 62 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.state.trees import dump_fields, load_fields
from streamcal.stats.cells import Cells, PaneStore, reduce_cells
from streamcal.stats.counts import PLAIN
from streamcal.stats.layout import N_BINS
from streamcal.stats.series import SeriesTable
from streamcal.stream.events import OTHER

__all__ = ["SEGMENT_CODES", "SegmentPanes", "SegmentsEntered", "segment_codes"]

Ints = NDArray[np.int64]

_MOST_STEPS: Final = 1 << 22
"""Steps back that are told apart: 119 years of quarters of an hour, 48 days of seconds; rows beyond share the last."""

SEGMENT_CODES: Final = _MOST_STEPS * N_BINS
"""Codes of one segment."""


def segment_codes(pane: Ints, predicted_ms: Ints, bins: NDArray[np.intp], pane_ms: int, step_ms: int) -> Ints:
    """Codes of rows within their segment; int64 (n,)."""
    back = (pane + 1) * pane_ms // step_ms - predicted_ms // step_ms
    return np.asarray(np.clip(back, 0, _MOST_STEPS - 1) * N_BINS + bins)


@dataclass(frozen=True, slots=True)
class SegmentsEntered:
    """Rows of the panes that an attempt reads for the first time: one cell per step of prediction, segment and bin.

    Attributes
    ----------
    keys : tuple of tuple of str
        Values of each segment, one per dimension of the cut; ascending.
    step, segment, bins : int64[M]
        Ascending by step, then segment (a place in `keys`), then bin.
    values : int64[M, K]
    """

    keys: tuple[tuple[str, ...], ...]
    step: Ints
    segment: Ints
    bins: Ints
    values: Ints

    def __len__(self) -> int:
        return len(self.step)


class SegmentPanes:
    """Frozen parts of panes by segment of one cut, until they are taken.

    What is taken depends on the rows alone, not on the order in which segments came: they are in the order of their
    values. ``__other__`` is left out, since no producer can know who is in it.

    Parameters
    ----------
    series : SeriesTable
        Of its own: numbers are used again once nothing of a segment waits.
    cut : int
        Number of the cut.
    pane_ms, step_ms : int
    """

    _STATE = ("series", "_store", "_read_until")

    def __init__(self, series: SeriesTable, cut: int, pane_ms: int, step_ms: int) -> None:
        self.series = series
        self._cut = cut
        self._pane_ms, self._step_ms = pane_ms, step_ms
        self._store = PaneStore()
        self._read_until: int | None = None

    def dump_state(self) -> dict[str, Any]:
        """What waits, and of which cut it is."""
        return {"cut": self._cut, "rest": dump_fields(self, self._STATE)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote; what waits of another cut, since configured away, is left out."""
        names = self._STATE if state["cut"] == self._cut else ("_read_until",)
        load_fields(self, names, {name: state["rest"][name] for name in names})

    @property
    def nbytes(self) -> int:
        """Bytes of what waits."""
        return self._store.nbytes

    def fold(
        self,
        model: NDArray[np.int32],
        profile: NDArray[np.int32],
        pane: Ints,
        predicted_ms: Ints,
        bins: NDArray[np.intp],
        values: Ints,
    ) -> None:
        """Count rows, shape (n,) each and (n, K)."""
        series = self.series.of_rows(model, profile)[self._cut]
        code = segment_codes(pane, predicted_ms, bins, self._pane_ms, self._step_ms)
        self.add(pane, Cells(series * SEGMENT_CODES + code, values))

    def add(self, pane: Ints, cells: Cells) -> None:
        """Count cells of panes, shape (n,), by the numbers of `series`, as far as their panes have not been read."""
        if self._read_until is not None and (pane < self._read_until).any():
            unread = pane >= self._read_until
            pane, cells = pane[unread], Cells(cells.code[unread], cells.values[unread])
        self._store.add(pane, cells.code, cells.values)

    def take(self, start: int, stop: int) -> SegmentsEntered:
        """Rows of the panes before `stop` that were not taken before, those before `start` left out."""
        first = start if self._read_until is None else max(start, self._read_until)
        self._read_until = max(stop, first)
        dropped = self._store.drop_before(self._read_until)
        keys = {} if dropped is None else self._keys(dropped[1].code // SEGMENT_CODES)
        self._free()
        if dropped is None or not keys:
            none = np.empty(0, dtype=np.int64)
            return SegmentsEntered((), none, none, none, np.empty((0, PLAIN), dtype=np.int64))
        pane, cells = dropped
        number, code = np.divmod(cells.code, SEGMENT_CODES)
        ordered = sorted(keys, key=keys.__getitem__)
        place = np.full(len(self.series) + 1, -1, dtype=np.int64)
        place[ordered] = np.arange(len(ordered))
        held = (pane >= first) & (place[number] >= 0)
        step = (pane + 1) * self._pane_ms // self._step_ms - code // N_BINS
        return _merged(
            tuple(keys[number] for number in ordered),
            step[held],
            place[number[held]],
            code[held] % N_BINS,
            cells.values[held],
        )

    def promote(self, promote: Callable[[Ints], Ints]) -> None:
        """Widen when the stream becomes weighted."""
        self._store.promote(promote)

    def _keys(self, numbers: Ints) -> dict[int, tuple[str, ...]]:
        """Values of segments that a producer can name, by number."""
        found = {number: self.series.key(number)[2] for number in np.unique(numbers).tolist()}
        return {number: values for number, values in found.items() if OTHER not in values}

    def _free(self) -> None:
        """Let numbers be used again of which nothing waits."""
        held = {
            number
            for pane in self._store.panes()
            for number in np.unique(self._store.of_pane(pane).code // SEGMENT_CODES).tolist()
        }
        self.series.free([number for number in self.series.in_use() if number not in held])


def _merged(keys: tuple[tuple[str, ...], ...], step: Ints, segment: Ints, bins: Ints, values: Ints) -> SegmentsEntered:
    """Cells of all panes in one; those that a correction emptied are left out."""
    cells = reduce_cells((step * len(keys) + segment) * N_BINS + bins, values).filled()
    rest, bins = np.divmod(cells.code, N_BINS)
    step, segment = np.divmod(rest, len(keys))
    return SegmentsEntered(keys, step, segment, bins, cells.values)
