"""Served counts of every series by prediction-time pane, kept until the detector has weighed them.

Series are numbered here by themselves, not as in the windows: a segment may be quiet in every window while panes
of it still wait for the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.snapshot import Series
from streamcal.stats.cells import Cells, PaneStore, reduce_cells
from streamcal.stats.counts import PLAIN
from streamcal.stats.layout import N_BINS
from streamcal.stats.scored import Scored
from streamcal.stats.series import SeriesTable
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import Names

__all__ = ["WatchPanes"]

Ints = NDArray[np.int64]

QUIET_DAYS = 30
"""A series is forgotten after a month, the span of the false-alarm budget, without a row."""

_DAY_MS = 86_400_000


class WatchPanes:
    """Panes for all models; code ``series * 284 + bin``, unweighted columns only.

    Guarantee: a pane is the exact sum of the rows folded into it, whatever the order.
    """

    def __init__(self, names: Names, cuts: Sequence[tuple[str, ...]], max_segments: int, pane_ms: int) -> None:
        self.series = SeriesTable(names, cuts, max_segments)
        self._max_segments = max_segments
        self._pane_ms = pane_ms
        self._stores: dict[int, PaneStore] = {}
        self._last_pane: Ints = np.empty(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all panes."""
        return sum(store.nbytes for store in self._stores.values())

    def of_model(self, model: int) -> PaneStore:
        """The panes of a model index."""
        return self._stores.setdefault(model, PaneStore())

    def fold(self, changes: RowChanges, served: Scored) -> None:
        """Count row changes by their served contributions."""
        series = self.series.of_rows(changes.model, changes.profile)
        pane = changes.prediction_ms // self._pane_ms
        self._note(series, pane)
        code = (series[:, served.row] * N_BINS + served.bins).ravel()
        values = np.tile(served.values[:, :PLAIN], (len(series), 1))
        row = np.tile(served.row, len(series))
        for model in np.unique(changes.model).tolist():
            mine = changes.model[row] == model
            self.of_model(model).add(pane[row[mine]], code[mine], values[mine])

    def shared(self, model: int, cells: Cells) -> Cells:
        """The cells of a pane with what is beyond `max_segments` of a cut put under its ``__other__``."""
        members = self.series.of_model(model)
        if len(members) <= self._max_segments:
            return cells
        moved = np.arange(len(self.series))
        for numbers in self.series.published(np.array(members, dtype=np.int64)).values():
            if len(numbers) > 1:
                moved[numbers] = self.series.other_of(numbers[0])
        series, bins = cells.code // N_BINS, cells.code % N_BINS
        return reduce_cells(moved[series] * N_BINS + bins, cells.values)

    def forget_quiet(self, model: int, before: int) -> Ints:
        """Give up the series of a model without a row in the month before pane `before`; returns their numbers."""
        oldest = before - QUIET_DAYS * _DAY_MS // self._pane_ms
        members = np.array(self.series.of_model(model), dtype=np.int64)
        quiet = members[(self._last_pane[members] < oldest) & ~self.series.is_whole()[members]]
        self.series.free(quiet.tolist())
        return quiet

    def labelled(self, model: int) -> dict[Series, int]:
        """Number of every series of a model by its labels."""
        return {self.series.label(number): number for number in self.series.of_model(model)}

    def _note(self, series: Ints, pane: Ints) -> None:
        held = len(self._last_pane)
        if len(self.series) > held:
            room = np.full(max(len(self.series), 2 * held) - held, np.iinfo(np.int64).min, dtype=np.int64)
            self._last_pane = np.concatenate([self._last_pane, room])
        for cut in series:
            np.maximum.at(self._last_pane, cut, pane)
            np.minimum.at(self.series.first_pane, cut, pane)
