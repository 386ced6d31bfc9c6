"""The parts and marks of all sources, as read from the counts topic, brought to the aggregator.

A part replaces what its source said of the same key before: what is counted is the difference. Of a pane that was final
when its source last marked nothing can be new; such a part is a repetition and left aside, so that what is held for
differences stays as small as what can still change. Of several claims the highest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.aggregator import Aggregator
from streamcal.parts.difference import Held
from streamcal.parts.finality import final_before_ms
from streamcal.parts.mark import Mark, MarkKey, total
from streamcal.parts.netting import net, numbers_of, present
from streamcal.parts.part import Family, Part, PartKey, StoredKey
from streamcal.parts.source_counts import CountSettings
from streamcal.state.trees import dump_fields, load_fields
from streamcal.stats.cells import Cells
from streamcal.stats.series import SeriesTable
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import BEGINNING

__all__ = ["Merge"]

Ints = NDArray[np.int64]
_REST: Final = ("_marks", "_claims", "_old_marks", "_old_parts", "_floors")


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

    def __init__(self, aggregator: Aggregator, settings: CountSettings, sources: int, tally: Tally) -> None:
        self._aggregator = aggregator
        self._settings = settings
        self._sources = sources
        self._tally = tally
        self._held: dict[tuple[int, PartKey], Held] = {}
        self._keys: dict[tuple[int, PartKey], int] = {}
        self._marks: dict[int, Mark] = {}
        self._claims: dict[int, int] = {}
        self._floors: dict[int, int] = {}
        self._old_marks: list[bytes] = []
        self._old_parts: list[tuple[int, int, bytes]] = []
        self._waiting: dict[tuple[Family, int], dict[tuple[int, PartKey], tuple[Held | None, Part]]] = {}
        self._final: dict[tuple[int, Family, str], int] = {}
        self._units: dict[tuple[Family, int], int] = {}
        aggregator.follow(range(sources))

    def dump_state(self) -> dict[str, Any]:
        """What is held for differences as columns, for there are many parts; the rest by name."""
        assert not self._waiting, "what was taken in is counted first: see `settle`"
        keys, held = list(self._keys), list(self._held.items())
        return {
            "rest": dump_fields(self, _REST),
            "keys": [[source, *key] for source, key in keys],
            "claims": np.array([self._keys[key] for key in keys], dtype=np.int64),
            "held": [[source, *key] for (source, key), _ in held],
            "series": [[[cut, list(values)] for cut, values in part.series] for _, part in held],
            "sizes": np.array([len(part.code) for _, part in held], dtype=np.int64),
            "widths": np.array([part.values.shape[1] for _, part in held], dtype=np.int64),
            "tables": _tables([part for _, part in held]),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        load_fields(self, _REST, state["rest"])
        claims = state["claims"].tolist()
        self._keys = {_key_of(row): claim for row, claim in zip(state["keys"], claims, strict=True)}
        starts = dict.fromkeys(state["tables"], 0)
        for row, series, size in zip(state["held"], state["series"], state["sizes"].tolist(), strict=True):
            source, key = _key_of(row)
            width = str(state["widths"][len(self._held)])
            start = starts[width]
            starts[width] = start + size
            table = state["tables"][width][:, start : start + size]
            told = [(cut, tuple(values)) for cut, values in series]
            self._held[source, key] = Held(told, table[0].copy(), table[1].copy(), table[2:].T.copy())

    def begin_after(self, floors: Mapping[int, int]) -> None:
        """Take nothing of claims below these, by source: they were made void by a reset."""
        self._floors = dict(floors)

    def part(self, stored: StoredKey, part: Part) -> None:
        """Take a part in."""
        key = (stored.source, stored.part)
        claim = self._keys.get(key, -1)
        if stored.claim < max(claim, self._floors.get(stored.source, -1)):
            self._supersede(stored)
            return
        if stored.claim > claim >= 0:
            self._supersede(StoredKey(stored.part, stored.source, claim))
        self._keys[key] = stored.claim
        if stored.part.pane < self._final_before(stored.source, stored.part):
            return
        held = self._held.get(key)
        self._held[key] = Held(list(part.series), part.place, part.code, part.values)
        self._note(key, part, held)

    def mark(self, key: MarkKey, mark: Mark) -> None:
        """Take a mark in: everything its source told before is complete up to its watermarks."""
        claim = self._claims.get(key.source, -1)
        if key.claim < max(claim, self._floors.get(key.source, -1)):
            self._old_marks.append(key.to_bytes())
            return
        if key.claim > claim >= 0:
            self._old_marks.append(MarkKey(key.source, claim).to_bytes())
        self._claims[key.source] = key.claim
        self._marks[key.source] = mark
        self._final.clear()
        for name in mark.models:
            self._aggregator.loop(self._aggregator.names.model(name))

    def settle(self) -> None:
        """Let the aggregator go on to where the marks are, and let go of what became final."""
        self._apply()
        names = self._aggregator.names
        index = {name: names.model(name) for mark in self._marks.values() for name in mark.models}
        total(self._marks.values(), self._tally, index)
        marks = dict.fromkeys(range(self._sources), (BEGINNING, BEGINNING))
        self._aggregator.go_on(marks | {source: mark.watermarks for source, mark in self._marks.items()})
        for source, key in [key for key in self._held if key[1].pane < self._final_before(*key)]:
            del self._held[source, key]

    def take_stale(self) -> list[bytes]:
        """Keys on the counts topic that nobody needs any more: of older claims, and of panes out of every window.

        To be called once what was taken in is durable, and to be taken back in this order: a mark says that the parts
        of its claim are there, so it goes before them.
        """
        needed = {place: self._needed_from(*place) for place in {(key.family, key.model) for _, key in self._keys}}
        gone = [key for key in self._keys if key[1].pane < needed[key[1].family, key[1].model]]
        stale, self._old_marks = self._old_marks, []
        stale += [key for source, claim, key in self._old_parts if claim < self._claims.get(source, -1)]
        self._old_parts = [old for old in self._old_parts if old[1] >= self._claims.get(old[0], -1)]
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

    def _supersede(self, stored: StoredKey) -> None:
        """A part of an older claim, to be taken back once a mark of a newer claim has been seen."""
        self._old_parts.append((stored.source, stored.claim, stored.to_bytes()))

    def _final_before(self, source: int, key: PartKey) -> int:
        """First pane of a family that may still change at a source."""
        place = (source, key.family, key.model)
        known = self._final.get(place)
        if known is None:
            known = self._final[place] = self._found_final(*place)
        return known

    def _found_final(self, source: int, family: Family, model: str) -> int:
        mark = self._marks.get(source)
        if mark is None or family == "everything":
            return BEGINNING
        horizon_ms = self._aggregator.rules(self._aggregator.names.model(model)).horizon_ms
        unit_ms = self._unit_ms(family, horizon_ms)
        return final_before_ms(mark.watermarks, horizon_ms, self._settings.skew_ms) // unit_ms

    def _unit_ms(self, family: Family, horizon_ms: int) -> int:
        known = self._units.get((family, horizon_ms))
        if known is None:
            known = self._units[family, horizon_ms] = self._settings.unit_ms(family, horizon_ms)
        return known

    def _needed_from(self, family: Family, model: str) -> int:
        """First pane of a family that the aggregator still needs."""
        if family == "everything":
            return BEGINNING
        return self._aggregator.needed_from(family, self._aggregator.names.model(model))

    def _note(self, place: tuple[int, PartKey], part: Part, held: Held | None) -> None:
        """Let what a part says beyond what was held wait for `_apply`; of several of a key the last one counts."""
        key = place[1]
        model = self._aggregator.names.model(key.model)
        self._aggregator.loop(model)
        if key.family == "watch" and part.version is not None:
            self._aggregator.note_version(model, key.pane, part.version)
        waiting = self._waiting.setdefault((key.family, model), {})
        first, _ = waiting.get(place, (held, part))
        waiting[place] = (first, part)

    def _apply(self) -> None:
        """Count what waits, all parts of a family and model at once."""
        waiting, self._waiting = self._waiting, {}
        for (family, model), parts in waiting.items():
            series = self._series(family, model)
            numbers = None if series is None else numbers_of(series, model)
            panes, cells = net(family, parts, numbers)
            if family == "window" and numbers is not None:
                self._aggregator.aggregate.add_window(panes, cells, present(parts, numbers))
            else:
                self._count(family, model, panes, cells)

    def _count(self, family: Family, model: int, pane: Ints, cells: Cells) -> None:
        aggregator = self._aggregator
        match family:
            case "everything":
                aggregator.aggregate.add_everything(cells)
            case "fit":
                aggregator.aggregate.add_fit(model, pane, cells)
            case "segment":
                aggregator.aggregate.add_segments(model, pane, cells)
            case "watch":
                aggregator.add_watch(model, pane, cells)
            case "cohort":
                aggregator.signs.add_cohorts(model, pane, cells.code, cells.values[:, 0])
            case "score":
                aggregator.signs.add_scores(pane, cells.code, cells.values[:, 0])

    def _series(self, family: Family, model: int) -> SeriesTable | None:
        """Numbers of segments where a family is counted; None where it counts whole models only."""
        match family:
            case "window" | "everything":
                return self._aggregator.aggregate.series
            case "segment":
                segments = self._aggregator.aggregate.segments(model)
                return None if segments is None else segments.series
            case "watch":
                return self._aggregator.watch_panes[model].series
            case "score":
                return self._aggregator.signs.score_series
        return None


def _key_of(row: Sequence[Any]) -> tuple[int, PartKey]:
    source, *key = row
    return source, PartKey(*key)


def _tables(parts: Sequence[Held]) -> dict[str, Ints]:
    """Place, code and columns of all parts of a width, side by side; shape (2 + width, cells)."""
    by_width: dict[str, list[Ints]] = {}
    for part in parts:
        table = np.concatenate([part.place[None], part.code[None], part.values.T])
        by_width.setdefault(str(part.values.shape[1]), []).append(table)
    return {width: np.concatenate(tables, axis=1) for width, tables in by_width.items()}
