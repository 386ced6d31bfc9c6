"""Predictions of one model by the time they were made, and the labels seen of them so far.

A *cohort* is a run of panes of prediction time. Of a cohort are kept, by score band (ten of equal width, served
scores): predictions accepted, their sums of p and p^2, and how many have a label; and how many labels of either class
came after which delay. It is *matured* once the panes are sealed: nothing in it can change any more. Weights are not
looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.early.delays import delay_edges
from streamcal.early.tallying import tallied
from streamcal.stats.cells import Cells, PaneStore
from streamcal.stats.layout import EDGES, bin_index
from streamcal.stats.windows import WindowTotal
from streamcal.stream.arrivals import Accepted, LabelChanges

__all__ = ["BANDS", "CohortCells", "CohortCounts", "CohortLayout", "Cohorts", "cohort_panes"]

BANDS: Final = 10
_UNIT: Final = float(1 << 30)
"""Sums of p and p^2 are whole multiples of 2^-30: exact to add, far below what a label can tell, room for 2^32 rows."""

_MOST_COHORTS: Final = 1000
"""Cohorts in a horizon: what is lost at the young end is a thousandth of it, and a model takes at most 6 MB."""

_BAND_EDGES: Final = EDGES[bin_index(np.arange(1, BANDS) / BANDS)]
_N, _P, _P2, _LABELLED = (np.arange(BANDS) + kind * BANDS for kind in range(4))
_FIRST_DELAY: Final = 4 * BANDS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CohortCounts:
    """Counts of some cohorts, or of their total; leading axes are those of the cohorts.

    Attributes
    ----------
    accepted, labelled : int64[..., 10]
        Predictions by score band, and those of them that have a label.
    score, square : float64[..., 10]
        Sums of p and of p^2.
    positives, negatives : int64[..., J]
        Labels by delay bucket.
    """

    accepted: Ints
    labelled: Ints
    score: Floats
    square: Floats
    positives: Ints
    negatives: Ints

    @classmethod
    def of(cls, table: Ints) -> CohortCounts:
        """Read from a table by code, int64[..., 40 + 2 J]."""
        buckets = (table.shape[-1] - _FIRST_DELAY) // 2
        return cls(
            accepted=table[..., _N],
            labelled=table[..., _LABELLED],
            score=table[..., _P] / _UNIT,
            square=table[..., _P2] / _UNIT,
            positives=table[..., _FIRST_DELAY : _FIRST_DELAY + buckets],
            negatives=table[..., _FIRST_DELAY + buckets :],
        )


def cohort_panes(span_panes: int) -> int:
    """Panes of a cohort when horizon and longest window take up to `span_panes`.

    >>> cohort_panes(1440), cohort_panes(20_160)
    (2, 21)
    """
    return -(-span_panes // _MOST_COHORTS)


CohortCells = tuple[Ints, Ints, Ints]
"""Cohort, code and amount of each cell; cells may repeat."""


class CohortLayout:
    """Where predictions and labels of one model are counted.

    Parameters
    ----------
    horizon_ms, cohort_ms : int
    window : int
        Matured cohorts kept, the newest.

    Attributes
    ----------
    edges : int64[J]
        Of the delay buckets, ms.
    width : int
        Codes of a cohort.
    """

    def __init__(self, horizon_ms: int, cohort_ms: int, window: int) -> None:
        self.cohort_ms = cohort_ms
        self.window = window
        self.edges = delay_edges(horizon_ms)
        self.width = _FIRST_DELAY + 2 * len(self.edges)

    @classmethod
    def over_panes(cls, horizon_ms: int, pane_ms: int, window_panes: int) -> CohortLayout:
        """Cohorts of as many panes as horizon and longest window allow."""
        panes = cohort_panes(max(-(-horizon_ms // pane_ms), window_panes))
        return cls(horizon_ms, panes * pane_ms, max(1, window_panes // panes))

    def accepted(self, accepted: Accepted, sign: int = 1) -> CohortCells:
        """Cells of predictions, or of taking them out."""
        cohort, first = self._cohort(accepted.time_ms)
        p = accepted.served
        code, sums = tallied(cohort * BANDS + _band(p), np.rint(p * _UNIT), np.rint(p * p * _UNIT))
        codes = [(code // BANDS, code % BANDS + start) for start in (_N[0], _P[0], _P2[0])]
        pane, column = (np.concatenate(part) for part in zip(*codes, strict=True))
        return first + pane, column, sign * np.concatenate(sums)

    def labelled(self, changes: LabelChanges) -> CohortCells:
        """Cells of labels that came or were taken back."""
        cohort, first = self._cohort(changes.prediction_ms)
        bucket = np.searchsorted(self.edges, changes.delay_ms, side="left")
        delay = _FIRST_DELAY + np.where(changes.label == 1, 0, len(self.edges)) + bucket
        columns = np.concatenate([_LABELLED[0] + _band(changes.served), delay])
        code, (_, net) = tallied(np.tile(cohort, 2) * self.width + columns, np.tile(changes.sign.astype(np.float64), 2))
        kept = net != 0
        code = code[kept]
        return first + code // self.width, code % self.width, net[kept]

    def _cohort(self, time_ms: Ints) -> tuple[Ints, int]:
        """Cohorts as small numbers from 0, and the first of them."""
        cohort = time_ms // self.cohort_ms
        first = int(cohort.min())
        return cohort - first, first


class Cohorts:
    """The cohorts of one model that are not matured, and those of a window that are.

    Guarantee: counts are the exact sum of what was folded in, whatever the order.

    Parameters
    ----------
    layout : CohortLayout

    Attributes
    ----------
    edges, cohort_ms
        Of the layout.
    """

    STATE = ("_store", "_matured")

    def __init__(self, layout: CohortLayout) -> None:
        self.layout = layout
        self.edges = layout.edges
        self.cohort_ms = layout.cohort_ms
        self._store = PaneStore()
        self._matured = WindowTotal(self._store, 1, layout.width)

    @property
    def nbytes(self) -> int:
        """Bytes of all counts."""
        return self._store.nbytes + self._matured.values.nbytes

    def accept(self, accepted: Accepted, sign: int = 1) -> None:
        """Count predictions, or take them out."""
        if len(accepted):
            self.add(*self.layout.accepted(accepted, sign))

    def label(self, changes: LabelChanges) -> None:
        """Count labels that came or were taken back."""
        if len(changes):
            self.add(*self.layout.labelled(changes))

    def mature(self, sealed_ms: int, event_time_ms: int) -> None:
        """Everything made before `sealed_ms` is final.

        A drained stream is sealed for good, at the end of time; its last cohorts are those until `event_time_ms` or
        until the last prediction.
        """
        if sealed_ms // self.cohort_ms == self._matured.stop:
            return
        newest = max([event_time_ms // self.cohort_ms, *self._store.panes()[-1:]])
        stop = min(sealed_ms // self.cohort_ms, newest + 1)
        self._matured.move(stop - self.layout.window, stop)
        self._store.drop_before(self._matured.start)

    def matured(self) -> CohortCounts:
        """Total of the matured cohorts kept."""
        table = np.zeros(self.layout.width, dtype=np.int64)
        held = self._matured.values[:, 0]
        table[: len(held)] = held
        return CohortCounts.of(table)

    @property
    def kept_from(self) -> int:
        """First cohort that is still of use."""
        return self._matured.start

    def fresh(self) -> tuple[Ints, CohortCounts]:
        """Ends (ms) of the cohorts that are not matured, shape (C,), and their counts."""
        found = [(pane, cells) for pane, cells in self._store.each(self._matured.stop, 1 << 62)]
        table = np.zeros((len(found), self.layout.width), dtype=np.int64)
        if found:
            row = np.repeat(np.arange(len(found)), [len(cells.code) for _, cells in found])
            table[row, np.concatenate([cells.code for _, cells in found])] = np.concatenate(
                [cells.values[:, 0] for _, cells in found]
            )
        ends = (np.array([pane for pane, _ in found], dtype=np.int64) + 1) * self.cohort_ms
        return ends, CohortCounts.of(table)

    def add(self, cohort: Ints, code: Ints, values: Ints) -> None:
        """Count cells, shape (n,) each."""
        panes, cells = self._store.add(cohort, code, values[:, None])
        self._matured.add(panes, Cells(cells.code, cells.values))


def _band(score: Floats) -> Ints:
    """Score band as the layout cuts it: (lo, hi], by float32."""
    return np.searchsorted(_BAND_EDGES, score.astype(np.float32), side="left").astype(np.int64)
