"""What one source counts, pane by pane, and which parts have changed since they were last told.

A pane is forgotten once nothing in it can change any more and its parts have been told: whoever reads the counts topic
has it. So a source holds about a horizon of panes, however long the windows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.early.cohorts import CohortLayout
from streamcal.early.shift_panes import score_cells
from streamcal.parts.finality import final_before_ms
from streamcal.parts.part import Family, Part, PartKey, SeriesKey
from streamcal.stats.cells import CODES_PER_SERIES, Cells, PaneStore
from streamcal.stats.counts import PLAIN, WEIGHTED, promote
from streamcal.stats.fit_panes import step_codes
from streamcal.stats.layout import N_BINS
from streamcal.stats.scored import Scored, score_kinds, scored_cells
from streamcal.stats.segment_panes import SEGMENT_CODES, segment_codes
from streamcal.stats.series import SAFETY_FACTOR, SeriesTable
from streamcal.stream.arrivals import Columns, concatenate, taken
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import Names
from streamcal.stream.rules import ModelRules
from streamcal.stream.source import Told

__all__ = ["CODES", "CountSettings", "SourceCounts"]

Ints = NDArray[np.int64]
Place = tuple[Family, int]
"""Family and model index."""

CODES: Final[dict[Family, int]] = {
    "window": CODES_PER_SERIES,
    "everything": CODES_PER_SERIES,
    "segment": SEGMENT_CODES,
    "watch": N_BINS,
    "score": N_BINS,
}
"""Codes of one series; the families that are not here count whole models only."""

_WEIGHED: Final[tuple[Family, ...]] = ("window", "everything", "fit", "segment")
"""Families with the columns of a weighted stream where it is one."""
_SERIES_PER_CHUNK: Final = 2_500
"""Segments that share a record: some 25 MB where all of them are busy, and one record where few are. A record costs
more than what is in it, so few large ones are better than many small ones."""


@dataclass(frozen=True, slots=True)
class CountSettings:
    """How a source counts.

    Attributes
    ----------
    cuts : sequence of tuple of str
        The empty cut first.
    max_segments : int
        Per cut, as configured.
    pane_ms, slot_ms : int
        Of panes, and of the slots of the score shift.
    by_outcome_time : bool
        Whether windows go by the time of outcomes.
    skew_ms : int
    cohorts : callable
        Horizon (ms) to the cohorts of a model.
    step_ms : callable
        Model name to the length of the steps of prediction time that its refits tell apart.
    corrected : callable
        Model name to the number of the cut by which its maps are corrected, or None.
    """

    cuts: Sequence[tuple[str, ...]]
    max_segments: int
    pane_ms: int
    slot_ms: int
    by_outcome_time: bool
    skew_ms: int
    cohorts: Callable[[int], CohortLayout]
    step_ms: Callable[[str], int]
    corrected: Callable[[str], int | None]

    @property
    def chunks(self) -> int:
        """Chunks that the segments of a pane are spread over."""
        return 1 + self.max_segments * (len(self.cuts) - 1) // _SERIES_PER_CHUNK

    def chunk(self, series: SeriesKey) -> int:
        """The chunk of a segment: 0 for the whole model, else by a hash that never changes."""
        cut, values = series
        if not cut or self.chunks == 1:
            return 0
        digest = blake2b("\x1f".join((str(cut), *values)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self.chunks

    def unit_ms(self, family: Family, horizon_ms: int) -> int:
        """Length of a pane of a family."""
        if family == "cohort":
            return self.cohorts(horizon_ms).cohort_ms
        return self.slot_ms if family == "score" else self.pane_ms


class SourceCounts:
    """Counts of one source.

    Guarantee: a part is the exact sum of the rows told so far, whatever the order.

    Parameters
    ----------
    settings : CountSettings
    names : Names
    rules : callable
        Model index to its join rules.
    """

    STATE = ("_series", "_width", "_stores", "_last_ms", "_versions")
    """What has changed is not part of it: it is written down only when all of it has been told."""

    def __init__(self, settings: CountSettings, names: Names, rules: Callable[[int], ModelRules]) -> None:
        self._settings = settings
        self._names = names
        self._rules = rules
        self._series = SeriesTable(names, settings.cuts, SAFETY_FACTOR * settings.max_segments)
        self._width = PLAIN
        self._stores: dict[Place, PaneStore] = {}
        self._last_ms: Ints = np.zeros(0, dtype=np.int64)
        self._versions: dict[int, dict[int, int]] = {}
        self._layouts: dict[int, CohortLayout] = {}
        self._steps: dict[int, tuple[int, int | None]] = {}
        self._changed: dict[Place, set[tuple[int, int]]] = {}
        self._chunk_of: Ints = np.zeros(0, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all cells."""
        return sum(store.nbytes for store in self._stores.values())

    def state_child(self, _name: str, key: Place) -> PaneStore:
        """The store of a family and model."""
        return self._stores.setdefault(key, PaneStore())

    def fold(self, told: Told) -> None:
        """Count what a source told."""
        for model, accepted in _by_model([part for part in told.arrivals.accepted if len(part)]):
            self._add("cohort", model, *self._layout(model).accepted(accepted))
            self._add("score", model, *score_cells(accepted, self._series, self._settings.slot_ms))
        for model, labels in _by_model([part for part in told.arrivals.labels if len(part)]):
            self._add("cohort", model, *self._layout(model).labelled(labels))
        if told.changes:
            self._fold_changes(RowChanges.concatenate(told.changes))
        for models, time_ms, version in told.served:
            self._note_versions(models, time_ms, version)

    def changed(self) -> Iterator[tuple[PartKey, Part]]:
        """The parts that have changed since the last `settle`."""
        for place, changed in self._changed.items():
            by_pane: dict[int, list[int]] = {}
            for pane, chunk in changed:
                by_pane.setdefault(pane, []).append(chunk)
            for pane in sorted(by_pane):
                yield from self._parts(place, pane, sorted(by_pane[pane]))

    def settle(self, watermarks: tuple[int, int]) -> None:
        """What `changed` gave has been told; forget what these watermarks have made final."""
        self._changed.clear()
        for (family, model), store in self._stores.items():
            horizon_ms = self._rules(model).horizon_ms
            final_ms = final_before_ms(watermarks, horizon_ms, self._settings.skew_ms)
            if family != "everything":
                store.drop_before(final_ms // self._settings.unit_ms(family, horizon_ms))
            if family == "watch":
                versions = self._versions.get(model, {})
                for pane in [pane for pane in versions if pane < final_ms // self._settings.pane_ms]:
                    del versions[pane]

    def _fold_changes(self, changes: RowChanges) -> None:
        if changes.weight is not None and self._width == PLAIN and (changes.weight != 1.0).any():
            self._promote()
        raw, served = score_kinds(changes, self._width)
        series = self._series.of_rows(changes.model, changes.profile)
        self._note_outcomes(series, changes)
        pane_ms = self._settings.pane_ms
        made = changes.prediction_ms // pane_ms
        counted = changes.outcome_ms // pane_ms if self._settings.by_outcome_time else made
        cells, row = scored_cells(series, raw, served)
        code = (series[:, served.row] * N_BINS + served.bins).ravel()
        values = np.tile(served.values[:, :PLAIN], (len(series), 1))
        watched = np.tile(served.row, len(series))
        for model in np.unique(changes.model).tolist():
            mine = changes.model == model
            self._add_windows(model, counted, cells, row, mine)
            held = mine[watched]
            self._add("watch", model, made[watched[held]], code[held], values[held])
            fitted = changes.prediction_ms if self._rules(model).positives_only else changes.outcome_ms
            frozen = (changes.frozen & mine)[raw.row]
            self._add_frozen(model, changes.prediction_ms, fitted, series, raw, frozen)

    def _add_frozen(
        self, model: int, made: Ints, fitted: Ints, series: Ints, raw: Scored, frozen: NDArray[np.bool_]
    ) -> None:
        pane_ms = self._settings.pane_ms
        if model not in self._steps:
            name = self._names.models[model]
            self._steps[model] = self._settings.step_ms(name), self._settings.corrected(name)
        step_ms, cut = self._steps[model]
        row, bins, values = raw.row[frozen], raw.bins[frozen], raw.values[frozen]
        pane = fitted[row] // pane_ms
        self._add("fit", model, pane, step_codes(made[row], bins, step_ms), values)
        if cut is not None:
            code = series[cut, row] * SEGMENT_CODES + segment_codes(pane, made[row], bins, pane_ms, step_ms)
            self._add("segment", model, pane, code, values)

    def _add_windows(self, model: int, pane: Ints, cells: Cells, row: Ints, mine: NDArray[np.bool_]) -> None:
        held = mine[row]
        if not held.all():
            cells, row = Cells(cells.code[held], cells.values[held]), row[held]
        reduced = self._add("window", model, pane[row], cells.code, cells.values)
        whole = self._series.is_whole()[reduced.code // CODES_PER_SERIES]
        zero = np.zeros(int(whole.sum()), dtype=np.int64)
        self._add("everything", model, zero, reduced.code[whole], reduced.values[whole])

    def _add(self, family: Family, model: int, pane: Ints, code: NDArray[np.integer], values: Ints) -> Cells:
        """Count cells; `values` of shape (n,) is one column."""
        place = (family, model)
        table = values[:, None] if values.ndim == 1 else values
        panes, cells = self.state_child("_stores", place).add(pane, code.astype(np.int64), table)
        if len(panes):
            chunk = self._chunks(cells.code // CODES[family]) if family in CODES else np.zeros_like(panes)
            new = np.ones(len(panes), dtype=np.bool_)  # cells ascend by pane and series: equal pairs mostly meet
            new[1:] = (panes[1:] != panes[:-1]) | (chunk[1:] != chunk[:-1])
            pairs = zip(panes[new].tolist(), chunk[new].tolist(), strict=True)
            self._changed.setdefault(place, set()).update(pairs)
        return cells

    def _chunks(self, series: Ints) -> Ints:
        known = len(self._chunk_of)
        if known < len(self._series):
            keys = [self._series.key(number) for number in range(known, len(self._series))]
            more = [self._settings.chunk((cut, values)) for _, cut, values in keys]
            self._chunk_of = np.append(self._chunk_of, np.array(more, dtype=np.int64))
        found: Ints = self._chunk_of[series]
        return found

    def _parts(self, place: Place, pane: int, chunks: Sequence[int]) -> Iterator[tuple[PartKey, Part]]:
        family, model = place
        store = self._stores[place]
        if pane in store:
            cells = store.of_pane(pane)
        else:  # a version was noted, of predictions without a label so far
            cells = Cells(np.empty(0, dtype=np.int64), np.empty((0, PLAIN), dtype=np.int64))
        series, code = _divided(family, cells.code)
        name = self._names.models[model]
        chunk = self._chunks(series) if family in CODES and self._settings.chunks > 1 else None
        for number in chunks:
            mine = slice(None) if chunk is None else chunk == number
            part = self._part(place, pane, number, series[mine], Cells(code[mine], cells.values[mine]))
            yield PartKey(family, name, pane, number), part

    def _part(self, place: Place, pane: int, chunk: int, series: Ints, cells: Cells) -> Part:
        family, model = place
        begins = np.ones(len(series), dtype=np.bool_)  # cells of a pane ascend by code, and so by series
        begins[1:] = series[1:] != series[:-1]
        present, index = series[begins], np.cumsum(begins) - 1
        keys: list[SeriesKey] = [(0, ())] if len(present) else []
        if family in CODES:
            keys = [self._series.key(number)[1:] for number in present.tolist()]
        told = family == "window"
        version = self._versions.get(model, {}).get(pane) if family == "watch" and chunk == 0 else None
        last_ms = self._last_ms[present] if told else np.empty(0, dtype=np.int64)
        return Part(keys, index.astype(np.int64), cells.code, cells.values, last_ms, version)

    def _note_outcomes(self, series: Ints, changes: RowChanges) -> None:
        if len(self._last_ms) < len(self._series):
            room = max(len(self._series), 2 * len(self._last_ms)) - len(self._last_ms)
            self._last_ms = np.append(self._last_ms, np.zeros(room, dtype=np.int64))
        new = changes.sign > 0
        for cut in series[:, new]:
            np.maximum.at(self._last_ms, cut, changes.outcome_ms[new])

    def _note_versions(self, models: NDArray[np.int32], time_ms: Ints, version: Ints) -> None:
        pane = time_ms // self._settings.pane_ms
        for model in np.unique(models).tolist():
            mine = models == model
            held = self._versions.setdefault(model, {})
            distinct, index = np.unique(pane[mine], return_inverse=True)
            highest = np.full(len(distinct), -1, dtype=np.int64)
            np.maximum.at(highest, index, version[mine])
            self.state_child("_stores", ("watch", model))
            changed = self._changed.setdefault(("watch", model), set())
            for number, found in zip(distinct.tolist(), highest.tolist(), strict=True):
                if found > held.get(number, -2):
                    held[number] = found
                    changed.add((number, 0))

    def _layout(self, model: int) -> CohortLayout:
        layout = self._layouts.get(model)
        if layout is None:
            layout = self._layouts[model] = self._settings.cohorts(self._rules(model).horizon_ms)
        return layout

    def _promote(self) -> None:
        for (family, _), store in self._stores.items():
            if family in _WEIGHED:
                store.promote(promote)
        self._width = WEIGHTED


def _divided(family: Family, code: Ints) -> tuple[Ints, Ints]:
    """Series, and codes within them; families of whole models have one series."""
    if family not in CODES:
        return np.zeros_like(code), code
    series = code // CODES[family]
    return series, code - series * CODES[family]


def _by_model(parts: Sequence[Columns]) -> Iterator[tuple[int, Columns]]:
    """(model index, its rows)."""
    if not parts:
        return
    columns: Columns = concatenate(parts)
    for model in np.unique(columns.model).tolist():
        yield model, taken(columns, np.flatnonzero(columns.model == model))
