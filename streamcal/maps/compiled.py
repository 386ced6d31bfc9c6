"""Corrections per segment on top of a map, and `CompiledMap`: a map document ready to be applied.

An entry moves the logit of what the family serves: served = sigmoid(slope * logit(family(score)) + offset). Entries
are absolute, never added up over cuts: the finest cut that has an entry for a row decides, then coarser ones, then
the family alone serves the row, untouched. A cut is the dimensions a key names; finer means more dimensions, and
between cuts of as many the names of the dimensions decide, in the order of their code points.

Keys are the segment labels of metrics and reports (``country=GB,device=ios``), values are taken as events are (NFC,
trimmed, 64 characters), and a dimension a row does not have is ``__missing__``. An unknown value is never
``__other__``: that name stands for what was folded together when counted, which a producer cannot know.

The rules for keys and values are those of `streamcal.stats.series` and `streamcal.stream.values`, written again (and
tested to agree): importing those would double what importing the transformer costs.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Map
from streamcal.maps.link import Floats, logit, logit_one, sigmoid, sigmoid_one

__all__ = ["NO_ENTRY", "CompiledMap", "Entries", "SegmentTable", "parse_key", "segment_key", "segment_value"]

Entries = NDArray[np.intp]
SegmentTable = Mapping[str, Mapping[str, float]]
"""Segment key to ``{"offset": float}`` or ``{"offset": float, "slope": float}``."""

NO_ENTRY: Final = -1
"""The family alone serves this row."""

_MISSING: Final = "__missing__"
_CHARACTERS: Final = 64
_CODES: Final = (("%2C", ","), ("%3D", "="), ("%25", "%"))


def segment_value(text: str) -> str:
    """A value as events are counted under: NFC, trimmed, cut to 64 characters; empty is ``__missing__``.

    Raises
    ------
    TypeError
        If it is no text.

    Examples
    --------
    >>> segment_value("  GB ")
    'GB'
    """
    return unicodedata.normalize("NFC", text).strip()[:_CHARACTERS].rstrip() or _MISSING


def segment_key(dimensions: Sequence[str], values: Sequence[str]) -> str:
    """The key of a segment of at least one dimension.

    >>> segment_key(["country", "device"], ["GB", "a=b"])
    'country=GB,device=a%3Db'
    """
    return ",".join(f"{_coded(d)}={_coded(v)}" for d, v in zip(dimensions, values, strict=True))


def _coded(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


def parse_key(key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Dimensions and values of a segment key.

    Raises
    ------
    ValueError
        If the key is not what `segment_key` makes of them, a dimension is named twice, or a value is not
        in the form in which events give it.

    Examples
    --------
    >>> parse_key("country=GB,device=a%3Db")
    (('country', 'device'), ('GB', 'a=b'))
    """
    pairs = [part.split("=") for part in key.split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise ValueError(f"segment key {key!r} is not dimension=value, with commas between several")
    dimensions = tuple(_plain(dimension) for dimension, _ in pairs)
    values = tuple(_plain(value) for _, value in pairs)
    if segment_key(dimensions, values) != key:
        raise ValueError(f"segment key {key!r} has other percent codes than %25, %2C and %3D")
    if len(set(dimensions)) < len(dimensions):
        raise ValueError(f"segment key {key!r} names a dimension twice")
    if any(segment_value(value) != value for value in values):
        raise ValueError(f"segment key {key!r} has a value that is not NFC, trimmed and at most 64 characters")
    return dimensions, values


def _plain(text: str) -> str:
    for code, character in _CODES:
        text = text.replace(code, character)
    return text


def _slope_and_offset(key: str, entry: Mapping[str, float]) -> tuple[float, float]:
    if "offset" not in entry or not entry.keys() <= {"offset", "slope"}:
        raise ValueError(f"segment {key!r} takes offset and perhaps slope, not {sorted(entry)}")
    slope, offset = float(entry.get("slope", 1.0)), float(entry["offset"])
    if not (math.isfinite(offset) and math.isfinite(slope) and slope > 0.0):
        raise ValueError(f"segment {key!r} has offset {offset!r} and slope {slope!r}: finite, and a slope above 0")
    return slope, offset


class CompiledMap:
    """A map with its corrections per segment, immutable and safe to share between threads.

    Parameters
    ----------
    map_ : Map
    segments : SegmentTable
        May be empty.

    Attributes
    ----------
    map_ : Map
        The family alone.
    keys : tuple of str
        The segment of each entry, by entry number.

    Raises
    ------
    ValueError
        If a key or an entry is not as said.

    Examples
    --------
    >>> from streamcal.maps.families import Identity
    >>> compiled = CompiledMap(Identity(), {"country=GB": {"offset": 0.0}, "country=GB,device=ios": {"offset": 2.0}})
    >>> compiled.apply_one(0.5, {"country": "GB", "device": "android"})
    0.5
    >>> round(compiled.apply_one(0.5, {"country": "GB", "device": "ios"}), 4)
    0.8808
    """

    __slots__ = ("_apply_one", "_cuts", "_lines", "_offset", "_slope", "_values", "keys", "map_")

    def __init__(self, map_: Map, segments: SegmentTable) -> None:
        self.map_ = map_
        self.keys = tuple(segments)
        self._apply_one = map_.apply_one
        self._lines = tuple(_slope_and_offset(key, entry) for key, entry in segments.items())
        self._slope, self._offset = np.array(self._lines, dtype=np.float64).reshape(-1, 2).T
        cuts: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
        for number, key in enumerate(self.keys):
            dimensions, values = parse_key(key)
            cuts.setdefault(dimensions, {})[values] = number
        self._cuts = tuple(sorted(cuts.items(), key=lambda cut: (-len(cut[0]), cut[0])))
        self._values = frozenset(value for _, table in self._cuts for values in table for value in values)

    def entry(self, segments: Mapping[str, str] | None) -> int:
        """Number of the entry for a row with these dimensions, `NO_ENTRY` where there is none.

        None is a row without dimensions.
        """
        given = {} if segments is None else segments
        known = self._values
        for dimensions, table in self._cuts:
            values = []
            for dimension in dimensions:
                value = given.get(dimension, _MISSING)
                values.append(value if value in known else segment_value(value))
            number = table.get(tuple(values))
            if number is not None:
                return number
        return NO_ENTRY

    def line(self, segments: Mapping[str, str]) -> tuple[float, float]:
        """Slope and offset of a row with these dimensions, on the logit that the family serves."""
        number = self.entry(segments)
        return (1.0, 0.0) if number == NO_ENTRY else self._lines[number]

    def entries(self, segments: Mapping[str, str | Sequence[str]], n: int) -> Entries:
        """`entry` of `n` rows, intp[n]: each dimension has one value for all of them or a column of values.

        Raises
        ------
        ValueError
            If a column has another length.
        """
        names = list(segments)
        columns = []
        for dimension, column in segments.items():
            if isinstance(column, str):
                columns.append([column] * n)
            elif len(column) == n:
                columns.append(list(column))
            else:
                raise ValueError(f"dimension {dimension!r} has {len(column)} values for {n} scores")
        # Distinct combinations are few: each is looked up once.
        found: dict[tuple[str, ...], int] = {}
        numbers = np.empty(n, dtype=np.intp)
        for row, values in enumerate(zip(*columns, strict=True) if columns else [()] * n):
            number = found.get(values)
            if number is None:
                number = found[values] = self.entry(dict(zip(names, values, strict=True)))
            numbers[row] = number
        return numbers

    def apply(self, p: Floats, segments: Mapping[str, str | Sequence[str]] | None = None) -> Floats:
        """Served scores of raw ones.

        Parameters
        ----------
        p : float64 array
            See `Map.apply`.
        segments : mapping, optional
            Dimension to the value all scores share, or to one value per score (then `p` is flat).

        Raises
        ------
        ValueError
            If a column of values is not as long as `p`.
        """
        if not self._cuts:
            return self.map_.apply(p)
        if segments is None or all(isinstance(value, str) for value in segments.values()):
            return self.apply_entry(p, self.entry(segments))  # type: ignore[arg-type]  # just looked
        return self.apply_entries(p, self.entries(segments, len(p)))

    def apply_entry(self, p: Floats, entry: int) -> Floats:
        """Served scores of rows that share one entry, or `NO_ENTRY`."""
        served = self.map_.apply(p)
        if entry == NO_ENTRY:
            return served
        slope, offset = self._lines[entry]
        z = logit(served)
        z *= slope
        z += offset
        return sigmoid(z)

    def apply_entries(self, p: Floats, entries: Entries) -> Floats:
        """Served scores of rows with the entry of each, float64[n]."""
        served = self.map_.apply(p)
        held = np.flatnonzero(entries != NO_ENTRY)
        if len(held):
            of_row = entries[held]
            z = logit(served[held])
            z *= self._slope[of_row]
            z += self._offset[of_row]
            served[held] = sigmoid(z)
        return served

    def apply_one(self, p: float, segments: Mapping[str, str] | None = None) -> float:
        """The served score of one raw score; equal to `apply` to the bit."""
        served = self._apply_one(p)
        if not self._cuts:
            return served
        entry = self.entry(segments)
        if entry == NO_ENTRY:
            return served
        slope, offset = self._lines[entry]
        return sigmoid_one(logit_one(served) * slope + offset)
