"""Outcomes of which some name a class.

An outcome of a model with classes labels all of them: 1 for the class its label names, 0 for the others. One that names
no model says so to every class set that has the class, and is a yes or no for models with one score where its label is
such a value too; what says nothing at all is `bad_label`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stream import values
from streamcal.stream.class_rows import ClassRows, RowTable
from streamcal.stream.classes import ClassSets
from streamcal.stream.events import Names
from streamcal.stream.interned import MOST_CACHED, ModelColumn

__all__ = ["OutcomeClasses"]

Columns = Mapping[str, Sequence[Any]]
Said = tuple[str | None, type, Any]
"""Model, and label with its type: 1, 1.0 and True are one dictionary key."""


class OutcomeClasses:
    """What models of several classes change in the decoding of outcomes."""

    def __init__(self, sets: ClassSets, label: values.LabelRule, models: ModelColumn, names: Names) -> None:
        self._sets = sets
        # In another order the classes are the same: their rows are told apart by the set.
        self._distinct = tuple({frozenset(classes): classes for classes in sets.sets}.values())
        self._label = label
        self._models = models
        self._table = RowTable(names)
        self._group: dict[Said, int] = {}
        self._fits: dict[Said, bool] = {}

    def unread(self, fields: Mapping[str, Any]) -> Collection[str]:  # noqa: ARG002 - as for predictions
        """Everything read of an outcome matters to every model."""
        return ()

    def shape(self, fields: Mapping[str, Any]) -> bool:
        """Whether the name of the model, where there is one, is no class's."""
        name = self._models.name(fields)
        return name is None or self._sets.parent(name) is None

    def content(self, fields: Mapping[str, Any]) -> str | None:
        """``bad_label`` or None."""
        name, label = self._models.name(fields), fields["label"]
        return None if self._classes(name, label) or self._single(name, label) is not None else "bad_label"

    def misfit(self, columns: Columns) -> NDArray[np.bool_]:
        """Outcomes that say nothing to their model, or to any."""
        return np.array([not self._does_fit(said) for said in self._said(columns)], dtype=np.bool_)

    def rows(self, columns: Columns) -> ClassRows:
        """Rows of outcomes that all fit."""
        if self._table.is_full:
            self._table.clear()
            self._group.clear()
        return self._table.rows([self._group_of(said) for said in self._said(columns)])

    def _said(self, columns: Columns) -> Iterator[Said]:
        labels = columns["label"]
        names = self._models.names(columns, len(labels))
        return zip(names, map(type, labels), labels, strict=True)

    def _does_fit(self, said: Said) -> bool:
        fits = self._fits.get(said)
        if fits is None:
            if len(self._fits) >= MOST_CACHED:
                self._fits.clear()
            name, _, label = said
            shaped = name is None or self._sets.parent(name) is None
            speaks = bool(self._classes(name, label)) or self._single(name, label) is not None
            fits = self._fits[said] = shaped and speaks
        return fits

    def _group_of(self, said: Said) -> int:
        group = self._group.get(said)
        if group is None:
            name, _, label = said
            group = self._group[said] = self._table.begin()
            for classes in self._classes(name, label):
                self._table.add_classes(name, classes, values.class_text(label))
            single = self._single(name, label)
            if single is not None:
                self._table.add_single(name, single)
        return group

    def _classes(self, name: str | None, label: object) -> list[tuple[str, ...]]:
        """The class sets a label speaks of."""
        text = values.class_text(label)
        sets = self._distinct if name is None else (self._sets.of(name),)
        return [classes for classes in sets if text in classes]

    def _single(self, name: str | None, label: object) -> int | None:
        """What a label says to models with one score."""
        read = self._sets.single_scores if name is None else not self._sets.of(name)
        return self._label.one(label) if read else None
