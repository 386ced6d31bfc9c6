"""Predictions of which some have scores by class.

The event's model decides what is read: a model with classes needs a score in [0, 1] of each of them, not all 0, in
`scores`, and the same of `raw_scores` where it is there; nobody looks at `score` and `raw_score`. For a model without,
nobody looks at what is there by class.

A missing class is `bad_score` and not 0: a list cut to the highest scores cannot be told from one with a class under
another name, and 0 is a claim that costs 16 nats where the class occurs. Scores of classes that are not configured are
not read, and what remains is divided by its sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stream import values
from streamcal.stream.class_rows import ClassRows, RowTable
from streamcal.stream.classes import Classes, ClassSets, normalised
from streamcal.stream.events import NO_VERSION, Names
from streamcal.stream.fields import PredictionFields
from streamcal.stream.interned import MOST_CACHED, ModelColumn
from streamcal.stream.judge import scores_fit
from streamcal.stream.score_columns import clip, raw_scores, versions
from streamcal.stream.slots import CLASS_RAW, CLASS_SCORE, CLASS_VERSION

__all__ = ["PredictionClasses", "ScoreRows"]

Columns = Mapping[str, Sequence[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_REFUSED: Final = -1
_SINGLE: Final = frozenset(("score", "raw_score"))


@dataclass(frozen=True, slots=True)
class ScoreRows:
    """Rows of predictions and their scores; columns as those of `PredictionBatch`.

    Attributes
    ----------
    rows : ClassRows
    clipped : int
    """

    rows: ClassRows
    served: Floats
    raw: Floats
    version: Ints
    clipped: int


class _Kinds(dict[str, int]):
    """Model name to the place of its class set among `sets`, or `_REFUSED` for the name of a class's own rows."""

    def __init__(self, sets: ClassSets, kinds: Sequence[Classes]) -> None:
        super().__init__()
        self._sets = sets
        self._places = {classes: place for place, classes in enumerate(kinds)}

    def __missing__(self, name: str) -> int:
        refused = self._sets.parent(name) is not None
        if len(self) >= MOST_CACHED:
            self.clear()
        place = self[name] = _REFUSED if refused else self._places[self._sets.of(name)]
        return place


