"""The counts of everything: row changes in, windows, periods and fit panes out.

Each labelled prediction is folded once per cut and score kind into panes of the configured window time;
window totals follow the model's event time. What fits read (raw scores of the whole model, frozen parts
of panes) is kept apart, by model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StateLimitError
from streamcal.stats.aggregate_settings import AggregateSettings, WindowSpec
from streamcal.stats.cells import CODES_PER_SERIES, Cells, PaneStore, series_of
from streamcal.stats.counts import LIMIT, PLAIN, WEIGHTED, Column, promote
from streamcal.stats.everything import Everything
from streamcal.stats.fit_panes import FitPanes
from streamcal.stats.layout import N_BINS
from streamcal.stats.periods import period_ends, period_index, period_starts
from streamcal.stats.presence import Presence
from streamcal.stats.scored import Scored, score_kinds, scored_cells
from streamcal.stats.segment_panes import SegmentPanes
from streamcal.stats.series import SeriesTable
from streamcal.stats.windows import WindowTotal, alive_series
from streamcal.stream.changes import RowChanges

__all__ = ["EVERYTHING", "Aggregate", "AggregateSettings", "WindowSpec"]

EVERYTHING = "all"
"""Name of the window of everything read."""

_MOST_ROWS = LIMIT >> 32
"""Rows of one bin whose weights, in units of 2^-32, stay within the limit."""

Ints = NDArray[np.int64]


class Aggregate:
    """Counts of all models.

    Guarantee: every total is the exact sum of the rows folded into its range, whatever the order.

    Parameters
    ----------
    settings : AggregateSettings
    series : SeriesTable
    at_maturity : callable
        Model index to whether its labels are known at maturity only; decides which panes its fits read.
    corrected : callable
        Model index to what is kept for its corrections per segment, or None where there are none.
    """

    STATE = (
        "series",
        "last_outcome_ms",
        "_width",
        "_panes",
        "_windows",
        "_presence",
        "_everything",
        "_periods",
        "_retained_from",
        "_fits",
        "_segments",
    )
    ADDED = ("_segments",)

    def __init__(
        self,
        settings: AggregateSettings,
        series: SeriesTable,
        at_maturity: Callable[[int], bool],
        corrected: Callable[[int], SegmentPanes | None],
    ) -> None:
        self._settings = settings
        self.series = series
        self._at_maturity = at_maturity
        self._corrected = corrected
        self._width = PLAIN
        self._panes = PaneStore()
        self._windows = {spec.name: WindowTotal(self._panes, PLAIN) for spec in settings.windows}
        longest = settings.longest
        self._presence = Presence(series, self._panes, self._windows[longest.name], longest.panes)
        self._everything = Everything(PLAIN, bounded=settings.keep_everything)
        self._periods = PaneStore()
        self._retained_from: int | None = None
        self._fits: dict[int, FitPanes] = {}
        self._segments: dict[int, SegmentPanes] = {}
        self.last_outcome_ms: Ints = np.zeros(0, dtype=np.int64)

    def state_child(self, name: str, key: Any) -> WindowTotal | FitPanes | SegmentPanes | None:
        """The total of a window by its name, or what is kept for the fits of a model index, if anything now."""
        if name == "_segments":
            return self.segments(key)
        return self._windows[key] if name == "_windows" else self.fits(key)

    @property
    def nbytes(self) -> int:
        """Bytes of panes and totals."""
        dense = self._everything.values.nbytes + sum(w.values.nbytes for w in self._windows.values())
        stores = self._panes.nbytes + self._periods.nbytes + sum(fits.nbytes for fits in self._fits.values())
        stores += sum(segments.nbytes for segments in self._segments.values())
        return dense + stores

    @property
    def window_names(self) -> list[str]:
        """Configured windows."""
        return [spec.name for spec in self._settings.windows]

    @property
    def width(self) -> int:
        """Columns per cell: 9, or 23 once a weight other than 1 was seen."""
        return self._width

    def fits(self, model: int) -> FitPanes:
        """What fits of a model index read."""
        fits = self._fits.get(model)
        if fits is None:
            fits = self._fits[model] = FitPanes(self._width)
        return fits

    def segments(self, model: int) -> SegmentPanes | None:
        """What corrections per segment of a model index read; None where it has none."""
        held = self._segments.get(model)
        if held is None and (held := self._corrected(model)) is not None:
            self._segments[model] = held
        return held

    def fold(self, changes: RowChanges) -> Scored:
        """Count row changes; returns their served contributions, for others that count them too.

        Raises
        ------
        StateLimitError
            A sum would pass 2^62.
        """
        if changes.weight is not None and self._width == PLAIN and (changes.weight != 1.0).any():
            self._promote()
        raw, served = score_kinds(changes, self._width)
        self._fold_fits(changes, raw)
        self._fold_windows(changes, raw, served)
        return served

    def add_window(self, pane: Ints, cells: Cells, present: tuple[Ints, Ints, Ints]) -> None:
        """Count cells of panes, shape (n,), by the numbers of `series`; they may take away.

        Parameters
        ----------
        present : three int64[S]
            Series that have rows, also ones that a correction moved elsewhere; the pane of each; its latest outcome.
        """
        numbers, panes, last_ms = present
        self._reserve()
        np.maximum.at(self.last_outcome_ms, numbers, last_ms)
        cells = self._widened(cells)
        if self._retained_from is not None:
            held, told = pane >= self._retained_from, panes >= self._retained_from
            pane, cells = pane[held], Cells(cells.code[held], cells.values[held])
            numbers, panes = numbers[told], panes[told]
        self._presence.note(numbers, panes)
        if len(pane):
            panes, added = self._panes.add(pane, cells.code, cells.values)
            for window in self._windows.values():
                window.add(panes, added)
            self._presence.enter(added)

    def add_everything(self, cells: Cells) -> None:
        """Count cells of whole models in the window of everything read."""
        self._everything.add(self._widened(cells))

    def add_fit(self, model: int, pane: Ints, cells: Cells) -> None:
        """Count frozen cells of a model by `step_codes`, panes of shape (n,)."""
        cells = self._widened(cells)
        self.fits(model).add_cells(pane, cells.code, cells.values)

    def add_segments(self, model: int, pane: Ints, cells: Cells) -> None:
        """Count frozen cells of a model by segment, panes of shape (n,)."""
        if (segments := self.segments(model)) is not None:
            segments.add(pane, self._widened(cells))

    @property
    def retained_from(self) -> int | None:
        """Panes below it are in no window any more; None before event time began."""
        return self._retained_from

    def advance(self, event_time_ms: int) -> None:
        """Let every window end with the pane that holds the moment before `event_time_ms`.

        Panes that left the longest window are dropped.
        """
        stop = -(-event_time_ms // self._settings.pane_ms)
        for spec in self._settings.windows:
            self._windows[spec.name].move(stop - spec.panes, stop)
        oldest = stop - self._settings.longest.panes
        if self._retained_from is None or oldest > self._retained_from:
            self._retained_from = oldest
            self._release(self._panes.drop_before(oldest))

    def panes_ms(self) -> list[int]:
        """Start of every pane that a window or a fit may still read, ascending."""
        stores = (self._panes, *(fits.store for fits in self._fits.values()))
        return [pane * self._settings.pane_ms for pane in sorted({pane for store in stores for pane in store.panes()})]

    def totals(self, window: str) -> Ints:
        """Dense totals of a window by code; shape (codes, width). Not a copy: read it at once."""
        return self._everything.values if window == EVERYTHING else self._windows[window].values

    def by_series(self, window: str, series: Ints) -> Ints:
        """Counts of some series in a window, a copy; shape (len(series), 2 kinds, 284, width)."""
        return _pick(self.totals(window), series)

    def alive(self, window: str) -> Ints:
        """Series with any row in the window."""
        return np.flatnonzero(alive_series(self.totals(window)))

    def periods(self) -> list[int]:
        """Start (ms) of every calendar period that has rows, ascending."""
        assert self._settings.period is not None
        return period_starts(self._periods.panes(), self._settings.period)

    def period_ends(self, starts_ms: Sequence[int]) -> list[int]:
        """End (ms) of the calendar periods that start at `starts_ms`."""
        assert self._settings.period is not None
        return period_ends(starts_ms, self._settings.period)

    def period_counts(self, start_ms: int, series: Ints) -> Ints:
        """Counts of some series in the calendar period starting at `start_ms`, as `by_series`."""
        assert self._settings.period is not None
        cells = self._periods.of_pane(int(period_index(np.array([start_ms]), self._settings.period)[0]))
        wanted = np.isin(series_of(cells.code), series)
        dense = np.zeros(((int(series.max()) + 1) * CODES_PER_SERIES, self._width), dtype=np.int64)
        dense[cells.code[wanted]] = cells.values[wanted]
        return _pick(dense, series)

    def _fold_fits(self, changes: RowChanges, raw: Scored) -> None:
        frozen = changes.frozen[raw.row]
        row, bins, values = raw.row[frozen], raw.bins[frozen], raw.values[frozen]
        model = changes.model[row]
        for index in np.unique(model).tolist():
            mine = model == index
            time = changes.prediction_ms if self._at_maturity(index) else changes.outcome_ms
            rows = row[mine]
            pane = time[rows] // self._settings.pane_ms
            made = changes.prediction_ms[rows]
            self.fits(index).add(pane, bins[mine], values[mine], made)
            if (segments := self.segments(index)) is not None:
                segments.fold(changes.model[rows], changes.profile[rows], pane, made, bins[mine], values[mine])

    def _fold_windows(self, changes: RowChanges, raw: Scored, served: Scored) -> None:
        time = changes.outcome_ms if self._settings.by_outcome_time else changes.prediction_ms
        pane = time // self._settings.pane_ms
        kept = np.ones(len(pane), dtype=np.bool_) if self._retained_from is None else pane >= self._retained_from
        series = self._series(changes, kept)
        self._note(series, changes, pane, kept)
        self._fold_rows(changes, pane, kept, *scored_cells(series, raw, served))

    def _fold_rows(self, changes: RowChanges, pane: Ints, kept: NDArray[np.bool_], rows: Cells, row: Ints) -> None:
        """Count cells of single rows; `row[i]` is the change that cell i comes from."""
        known = rows.code >= 0
        if not known.all():
            rows, row = Cells(rows.code[known], rows.values[known]), row[known]
        if self._settings.period is not None:
            self._periods.add(period_index(changes.prediction_ms, self._settings.period)[row], rows.code, rows.values)
        held = kept[row]
        if not held.all():
            self._fold_everything(Cells(rows.code[~held], rows.values[~held]))
            rows, row = Cells(rows.code[held], rows.values[held]), row[held]
        if not len(row):
            return
        panes, cells = self._panes.add(pane[row], rows.code, rows.values)
        for window in self._windows.values():
            window.add(panes, cells)
        self._presence.enter(cells)
        self._fold_everything(cells)

    def _series(self, changes: RowChanges, kept: NDArray[np.bool_]) -> Ints:
        """Series of rows, shape (cuts, n); of a row that no window holds only ``all``, the others are -1.

        Else segments of which only old rows come would take a slot that nothing ever frees.
        """
        if self._settings.bounded or kept.all():
            return self.series.of_rows(changes.model, changes.profile)
        series = np.full((len(self.series.cuts), len(kept)), -1, dtype=np.int64)
        series[:, kept] = self.series.of_rows(changes.model[kept], changes.profile[kept])
        series[0, ~kept] = self.series.wholes(changes.model[~kept])
        # A negative code stays negative whatever kind and bin are added: one series has CODES_PER_SERIES of them.
        return series

    def _fold_everything(self, cells: Cells) -> None:
        if not self._settings.keep_everything:
            mine = self.series.is_whole()[series_of(cells.code)]
            cells = Cells(cells.code[mine], cells.values[mine])
        self._everything.add(cells)

    def _widened(self, cells: Cells) -> Cells:
        """Cells with as many columns as all have here; the first weighted ones widen everything else."""
        if cells.values.shape[1] == self._width:
            return cells
        if self._width == PLAIN:
            self._promote()
            return cells
        return Cells(cells.code, promote(cells.values))

    def _reserve(self) -> None:
        if len(self.last_outcome_ms) < len(self.series):
            room = max(len(self.series), 2 * len(self.last_outcome_ms)) - len(self.last_outcome_ms)
            self.last_outcome_ms = np.concatenate([self.last_outcome_ms, np.zeros(room, dtype=np.int64)])

    def _note(self, series: Ints, changes: RowChanges, pane: Ints, kept: NDArray[np.bool_]) -> None:
        self._reserve()
        new = changes.sign > 0
        # An outcome that no window holds any more still says that outcomes come.
        np.maximum.at(self.last_outcome_ms, series[0, new], changes.outcome_ms[new])
        new &= kept | self._settings.bounded
        for cut in series[:, new]:
            self._presence.note(cut, pane[new])
            np.maximum.at(self.last_outcome_ms, cut, changes.outcome_ms[new])

    def _release(self, dropped: tuple[Ints, Cells] | None) -> None:
        if dropped is None or self._settings.bounded:
            return
        gone = self._presence.leave(*dropped)
        quiet = gone[~self.series.is_whole()[gone]]
        self.last_outcome_ms[quiet] = 0
        self.series.free(quiet.tolist())

    def _promote(self) -> None:
        """Give every count the columns of a weighted stream, as if all weights so far had been 1."""
        for store in (self._panes, self._periods):
            store.promote(_promoted)
        for window in self._windows.values():
            window.promote(_promoted)
        self._everything.promote(_promoted)
        for fits in self._fits.values():
            fits.promote(_promoted, WEIGHTED)
        for segments in self._segments.values():
            segments.promote(_promoted)
        self._width = WEIGHTED


def _promoted(values: Ints) -> Ints:
    most = int(values[:, Column.N].max(initial=0))
    if most > _MOST_ROWS:
        raise StateLimitError(
            f"the count `w` would reach 2^32 times {most} rows, beyond 2^62",
            hint="shorten windows.lengths, then rebuild the state",
        )
    return promote(values)


def _pick(totals: Ints, series: Ints) -> Ints:
    """Rows of a dense table by series; zeros for a series beyond its end."""
    dense = totals.reshape(-1, 2, N_BINS, totals.shape[1])
    if not len(series) or int(series.max()) < len(dense):
        return dense[series]
    picked = np.zeros((len(series), *dense.shape[1:]), dtype=np.int64)
    inside = series < len(dense)
    picked[inside] = dense[series[inside]]
    return picked
