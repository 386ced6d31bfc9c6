"""Labelled scores from a file: JSON lines, CSV (either may be gzip) or Parquet.

Values mean what they mean in events (`streamcal.stream.values`), save that text of a CSV file is read as a number where
one is needed. The first row that breaks a rule ends the reading: an initial map of most of the rows would hide it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamcal.errors import InputFileError
from streamcal.runtime.labelled_files import READERS, form_of
from streamcal.stream.times import TimeRule
from streamcal.stream.values import LabelRule, score, segment_text, weight

__all__ = ["Columns", "Dimension", "LabelledRows", "read_rows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK: Final = 65_536
_LARGEST_WEIGHT: Final = 1000.0
"""As `events.max_weight`: counts are sums of fixed-point numbers."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the values of a row are: a path into the JSON object (``payload.score``), or a column's name.

    Attributes
    ----------
    time, weight : str or None
        None: rows have none.
    time_unit : {"ms", "s", "us", "ns", "rfc3339"}
    segments : mapping
        Dimension to the place of its value.
    positive, negative : tuple of str
        Labels that mean yes and no in place of 1, true and 0, false; empty for those.
    """

    score: str = "score"
    label: str = "label"
    time: str | None = None
    time_unit: Literal["ms", "s", "us", "ns", "rfc3339"] = "ms"
    weight: str | None = None
    segments: Mapping[str, str] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()

    @property
    def wanted(self) -> list[str]:
        """Every place, in a fixed order."""
        return [place for place in (self.score, self.label, self.time, self.weight) if place is not None] + list(
            self.segments.values()
        )


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of every row.

    Attributes
    ----------
    values : tuple of str
        In order of first appearance.
    codes : int64[n]
        Index into them.
    """

    values: tuple[str, ...]
    codes: Ints


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows in the order of their times, or of the file where they have none.

    Attributes
    ----------
    score : float64[n]
        Clipped to [0, 1].
    label : bool[n]
    time_ms : int64[n] or None
    weight : float64[n] or None
    segments : mapping
        Dimension to its values.
    """

    score: Floats
    label: NDArray[np.bool_]
    time_ms: Ints | None
    weight: Floats | None
    segments: Mapping[str, Dimension]


def read_rows(
    path: Path, columns: Columns, *, form: str | None = None, on_rows: Callable[[int], None] | None = None
) -> LabelledRows:
    """Read a whole file.

    Parameters
    ----------
    path : Path
    columns : Columns
    form : {"jsonl", "csv", "parquet"} or None
        None: by the file's name.
    on_rows : callable, optional
        Told now and then how many rows have been read.

    Raises
    ------
    InputFileError
        If the file cannot be read, lacks a column, or has a row that is not as said; the first such row is named.
    StreamcalError
        If it is Parquet and the extra ``parquet`` is not installed.
    """
    form = form_of(path) if form is None else form
    rows = READERS[form](path, columns.wanted)
    reader = _Reader(columns, textual=form == "csv")
    for place, values in rows:
        problem = reader.add(values)
        if problem:
            hint = "mend the row or leave it out; nothing was written"
            raise InputFileError(problem, where=f"{path}, {place}", hint=hint)
        if on_rows is not None and len(reader) % _BLOCK == 0:
            on_rows(len(reader))
    if not len(reader):
        raise InputFileError("holds no row", where=str(path))
    return reader.rows()


class _Reader:
    """Rows so far; `add` takes the values of one in the order of `Columns.wanted`."""

    def __init__(self, columns: Columns, *, textual: bool) -> None:
        self._columns = columns
        self._textual = textual
        yes, no = _label_values(columns.positive), _label_values(columns.negative)
        self._label = LabelRule(yes, no, absent_is_positive=False)
        self._time = TimeRule(columns.time_unit)
        self._numeric_time = columns.time_unit != "rfc3339"
        self._score, self._positive = array("d"), array("b")
        self._time_ms, self._weight = array("q"), array("d")
        self._codes = {name: array("q") for name in columns.segments}
        self._known: dict[str, dict[str, int]] = {name: {} for name in columns.segments}

    def __len__(self) -> int:
        return len(self._positive)

    def add(self, values: Sequence[Any]) -> str:
        """Take a row; what is wrong with it, empty when nothing is."""
        given = iter(values)
        columns = self._columns
        read = score(self._number(value := next(given)))
        if read is None:
            return f"{columns.score} {_shown(value)} is not a number in [0, 1]"
        label = self._label.one(value := next(given))
        if label is None:
            return f"{columns.label} {_shown(value)} is not a label{self._labels()}"
        if columns.time is not None:
            value = next(given)
            time_ms = self._time.one(self._whole(value) if self._numeric_time else value)
            if time_ms is None:
                return f"{columns.time} {_shown(value)} is not a time in {columns.time_unit} from 2000 to 2100"
            self._time_ms.append(time_ms)
        if columns.weight is not None:
            value = next(given)
            heavy = weight(self._number(None if value == "" else value), _LARGEST_WEIGHT)
            if heavy is None:
                return f"{columns.weight} {_shown(value)} is not a weight from 0 to {_LARGEST_WEIGHT:g}"
            self._weight.append(heavy)
        for name, value in zip(columns.segments, given, strict=True):
            text = segment_text(value)
            if text is None:
                return f"{columns.segments[name]} {_shown(value)} is no value of dimension {name}"
            known = self._known[name]
            self._codes[name].append(known.setdefault(text, len(known)))
        self._score.append(min(max(read, 0.0), 1.0))
        self._positive.append(label)
        return ""

    def rows(self) -> LabelledRows:
        """Everything read, by time where there are times; equal times keep the order of the file."""
        time_ms = np.array(self._time_ms, dtype=np.int64) if self._columns.time is not None else None
        order = slice(None) if time_ms is None else np.argsort(time_ms, kind="stable")
        heavy = np.array(self._weight, dtype=np.float64)[order] if self._columns.weight is not None else None
        return LabelledRows(
            score=np.array(self._score, dtype=np.float64)[order],
            label=np.array(self._positive, dtype=np.bool_)[order],
            time_ms=None if time_ms is None else time_ms[order],
            weight=None if heavy is None or (heavy == 1.0).all() else heavy,
            segments={
                name: Dimension(tuple(known), np.array(self._codes[name], dtype=np.int64)[order])
                for name, known in self._known.items()
            },
        )

    def _number(self, value: Any) -> Any:
        if not self._textual or not isinstance(value, str):
            return value
        try:
            return None if "_" in value else float(value)
        except ValueError:
            return value

    def _whole(self, value: Any) -> Any:
        """A time as a number: text of a CSV file may be a whole one beyond what a float holds."""
        if self._textual and isinstance(value, str) and value.strip().lstrip("-").isascii() and "_" not in value:
            try:
                return int(value)
            except ValueError:
                return self._number(value)
        return value

    def _labels(self) -> str:
        if self._columns.positive or self._columns.negative:
            return f": {', '.join(self._columns.positive)} or {', '.join(self._columns.negative)}"
        return ": 1, true or 0, false (others by --positive and --negative)"


def _label_values(texts: Sequence[str]) -> list[Any] | None:
    """Labels as an option gives them: text, and the number or boolean it may stand for in JSON."""
    if not texts:
        return None
    values: list[Any] = list(texts)
    for text in texts:
        try:
            decoded = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if isinstance(decoded, int | float):
            values.append(decoded)
    return values


def _shown(value: Any) -> str:
    return "is missing, or" if value is None else repr(value)[:80]
