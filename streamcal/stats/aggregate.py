"""The counts of everything: row changes in, windows, periods and fit panes out.

Each labelled prediction is folded once per cut and score kind into panes of the configured window time;
window totals follow the model's event time. What fits read (raw scores of the whole model, frozen parts
of panes) is kept apart in `fit_panes`, by model index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.cells import RAW, SERVED, Cells, PaneStore, cell_code
from streamcal.stats.counts import PLAIN, WEIGHTED, contributions, promote
from streamcal.stats.layout import N_BINS
from streamcal.stats.series import SeriesTable
from streamcal.stats.windows import WindowTotal, add_to_dense
from streamcal.stream.changes import RowChanges

__all__ = ["EVERYTHING", "Aggregate", "AggregateSettings", "WindowSpec"]

EVERYTHING = "all"
"""Name of the window of everything read."""

Ints = NDArray[np.int64]
Period = Literal["day", "month"]


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window: its name as configured and its length in panes."""

    name: str
    panes: int


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """What is counted.

    Attributes
    ----------
    by_outcome_time : bool
        Whether window panes go by outcome time (else by prediction time).
    fit_panes : int
        Longest fit window, in panes.
    keep_everything : bool
        Keep the window of everything for each segment (bounded input) or for the whole model only.
    period : {"day", "month"} or None
        Also total by UTC calendar period of the prediction's time.
    """

    pane_ms: int
    windows: Sequence[WindowSpec]
    by_outcome_time: bool
    fit_panes: int
    keep_everything: bool = False
    period: Period | None = None


@dataclass(frozen=True, slots=True)
class _Scored:
    """Contributions of one score kind: rows of the changes that have it, their bins and signed values."""

    row: Ints
    bins: NDArray[np.intp]
    values: Ints


