"""The parts and marks of all sources, as read from the counts topic, brought to the aggregator.

A part replaces what its source said of the same key before: what is counted is the difference. Of a pane that was final
when its source last marked nothing can be new; such a part is a repetition and left aside, so that what is held for
differences stays as small as what can still change. Of several claims the highest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.aggregator import Aggregator
from streamcal.parts.finality import final_before_ms
from streamcal.parts.mark import Mark, MarkKey, total
from streamcal.parts.part import Part, PartKey, SeriesKey, StoredKey
from streamcal.parts.source_counts import CODES, CountSettings
from streamcal.state.trees import recorded
from streamcal.stats.cells import Cells, reduce_cells
from streamcal.stats.counts import promote
from streamcal.stats.series import SeriesTable
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import BEGINNING

__all__ = ["Merge"]

Ints = NDArray[np.int64]


@recorded
@dataclass(frozen=True, slots=True)
class _Held:
    """The last part of a key."""

    claim: int
    series: list[SeriesKey]
    place: Ints
    code: Ints
    values: Ints


class Merge:
    """Keeps what each source said last, and tells the aggregator what is new.

    Guarantee: the aggregator's counts are the sum of the latest parts of all sources, whatever was read twice.

    Parameters
    ----------
    aggregator : Aggregator
    settings : CountSettings
    sources : int
        Number of sources; event time waits for all of them.
    tally : Tally
        Filled with the sum of the marks.
    """

    STATE = ("_held", "_keys", "_marks", "_claims")

    def __init__(self, aggregator: Aggregator, settings: CountSettings, sources: int, tally: Tally) -> None:
        self._aggregator = aggregator
        self._settings = settings
        self._sources = sources
        self._tally = tally
        self._held: dict[tuple[int, PartKey], _Held] = {}
        self._keys: dict[tuple[int, PartKey], int] = {}
        self._marks: dict[int, Mark] = {}
        self._claims: dict[int, int] = {}
        self._stale: list[bytes] = []
        aggregator.follow(range(sources))

    def part(self, stored: StoredKey, part: Part) -> None:
        """Take a part in."""
        key = (stored.source, stored.part)
        claim = self._keys.get(key, -1)
        if stored.claim < claim:
            self._stale.append(stored.to_bytes())
            return
        if stored.claim > claim >= 0:
            self._stale.append(StoredKey(stored.part, stored.source, claim).to_bytes())
        self._keys[key] = stored.claim
        if stored.part.pane < self._final_before(stored.source, stored.part):
            return
        held = self._held.get(key)
        self._held[key] = _Held(stored.claim, list(part.series), part.place, part.code, part.values)
        self._apply(stored.part, part, held)

    def mark(self, key: MarkKey, mark: Mark) -> None:
        """Take a mark in: everything its source told before is complete up to its watermarks."""
        claim = self._claims.get(key.source, -1)
        if key.claim < claim:
            self._stale.append(key.to_bytes())
            return
        if key.claim > claim >= 0:
            self._stale.append(MarkKey(key.source, claim).to_bytes())
        self._claims[key.source] = key.claim
        self._marks[key.source] = mark
        for name in mark.models:
            self._aggregator.loop(self._aggregator.names.model(name))

    def settle(self) -> None:
        """Let the aggregator go on to where the marks are, and let go of what became final."""
        names = self._aggregator.names
        index = {name: names.model(name) for mark in self._marks.values() for name in mark.models}
        total(self._marks.values(), self._tally, index)
        marks = dict.fromkeys(range(self._sources), (BEGINNING, BEGINNING))
        self._aggregator.go_on(marks | {source: mark.watermarks for source, mark in self._marks.items()})
        for source, key in [key for key in self._held if key[1].pane < self._final_before(*key)]:
            del self._held[source, key]

    def take_stale(self) -> list[bytes]:
        """Keys on the counts topic that nobody needs any more: of older claims, and of panes out of every window."""
        gone = [key for key in self._keys if key[1].pane < self._needed_from(key[1])]
        stale, self._stale = self._stale, []
        for source, key in gone:
            stale.append(StoredKey(key, source, self._keys.pop((source, key))).to_bytes())
            self._held.pop((source, key), None)
        return stale

    @property
    def marks(self) -> dict[int, Mark]:
        """The latest mark of each source."""
        return self._marks

    def watermarks(self) -> Iterator[tuple[tuple[str, int], int]]:
        """Watermark of every log that has one."""
        for source, mark in sorted(self._marks.items()):
            for topic, value in zip(("predictions", "outcomes"), mark.watermarks, strict=True):
                if value > BEGINNING:
                    yield (topic, source), value

    def _final_before(self, source: int, key: PartKey) -> int:
        """First pane of a family that may still change at a source."""
        mark = self._marks.get(source)
        if mark is None or key.family == "everything":
            return BEGINNING
        horizon_ms = self._horizon_ms(key.model)
        unit_ms = self._settings.unit_ms(key.family, horizon_ms)
        return final_before_ms(mark.watermarks, horizon_ms, self._settings.skew_ms) // unit_ms

    def _needed_from(self, key: PartKey) -> int:
        """First pane of a family that the aggregator still needs."""
        if key.family == "everything":
            return BEGINNING
        model = self._aggregator.names.model(key.model)
        return self._aggregator.needed_from(key.family, model)

    def _horizon_ms(self, model: str) -> int:
        return self._aggregator.rules(self._aggregator.names.model(model)).horizon_ms

    def _apply(self, key: PartKey, part: Part, held: _Held | None) -> None:
        aggregator, model = self._aggregator, self._aggregator.names.model(key.model)
        aggregator.loop(model)
        if key.family == "watch":
            if part.version is not None:
                aggregator.watches[model].note_versions(key.pane, part.version)
            aggregator.add_watch(model, *self._new(key, part, held, aggregator.watch_panes[model].series, model))
        elif key.family in ("window", "everything"):
            series = aggregator.aggregate.series
            pane, cells = self._new(key, part, held, series, model)
            if key.family == "everything":
                aggregator.aggregate.add_everything(cells)
            else:
                numbers = _numbers(part.series, series, model)
                present = (numbers, np.full(len(numbers), key.pane), part.last_ms)
                aggregator.aggregate.add_window(pane, cells, present)
        elif key.family == "score":
            pane, cells = self._new(key, part, held, aggregator.signs.score_series, model)
            aggregator.signs.add_scores(pane, cells.code, cells.values[:, 0])
        else:
            pane, cells = self._new(key, part, held, None, model)
            if key.family == "cohort":
                aggregator.signs.add_cohorts(model, pane, cells.code, cells.values[:, 0])
            else:
                aggregator.aggregate.add_fit(model, pane, cells)

    def _new(
        self, key: PartKey, part: Part, held: _Held | None, series: SeriesTable | None, model: int
    ) -> tuple[Ints, Cells]:
        """What a part adds to what was held: cells by the aggregator's numbers, and their panes."""
        code, values = _coded(key, part.series, part.place, part.code, series, model), part.values
        if held is not None:
            before = held.values
            if before.shape[1] < values.shape[1]:
                before = promote(before)
            code = np.append(code, _coded(key, held.series, held.place, held.code, series, model))
            values = np.concatenate([values, -before])
            cells = reduce_cells(code, values)
            changed = cells.values.any(axis=1)
            code, values = cells.code[changed], cells.values[changed]
        return np.full(len(code), key.pane), Cells(code, values)


def _numbers(keys: Sequence[SeriesKey], series: SeriesTable, model: int) -> Ints:
    return np.array([series.number(model, cut, values) for cut, values in keys], dtype=np.int64)


def _coded(
    key: PartKey, keys: Sequence[SeriesKey], place: Ints, code: Ints, series: SeriesTable | None, model: int
) -> Ints:
    if series is None:
        return code
    coded: Ints = _numbers(keys, series, model)[place] * CODES[key.family] + code
    return coded
