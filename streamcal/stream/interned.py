"""Columns of model names and segment profiles as indices, interned in log order."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stream import values
from streamcal.stream.events import NO_MODEL, Names
from streamcal.stream.fields import ModelFilter
from streamcal.stream.slots import any_slot, comparable

__all__ = ["MOST_CACHED", "ModelColumn", "Profiles"]

MOST_CACHED: Final = 65_536
"""Raw profiles remembered at once (about 20 MB): far above any dashboard, far below a stream of user ids."""


class Profiles(dict[tuple[Any, ...], int]):
    """Raw segment values to profile index, normalised once per distinct tuple.

    Invariant: keys hold only strings and None. Tuples with numbers are kept apart by type, because
    1, 1.0 and True are one dictionary key and three different values.
    """

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self._typed = functools.lru_cache(maxsize=MOST_CACHED, typed=True)(self._index)

    def __missing__(self, raw: tuple[Any, ...]) -> int:
        if not all(value is None or isinstance(value, str) for value in raw):
            return self._typed(*raw)
        if len(self) >= MOST_CACHED:
            self.clear()
        index = self[raw] = self._index(*raw)
        return index

    def _index(self, *raw: Any) -> int:
        # Every accepted value has a text; the empty string is for the type checker only.
        return self._names.profile(tuple(values.segment_text(value) or "" for value in raw))


class _Models(dict[Any, int]):
    """Model as the event gives it to index; absent and empty are `fallback` (None: `NO_MODEL`)."""

    def __init__(self, names: Names, fallback: str | None) -> None:
        super().__init__()
        self._names = names
        self._fallback = fallback

    def __missing__(self, raw: str | int | None) -> int:
        name = values.model_name(raw) or self._fallback
        index = NO_MODEL if name is None else self._names.model(name)
        if len(self) >= MOST_CACHED:
            self.clear()
        self[raw] = index
        return index


class ModelColumn:
    """Model indices of accepted events, with the filters that name a model for those that name none."""

    def __init__(self, names: Names, filters: Sequence[ModelFilter], fallback: str | None) -> None:
        self._index = _Models(names, fallback)
        self._fallback = fallback
        self._filters = [(f"filter{i}", f.model, comparable(f.path, f.equals)) for i, f in enumerate(filters)]
        self.slots = [any_slot(f"filter{i}", f.path) for i, f in enumerate(filters)]

    def of(self, columns: Mapping[str, Sequence[Any]], count: int) -> NDArray[np.int32]:
        """Index of each event's model."""
        raw = self._raw(columns, count)
        if not self._filters and count and raw.count(None) == count:
            return np.full(count, self._index[None], dtype=np.int32)
        return np.fromiter(map(self._index.__getitem__, raw), np.int32, count)

    def names(self, columns: Mapping[str, Sequence[Any]], count: int) -> list[str | None]:
        """Name of each event's model, not interned; None where nothing names one."""
        return [values.model_name(raw) or self._fallback for raw in self._raw(columns, count)]

    def name(self, fields: Mapping[str, Any]) -> str | None:
        """Name of one event's model by its slots; None too where the event gives no readable one."""
        given = fields.get("model")
        if given not in (None, ""):
            return values.model_name(given)
        return self._by_filter({slot: [fields[slot]] for slot, _, _ in self._filters}, 0) or self._fallback

    def _raw(self, columns: Mapping[str, Sequence[Any]], count: int) -> Sequence[Any]:
        raw: Sequence[Any] = columns.get("model") or [None] * count
        if self._filters:
            raw = [m if m not in (None, "") else self._by_filter(columns, i) for i, m in enumerate(raw)]
        return raw

    def _by_filter(self, columns: Mapping[str, Sequence[Any]], index: int) -> str | None:
        for slot, model, equals in self._filters:
            if values.same(columns[slot][index], equals):
                return model
        return None
