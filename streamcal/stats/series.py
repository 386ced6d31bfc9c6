"""Series: the segments of every cut, their numbers and their labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.snapshot import Series
from streamcal.stream.events import OTHER, Names

__all__ = ["SeriesTable", "segment_label"]

_NEVER = np.iinfo(np.int64).max
SAFETY_FACTOR = 4
"""Segments told apart per cut before the published cap is applied, as a multiple of `max_segments`: the cap's
slots go by first pane, which is known only afterwards; beyond this, segments share ``__other__`` by arrival."""

_MOST_EVENTS = 1 << 18
"""Pairs of model and profile whose series are remembered (about 100 MB); then they are looked up anew."""

Ints = NDArray[np.int64]


def segment_label(dimensions: Sequence[str], values: Sequence[str]) -> str:
    """The segment's name in labels and reports.

    >>> segment_label(["country", "device"], ["GB", "a=b"])
    'country=GB,device=a%3Db'
    >>> segment_label([], [])
    'all'
    """
    if not dimensions:
        return "all"
    return ",".join(f"{_escape(d)}={_escape(v)}" for d, v in zip(dimensions, values, strict=True))


def _others(dimensions: Sequence[str]) -> tuple[str, ...]:
    """The values of the segment that all beyond a cap share."""
    return (OTHER,) * len(dimensions)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


class SeriesTable:
    """Numbers every (model, cut, segment) seen; numbers of quiet series are used again.

    Parameters
    ----------
    names : Names
        Where model and profile indices come from.
    cuts : sequence of tuple of str
        Dimension names per cut; the empty cut first.
    max_segments : int
        Published segments per model and cut.

    Attributes
    ----------
    first_pane : int64 array
        Pane in which the present run of each series began; see `streamcal.stats.presence.Presence`.
    """

    STATE = ("_ids", "_keys", "_free", "_held", "_of_model", "first_pane", "_whole")

    def __init__(self, names: Names, cuts: Sequence[tuple[str, ...]], max_segments: int) -> None:
        self._names = names
        self._cuts = tuple(cuts)
        self._places = [tuple(names.dimensions.index(d) for d in cut) for cut in self._cuts]
        self._safety = SAFETY_FACTOR * max_segments
        self._max_segments = max_segments
        self._ids: dict[tuple[int, int, tuple[str, ...]], int] = {}
        self._keys: list[tuple[int, int, tuple[str, ...]] | None] = []
        self._free: list[int] = []
        self._of_event: dict[int, tuple[int, ...]] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._of_model: dict[int, dict[int, None]] = {}
        self._label_of: dict[int, Series] = {}
        self.first_pane: Ints = np.empty(0, dtype=np.int64)
        self._whole: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def cuts(self) -> tuple[tuple[str, ...], ...]:
        """Dimension names per cut."""
        return self._cuts

    def number(self, model: int, cut: int, values: tuple[str, ...]) -> int:
        """Number of a segment, allotted on first sight; that of ``__other__`` beyond the safety cap."""
        return self._series(model, cut, values)

    def of_rows(self, model: NDArray[np.int32], profile: NDArray[np.int32]) -> Ints:
        """Series numbers of rows, shape (cuts, n)."""
        event = model.astype(np.int64) << 32 | profile
        distinct, inverse = np.unique(event, return_inverse=True)
        table = np.array([self._of_event.get(e) or self._number(e) for e in distinct.tolist()], dtype=np.int64)
        found: Ints = table.reshape(-1, len(self._cuts))[inverse].T
        return found

    def whole(self, model: int) -> int | None:
        """The series ``all`` of a model, or None before its first row."""
        return self._ids.get((model, 0, ()))

    def of_model(self, model: int) -> list[int]:
        """Numbers in use of a model, in no particular order."""
        return list(self._of_model.get(model, ()))

    def in_use(self) -> list[int]:
        """Numbers in use, ascending."""
        return [number for number, key in enumerate(self._keys) if key is not None]

    def label(self, series: int) -> Series:
        """Labels of a series by its own name, cap or not."""
        labels = self._label_of.get(series)
        if labels is None:
            _, cut, values = self.key(series)
            labels = self._label_of[series] = self._labels(cut, values)
        return labels

    def other_of(self, series: int) -> int:
        """Number of the ``__other__`` of the same model and cut."""
        model, cut, values = self.key(series)
        return self._series(model, cut, _others(values))

    def is_whole(self) -> NDArray[np.bool_]:
        """Per series number, whether it is a model's ``all``."""
        return self._whole[: len(self._keys)]

    def wholes(self, model: NDArray[np.int32]) -> Ints:
        """Numbers of the series ``all`` of these models, shape (n,)."""
        distinct, place = np.unique(model, return_inverse=True)
        numbers = np.array([self._series(index, 0, ()) for index in distinct.tolist()], dtype=np.int64)
        found: Ints = numbers[place]
        return found

    def free(self, series: Sequence[int]) -> None:
        """Let the numbers of quiet series be used again."""
        for number in series:
            key = self.key(number)
            del self._ids[key]
            self._keys[number] = None
            del self._of_model[key[0]][number]
            self._label_of.pop(number, None)
            self._held[key[:2]] -= key[2] != _others(key[2])
            self._free.append(number)
            self.first_pane[number] = _NEVER
        if len(series):
            self._of_event.clear()

    def published(self, alive: Ints) -> dict[tuple[int, Series], list[int]]:
        """Which of the series `alive` are shown under which (model, labels).

        Slots of a cut go by first pane, then name; all beyond `max_segments` share ``__other__``, which takes none.
        """
        by_cut: dict[tuple[int, int], list[int]] = {}
        for number in alive.tolist():
            by_cut.setdefault(self.key(number)[:2], []).append(number)
        shown: dict[tuple[int, Series], list[int]] = {}
        for (model, cut), members in by_cut.items():
            others = _others(self._cuts[cut])
            members.sort(key=lambda n: (self.key(n)[2] == others, int(self.first_pane[n]), self.key(n)[2]))
            for place, number in enumerate(members):
                values = self.key(number)[2] if place < self._max_segments else others
                shown.setdefault((model, self._labels(cut, values)), []).append(number)
        return shown

    def _labels(self, cut: int, values: tuple[str, ...]) -> Series:
        return Series(",".join(self._cuts[cut]) or "all", segment_label(self._cuts[cut], values))

    def key(self, number: int) -> tuple[int, int, tuple[str, ...]]:
        """Model, cut and values of a series in use."""
        key = self._keys[number]
        if key is None:
            message = f"series {number} is not in use"
            raise KeyError(message)
        return key

    def _number(self, event: int) -> tuple[int, ...]:
        model, values = event >> 32, self._names.profiles[event & 0xFFFFFFFF]
        of_cuts = [tuple(values[place] for place in places) for places in self._places]
        numbers = tuple(self._series(model, cut, of_cut) for cut, of_cut in enumerate(of_cuts))
        if len(self._of_event) >= _MOST_EVENTS:
            self._of_event.clear()
        self._of_event[event] = numbers
        return numbers

    def _series(self, model: int, cut: int, values: tuple[str, ...]) -> int:
        known = self._ids.get((model, cut, values))
        if known is not None:
            return known
        held = self._held.get((model, cut), 0)
        others = _others(values)
        if held >= self._safety and values != others:
            return self._series(model, cut, others)
        self._held[(model, cut)] = held + (values != others)
        if self._free:
            number = self._free.pop()
            self._keys[number] = (model, cut, values)
        else:
            number = len(self._keys)
            self._keys.append((model, cut, values))
            if number >= len(self.first_pane):
                room = np.full(max(64, number), _NEVER, dtype=np.int64)
                self.first_pane = np.concatenate([self.first_pane, room])
                self._whole = np.concatenate([self._whole, np.zeros(len(room), dtype=np.bool_)])
        self._whole[number] = cut == 0
        self._of_model.setdefault(model, {})[number] = None
        self._ids[(model, cut, values)] = number
        return number