class Aggregate:
    """Counts of all models.

    Guarantee: every total is the exact sum of the rows folded into its range, whatever the order.

    Parameters
    ----------
    settings : AggregateSettings
    series : SeriesTable
    at_maturity : callable
        Model index to whether its labels are known at maturity only; decides which panes its fits read.
    """

    def __init__(
        self,
        settings: AggregateSettings,
        series: SeriesTable,
        at_maturity: Callable[[int], bool],
    ) -> None:
        self._settings = settings
        self.series = series
        self._at_maturity = at_maturity
        self._width = PLAIN
        self._panes = PaneStore()
        self._windows = {spec.name: WindowTotal(self._panes, PLAIN) for spec in settings.windows}
        self._everything: Ints = np.zeros((0, PLAIN), dtype=np.int64)
        self._periods = PaneStore()
        self._rows_held: Ints = np.zeros(0, dtype=np.int64)
        self._retained_from: int | None = None
        self.fit_panes = PaneStore()
        self._fit_windows: list[WindowTotal] = []
        self.last_outcome_ms: Ints = np.zeros(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of panes and totals."""
        dense = self._everything.nbytes + sum(w.values.nbytes for w in self._windows.values())
        return dense + self._panes.nbytes + self._periods.nbytes + self.fit_panes.nbytes

    @property
    def window_names(self) -> list[str]:
        """Configured windows."""
        return [spec.name for spec in self._settings.windows]

    @property
    def width(self) -> int:
        """Columns per cell: 9, or 23 once a weight other than 1 was seen."""
        return self._width

    def fit_window(self) -> WindowTotal:
        """A new moving total over the fit panes (code: model * 284 + bin); whoever asks moves it."""
        window = WindowTotal(self.fit_panes, self._width)
        self._fit_windows.append(window)
        return window

    def fold(self, changes: RowChanges) -> None:
        """Count row changes."""
        if changes.weight is not None and self._width == PLAIN and (changes.weight != 1.0).any():
            self._promote()
        served = self._scored(changes, changes.served, np.arange(len(changes)))
        if np.array_equal(changes.raw, changes.served):
            raw = served
        else:
            raw = self._scored(changes, changes.raw, np.flatnonzero(~np.isnan(changes.raw)))
        self._fold_fits(changes, raw)
        self._fold_windows(changes, raw, served)

    def advance(self, event_time_ms: int) -> None:
        """Let every window end with the pane that holds the moment before `event_time_ms`; drop panes that left the longest."""
        stop = -(-event_time_ms // self._settings.pane_ms)
        for spec in self._settings.windows:
            self._windows[spec.name].move(stop - spec.panes, stop)
        oldest = stop - max(spec.panes for spec in self._settings.windows)
        if self._retained_from is None or oldest > self._retained_from:
            self._retained_from = oldest
            self._release_series(self._panes.drop_before(oldest))
        self.fit_panes.drop_before(stop - self._settings.fit_panes)

    def totals(self, window: str) -> Ints:
        """Dense totals of a window by code; shape (codes, width)."""
        return self._everything if window == EVERYTHING else self._windows[window].values

    def by_series(self, window: str, series: Ints) -> Ints:
        """Counts of some series in a window; shape (len(series), 2 kinds, 284, width)."""
        return self._pick(self.totals(window), series)

    def alive(self, window: str) -> Ints:
        """Series with any row in the window."""
        totals = self.totals(window)
        whole = len(totals) // (2 * N_BINS) * (2 * N_BINS)
        rows = totals[:whole, 0].reshape(-1, 2 * N_BINS)
        found = np.flatnonzero(rows.any(axis=1))
        if whole < len(totals) and totals[whole:, 0].any():
            found = np.append(found, whole // (2 * N_BINS))
        return found

    def periods(self) -> list[int]:
        """Start (ms) of every calendar period that has rows, ascending."""
        unit = "D" if self._settings.period == "day" else "M"
        return [
            int(np.datetime64(index, unit).astype("datetime64[ms]").astype(np.int64)) for index in self._periods.panes()
        ]

    def period_ends(self, starts_ms: Sequence[int]) -> list[int]:
        """End (ms) of the calendar periods that start at `starts_ms`."""
        unit = "D" if self._settings.period == "day" else "M"
        starts = np.array(starts_ms, dtype="datetime64[ms]").astype(f"datetime64[{unit}]") + 1
        ends: list[int] = starts.astype("datetime64[ms]").astype(np.int64).tolist()
        return ends

    def period_counts(self, start_ms: int, series: Ints) -> Ints:
        """Counts of some series in the calendar period starting at `start_ms`, as `by_series`."""
        assert self._settings.period is not None
        index = int(_period_index(np.array([start_ms]), self._settings.period)[0])
        cells = self._periods.of_pane(index)
        wanted = np.isin(cells.code // (2 * N_BINS), series)
        dense = np.zeros(((int(series.max()) + 1) * 2 * N_BINS, self._width), dtype=np.int64)
        dense[cells.code[wanted]] = cells.values[wanted]
        return self._pick(dense, series)

    def _pick(self, totals: Ints, series: Ints) -> Ints:
        need = (int(series.max()) + 1) * 2 * N_BINS if len(series) else 0
        if len(totals) < need:
            totals = np.concatenate([totals, np.zeros((need - len(totals), totals.shape[1]), dtype=np.int64)])
        whole = len(totals) // (2 * N_BINS) * (2 * N_BINS)
        picked: Ints = totals[:whole].reshape(-1, 2, N_BINS, totals.shape[1])[series]
        return picked

    def _scored(self, changes: RowChanges, score: NDArray[np.float64], row: Ints) -> _Scored:
        weight = None
        if self._width == WEIGHTED:
            weight = np.ones(len(row)) if changes.weight is None else changes.weight[row]
        bins, values, _ = contributions(score[row], changes.label[row], weight)
        sign = changes.sign[row]
        if (sign < 0).any():
            values *= sign[:, None]
        return _Scored(row, bins, values)

    def _fold_fits(self, changes: RowChanges, raw: _Scored) -> None:
        frozen = changes.frozen[raw.row]
        row = raw.row[frozen]
        model = changes.model[row]
        if not len(row):
            return
        mature = np.array([self._at_maturity(index) for index in range(int(model.max()) + 1)])
        time = np.where(mature[model], changes.prediction_ms[row], changes.outcome_ms[row])
        code = model.astype(np.int64) * N_BINS + raw.bins[frozen]
        self.fit_panes.add(time // self._settings.pane_ms, code, raw.values[frozen])

    def _fold_windows(self, changes: RowChanges, raw: _Scored, served: _Scored) -> None:
        series = self.series.of_rows(changes.model, changes.profile)
        kinds = ((RAW, raw), (SERVED, served))
        code = np.concatenate([cell_code(series[:, s.row], kind, s.bins).ravel() for kind, s in kinds])
        values = np.concatenate([np.tile(s.values, (len(series), 1)) for _, s in kinds])
        row = np.concatenate([np.tile(s.row, len(series)) for _, s in kinds])
        time = changes.outcome_ms if self._settings.by_outcome_time else changes.prediction_ms
        pane = time // self._settings.pane_ms
        self._note_series(series, changes, pane)
        self._fold_cells(pane[row], code, values)
        if self._settings.period is not None:
            self._periods.add(_period_index(changes.prediction_ms, self._settings.period)[row], code, values)

    def _fold_cells(self, pane: Ints, code: Ints, values: Ints) -> None:
        if self._retained_from is not None and (pane < self._retained_from).any():
            kept = pane >= self._retained_from
            self._fold_everything(Cells(code[~kept], values[~kept]))
            pane, code, values = pane[kept], code[kept], values[kept]
            if not len(pane):
                return
        panes, cells = self._panes.add(pane, code, values)
        for window in self._windows.values():
            window.add(panes, cells)
        self._hold(cells, 1)
        self._fold_everything(cells)

    def _fold_everything(self, cells: Cells) -> None:
        if not self._settings.keep_everything:
            mine = self.series.is_whole()[cells.code // (2 * N_BINS)]
            cells = Cells(cells.code[mine], cells.values[mine])
        if len(cells.code):
            self._everything = add_to_dense(self._everything, cells)

    def _note_series(self, series: Ints, changes: RowChanges, pane: Ints) -> None:
        added = changes.sign > 0
        self.last_outcome_ms = _at_least(self.last_outcome_ms, len(self.series))
        for cut in series[:, added]:
            np.minimum.at(self.series.first_pane, cut, pane[added])
            np.maximum.at(self.last_outcome_ms, cut, changes.outcome_ms[added])

    def _hold(self, cells: Cells, sign: int) -> None:
        """Keep track of which series still have rows in a pane."""
        series = cells.code // (2 * N_BINS)
        self._rows_held = _at_least(self._rows_held, len(self.series))
        np.add.at(self._rows_held, series, sign * cells.values[:, 0])

    def _release_series(self, gone: Cells | None) -> None:
        if gone is None:
            return
        self._hold(gone, -1)
        if self._settings.keep_everything:
            return
        touched = np.unique(gone.code // (2 * N_BINS))
        quiet = touched[(self._rows_held[touched] == 0) & ~self.series.is_whole()[touched]]
        self.last_outcome_ms[quiet] = 0
        self.series.free(quiet.tolist())

    def _promote(self) -> None:
        self._width = WEIGHTED
        for store in (self._panes, self._periods, self.fit_panes):
            store.promote(promote)
        for window in (*self._windows.values(), *self._fit_windows):
            window.promote(promote)
        self._everything = promote(self._everything)


def _at_least(column: Ints, size: int) -> Ints:
    if len(column) >= size:
        return column
    return np.concatenate([column, np.zeros(max(size, 2 * len(column)) - len(column), dtype=np.int64)])


def _period_index(time_ms: Ints, period: Period) -> Ints:
    unit = "D" if period == "day" else "M"
    index: Ints = time_ms.astype("datetime64[ms]").astype(f"datetime64[{unit}]").astype(np.int64)
    return index
