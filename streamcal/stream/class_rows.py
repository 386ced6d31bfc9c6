"""The parts of rows that follow from a model's name (and a label) alone, kept ready and picked for whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.classes import Classes, class_model, class_salts
from streamcal.stream.events import NO_MODEL, Names
from streamcal.stream.interned import MOST_CACHED

__all__ = ["ClassRows", "RowTable"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Rows of several events; those of one event stand together.

    Attributes
    ----------
    owner : int64
        Place of the row's event.
    first : int64
        Of each event the place of its first row.
    salt_hi, salt_lo : uint64
        To be combined with the two words of the id's hash.
    model : int32
    label : int8
    """

    owner: Ints
    first: Ints
    salt_hi: NDArray[np.uint64]
    salt_lo: NDArray[np.uint64]
    model: NDArray[np.int32]
    label: NDArray[np.int8]


class RowTable:
    """Groups of rows by number.

    Parameters
    ----------
    names : Names
        Class models are interned as their group is begun.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._salts: dict[Classes, tuple[NDArray[np.uint64], NDArray[np.uint64]]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all groups; their numbers mean nothing any more."""
        self._start: list[int] = []
        self._size: list[int] = []
        self._hi: list[int] = []
        self._lo: list[int] = []
        self._model: list[int] = []
        self._label: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether it is time to clear."""
        return len(self._start) >= MOST_CACHED

    def begin(self) -> int:
        """The number of a new, empty group; rows are added to the newest one."""
        self._start.append(len(self._model))
        self._size.append(0)
        return len(self._start) - 1

    def add_single(self, model: str | None, label: int = 0) -> None:
        """Add the row of a model with one score; None: of all such."""
        self._hi.append(0)
        self._lo.append(0)
        self._add(model, label)

    def add_classes(self, model: str | None, classes: Classes, label: str | None = None) -> None:
        """Add a row per class, labelled 1 where it is `label`; None: of all models with these classes."""
        if classes not in self._salts:
            self._salts[classes] = class_salts(classes)
        hi, lo = self._salts[classes]
        self._hi += hi.tolist()
        self._lo += lo.tolist()
        for name in classes:
            self._add(None if model is None else class_model(model, name), int(name == label))

    def _add(self, model: str | None, label: int) -> None:
        self._model.append(NO_MODEL if model is None else self._names.model(model))
        self._label.append(label)
        self._size[-1] += 1

    def rows(self, groups: Sequence[int]) -> ClassRows:
        """The rows of one group per event."""
        group = np.array(groups, dtype=np.int64)
        size = np.array(self._size, dtype=np.int64)[group]
        first = np.cumsum(size) - size
        owner = np.repeat(np.arange(len(group)), size)
        at = np.arange(len(owner)) + (np.array(self._start, dtype=np.int64)[group] - first)[owner]
        return ClassRows(
            owner=owner,
            first=first,
            salt_hi=np.array(self._hi, dtype=np.uint64)[at],
            salt_lo=np.array(self._lo, dtype=np.uint64)[at],
            model=np.array(self._model, dtype=np.int32)[at],
            label=np.array(self._label, dtype=np.int8)[at],
        )