class PredictionClasses:
    """What models of several classes change in the decoding of predictions."""

    def __init__(self, sets: ClassSets, fields: PredictionFields, models: ModelColumn, names: Names) -> None:
        self._sets = sets
        self._models = models
        self._kinds: tuple[Classes, ...] = (*sets.sets, ())
        self._kind_of = _Kinds(sets, self._kinds)
        self._place = {name: place for place, name in enumerate(sets.names)}
        self._with_raw = fields.raw_scores is not None
        self._with_version = fields.map_versions is not None
        every = [slot.format(i) for slot in (CLASS_SCORE, CLASS_RAW, CLASS_VERSION) for i in self._place.values()]
        self._by_class = frozenset(every)
        self._table = RowTable(names)
        self._group: dict[str, int] = {}

    # -- one event by itself ----------------------------------------------------------------------------------

    def unread(self, fields: Mapping[str, Any]) -> Collection[str]:
        """Slots of other kinds of models."""
        name = self._models.name(fields)
        if name is None:
            return ()
        classes = self._sets.of(name)
        if not classes:
            return self._by_class
        read = {slot.format(self._place[c]) for slot in (CLASS_SCORE, CLASS_RAW, CLASS_VERSION) for c in classes}
        return _SINGLE | (self._by_class - read)

    def shape(self, fields: Mapping[str, Any]) -> bool:
        """Whether the model's name is no class's, and versions by class can be read."""
        name = self._models.name(fields)
        if name is None or self._sets.parent(name) is not None:
            return False
        slots = self._slots(CLASS_VERSION, self._sets.of(name)) if self._with_version else []
        return all(values.version(fields[slot]) is not None for slot in slots)

    def content(self, fields: Mapping[str, Any]) -> str | None:
        """``bad_score`` or None."""
        classes = self._sets.of(self._models.name(fields) or "")
        if not classes:
            return None if scores_fit(fields) else "bad_score"
        raw = [fields[slot] for slot in self._slots(CLASS_RAW, classes)] if self._with_raw else []
        served = [fields[slot] for slot in self._slots(CLASS_SCORE, classes)]
        fine = _are_scores(served) and (all(value is None for value in raw) or _are_scores(raw))
        return None if fine else "bad_score"

    # -- columns ----------------------------------------------------------------------------------------------

    def misfit(self, columns: Columns) -> NDArray[np.bool_]:
        """Events that the strict type admits and their model does not."""
        kind = self._kind(self._names(columns))
        unfit: NDArray[np.bool_] = kind == _REFUSED
        for place in np.unique(kind[~unfit]).tolist():
            rows = np.flatnonzero(kind == place)
            unfit[rows] = self._unfit(columns, self._kinds[place], rows)
        return unfit

    def rows(self, columns: Columns) -> ScoreRows:
        """Rows of events that all fit."""
        names = self._names(columns)
        kind = self._kind(names)
        rows = self._rows(names)
        served, raw = np.empty(len(rows.owner)), np.empty(len(rows.owner))
        version = np.empty(len(rows.owner), dtype=np.int64)
        clipped = 0
        for place in np.unique(kind).tolist():
            events = np.flatnonzero(kind == place)
            classes = self._kinds[place]
            at = rows.first[events] + np.arange(max(len(classes), 1))[:, None]
            read = self._of_classes(columns, classes, events) if classes else _single(columns, events)
            served[at], raw[at], version[at] = read[:3]
            clipped += read[3]
        return ScoreRows(rows, served, raw, version, clipped)

    def _names(self, columns: Columns) -> list[str]:
        # A prediction's model has a name: that of models without one, if no other.
        return [name or "" for name in self._models.names(columns, len(columns["id"]))]

    def _kind(self, names: Sequence[str]) -> Ints:
        return np.fromiter(map(self._kind_of.__getitem__, names), np.int64, len(names))

    def _rows(self, names: Sequence[str]) -> ClassRows:
        if self._table.is_full:
            self._table.clear()
            self._group.clear()
        for name in names:
            if name not in self._group:
                self._group[name] = self._table.begin()
                if classes := self._sets.of(name):
                    self._table.add_classes(name, classes)
                else:
                    self._table.add_single(name)
        return self._table.rows([self._group[name] for name in names])

    def _unfit(self, columns: Columns, classes: Classes, events: Ints) -> NDArray[np.bool_]:
        if not classes:
            return np.array([score is None for score in _picked(columns["score"], events)], dtype=np.bool_)
        unfit: NDArray[np.bool_] = ~_has_sum(self._matrix(columns, CLASS_SCORE, classes, events))
        if self._with_raw:
            raw = self._matrix(columns, CLASS_RAW, classes, events)
            unfit |= ~np.isnan(raw).all(axis=0) & ~_has_sum(raw)
        return unfit

    def _of_classes(self, columns: Columns, classes: Classes, events: Ints) -> tuple[Floats, Floats, Ints, int]:
        """Served and raw scores, versions, and how many scores were clipped; shape (classes, events)."""
        served, clipped = clip(self._matrix(columns, CLASS_SCORE, classes, events))
        served = np.stack(normalised(list(served)))
        version = np.tile(_versions(columns, "map_version", events), (len(classes), 1))
        if self._with_version:
            own = [_versions(columns, slot, events) for slot in self._slots(CLASS_VERSION, classes)]
            version = np.where(np.stack(own) == NO_VERSION, version, own)
        # A map of one class moves the normalised scores of all.
        raw = np.where((version == NO_VERSION).all(axis=0), served, np.nan)
        if self._with_raw:
            given, clipped_raw = clip(self._matrix(columns, CLASS_RAW, classes, events))
            known = np.flatnonzero(~np.isnan(given[0]))
            raw[:, known] = normalised(list(given[:, known]))
            clipped += clipped_raw
        return served, raw, version, clipped

    def _matrix(self, columns: Columns, slot: str, classes: Classes, events: Ints) -> Floats:
        """Scores, NaN where missing; shape (classes, events)."""
        picked = [_picked(columns[name], events) for name in self._slots(slot, classes)]
        return np.array(picked, dtype=np.float64)  # None becomes NaN

    def _slots(self, slot: str, classes: Classes) -> list[str]:
        return [slot.format(self._place[name]) for name in classes]


def _are_scores(found: Sequence[object]) -> bool:
    """Whether all are scores, and not all 0."""
    scores = [values.score(value) for value in found]
    return None not in scores and any(score > 0.0 for score in scores if score is not None)


def _has_sum(scores: Floats) -> NDArray[np.bool_]:
    """Whether each column of (classes, events) is complete and not all 0 once clipped."""
    return np.asarray(~np.isnan(scores).any(axis=0) & (scores > 0.0).any(axis=0), dtype=np.bool_)


def _picked(column: Sequence[Any], events: Ints) -> Sequence[Any]:
    """The column at these events alone: elsewhere anything may be, as nobody looks at it there."""
    return column if len(events) == len(column) else [column[event] for event in events.tolist()]


def _versions(columns: Columns, slot: str, events: Ints) -> Ints:
    column = columns.get(slot)
    return versions(None if column is None else _picked(column, events), len(events))


def _single(columns: Columns, events: Ints) -> tuple[Floats, Floats, Ints, int]:
    """Scores of models without classes, as `_of_classes`."""
    served, clipped = clip(np.array(_picked(columns["score"], events), dtype=np.float64))
    version = _versions(columns, "map_version", events)
    column = columns.get("raw_score")
    raw, clipped_raw = raw_scores(None if column is None else _picked(column, events), served, version)
    return served, raw, version, clipped + clipped_raw
