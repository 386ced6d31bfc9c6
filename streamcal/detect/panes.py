"""Served counts of every series by prediction-time pane, kept until the detector has weighed them.

Series are numbered here by themselves, not as in the windows: a segment may be quiet in every window while panes
of it still wait for the horizon. Who has a place of its own under the cap, and who is forgotten, is decided pane by
pane as they are weighed, and by nothing that was folded ahead of that: so evidence does not depend on arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.snapshot import Series
from streamcal.stats.cells import Cells, PaneStore, reduce_cells
from streamcal.stats.counts import PLAIN
from streamcal.stats.layout import N_BINS
from streamcal.stats.scored import Scored
from streamcal.stats.series import SeriesTable, segment_label
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import OTHER, Names

__all__ = ["WatchPanes"]

Ints = NDArray[np.int64]

QUIET_DAYS = 30
"""A series is forgotten after a month, the span of the false-alarm budget, without a row."""

_DAY_MS = 86_400_000
_NEVER = np.iinfo(np.int64).min


class WatchPanes:
    """Panes for all models; code ``series * 284 + bin``, unweighted columns only.

    Guarantee: a pane is the exact sum of the rows folded into it, whatever the order; what becomes of it when it is
    weighed depends on the panes weighed before it alone (up to four times `max_segments` per cut; of segments
    beyond that, those that arrive first are told apart).
    """

    STATE = ("series", "_stores", "_taken", "_own", "_folded", "_weighed")

    def __init__(self, names: Names, cuts: Sequence[tuple[str, ...]], max_segments: int, pane_ms: int) -> None:
        self.series = SeriesTable(names, cuts, max_segments)
        self.panes_per_day = _DAY_MS // pane_ms
        self._max_segments = max_segments
        self._pane_ms = pane_ms
        self._stores: dict[int, PaneStore] = {}
        self._others = {",".join(cut): segment_label(cut, (OTHER,) * len(cut)) for cut in cuts}
        self._taken: Counter[tuple[int, str]] = Counter()
        self._own: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._folded: Ints = np.empty(0, dtype=np.int64)
        self._weighed: Ints = np.empty(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all panes."""
        return sum(store.nbytes for store in self._stores.values())

    def state_child(self, _name: str, key: int) -> PaneStore:
        """The panes of a model index."""
        return self.of_model(key)

    def of_model(self, model: int) -> PaneStore:
        """The panes of a model index."""
        return self._stores.setdefault(model, PaneStore())

    def fold(self, changes: RowChanges, served: Scored) -> None:
        """Count row changes by their served contributions."""
        series = self.series.of_rows(changes.model, changes.profile)
        self._reserve()
        pane = changes.prediction_ms // self._pane_ms
        for cut in series:
            np.maximum.at(self._folded, cut, pane)
        code = (series[:, served.row] * N_BINS + served.bins).ravel()
        values = np.tile(served.values[:, :PLAIN], (len(series), 1))
        row = np.tile(served.row, len(series))
        for model in np.unique(changes.model).tolist():
            mine = changes.model[row] == model
            self.of_model(model).add(pane[row[mine]], code[mine], values[mine])

    def add(self, model: int, pane: Ints, cells: Cells) -> None:
        """Count cells of panes, shape (n,), by the numbers of `series`; they may take away."""
        self._reserve()
        np.maximum.at(self._folded, cells.code // N_BINS, pane)
        self.of_model(model).add(pane, cells.code, cells.values)

    def weigh(self, model: int, pane: int, cells: Cells) -> Cells:
        """The cells of the next pane to be weighed, with what is beyond the cap of a cut under its ``__other__``.

        Places under the cap go by first pane, then label; one that is given up goes to whoever comes next.
        """
        numbers = _distinct(cells.code // N_BINS)
        if not self._own[numbers].all():
            beyond = self._give_places(model, numbers[~self._own[numbers]].tolist())
            if beyond:
                cells = self._moved(cells, beyond)
                numbers = _distinct(cells.code // N_BINS)
        self._weighed[numbers] = pane
        return cells

    def forget_quiet(self, model: int, before: int) -> Ints:
        """Series of a model that had no row in the month before pane `before`; they give up their places.

        The numbers of those of which nothing waits either may stand for others from now on.
        """
        oldest = before - QUIET_DAYS * self.panes_per_day
        members = np.array(self.series.of_model(model), dtype=np.int64)
        quiet = members[(self._weighed[members] < oldest) & ~self.series.is_whole()[members]]
        for number in quiet[self._own[quiet]].tolist():
            self._taken[model, self.series.label(number).cut] -= self._counts(number)
        self._own[quiet] = False
        self.series.free(quiet[self._folded[quiet] < oldest].tolist())
        return quiet

    def labelled(self, model: int) -> dict[Series, int]:
        """Number of every series of a model that is weighed by itself, by its labels; ``all`` from its first row."""
        shown = self._own[: len(self.series)] | self.series.is_whole()
        return {self.series.label(number): number for number in self.series.of_model(model) if shown[number]}

    def _give_places(self, model: int, numbers: list[int]) -> list[int]:
        """Places of their own for series without one, as far as they go; returns those left without."""
        beyond = []
        for number in sorted(numbers, key=self.series.label):
            cut, counts = self.series.label(number).cut, self._counts(number)
            if counts and self._taken[model, cut] >= self._max_segments:
                beyond.append(number)
            else:
                self._taken[model, cut] += counts
                self._own[number] = True
        return beyond

    def _counts(self, number: int) -> bool:
        """Whether a series takes one of the places under the cap: ``all`` and ``__other__`` do not."""
        labels = self.series.label(number)
        return not self.series.is_whole()[number] and labels.segment != self._others[labels.cut]

    def _moved(self, cells: Cells, beyond: list[int]) -> Cells:
        others = [self.series.other_of(number) for number in beyond]
        self._reserve()
        self._own[others] = True
        to = np.arange(len(self.series))
        to[beyond] = others
        return reduce_cells(to[cells.code // N_BINS] * N_BINS + cells.code % N_BINS, cells.values)

    def _reserve(self) -> None:
        held = len(self._own)
        if len(self.series) <= held:
            return
        more = max(len(self.series), 2 * held) - held
        self._own = np.concatenate([self._own, np.zeros(more, dtype=np.bool_)])
        never = np.full(more, _NEVER, dtype=np.int64)
        self._folded, self._weighed = np.concatenate([self._folded, never]), np.concatenate([self._weighed, never])


def _distinct(ascending: Ints) -> Ints:
    first = np.concatenate([[True], ascending[1:] != ascending[:-1]])
    return np.asarray(ascending[first])
