"""A sample as columns: every path that leads to a value, and what is there.

Values are decoded without any configuration. Objects are followed to a depth of six; lists are not, since no path of
the configuration leads into one; names that no path can say (with dots, quotation marks, line ends) are left out.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from streamcal.inspect.sample import SampledRecord
from streamcal.runtime.config_fields import can_be_read
from streamcal.stream.formats import ValueFormat

__all__ = ["Column", "Table", "table"]

_DEPTH: Final = 6
_MOST_PATHS: Final = 300
"""Beyond it a value is a map with keys of its own, not a record."""

_NEARLY: Final = 0.98
"""Share of the values that must be of a kind."""

_KINDS: Final[Mapping[type, str]] = {
    str: "text",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "list",
    dict: "object",
}


class Column:
    """The values at one path, one per row; None where absent or null. Built once, then only read."""

    def __init__(self, path: str, values: Sequence[Any]) -> None:
        self.path = path
        self.values = values

    @property
    def leaf(self) -> str:
        """Last name of the path, in lower case: ``payload.requestId`` is ``requestid``."""
        return self.path.removeprefix("$header.").rpartition(".")[2].lower()

    @cached_property
    def present(self) -> list[Any]:
        """The values that are there."""
        return [value for value in self.values if value is not None]

    @cached_property
    def kinds(self) -> Counter[str]:
        """How often which JSON type is there."""
        return Counter(_KINDS[type(value)] for value in self.present)

    @cached_property
    def counts(self) -> Counter[Any]:
        """How often which scalar is there; booleans apart from numbers."""
        return Counter((isinstance(v, bool), v) for v in self.present if not isinstance(v, list | dict))

    @property
    def distinct(self) -> int:
        """How many different scalars there are."""
        return len(self.counts)

    @property
    def common(self) -> list[Any]:
        """Different scalars, the most frequent first."""
        return [value for (_, value), _ in self.counts.most_common()]

    @property
    def share(self) -> float:
        """Share of rows in which the value is there."""
        return len(self.present) / len(self.values) if self.values else 0.0

    @cached_property
    def numbers(self) -> list[int | float]:
        """The numbers that are there."""
        return [value for value in self.present if isinstance(value, int | float) and not isinstance(value, bool)]

    def only(self, *kinds: str) -> bool:
        """Whether something is there, and next to nothing but these JSON types: a few events are always broken."""
        fitting = sum(self.kinds[kind] for kind in kinds)
        return bool(self.present) and fitting >= _NEARLY * len(self.present)


@dataclass(slots=True)
class Table:
    """A sample by columns.

    Attributes
    ----------
    rows : list of int
        Places in the sample of the records that are objects.
    columns : dict
        Path to column, with one entry per row.
    unreadable, tombstones : int
        Records that are no object, and those without a value.
    """

    rows: list[int] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)
    unreadable: int = 0
    tombstones: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def scalars(self) -> list[Column]:
        """Columns that hold scalars only, those in the value first."""
        found = [c for c in self.columns.values() if c.only("text", "boolean", "integer", "number")]
        return sorted(found, key=lambda c: c.path.startswith("$"))

    def where(self, chosen: Sequence[bool]) -> Table:
        """The rows that are chosen."""
        kept = [i for i, wanted in enumerate(chosen) if wanted]
        columns = {path: Column(path, [column.values[i] for i in kept]) for path, column in self.columns.items()}
        return Table([self.rows[i] for i in kept], columns)


def table(records: Sequence[SampledRecord], form: ValueFormat | None = None) -> Table:
    """Decode a sample; `form` turns values into JSON where they are none."""
    found = Table()
    rows: list[dict[str, Any]] = []
    for place, record in enumerate(records):
        if record.value is None:
            found.tombstones += 1
            continue
        decoded = _decoded(record.value, form)
        if not isinstance(decoded, dict):
            found.unreadable += 1
            continue
        found.rows.append(place)
        rows.append(dict(_paths(decoded, "", _DEPTH)) | dict(_outside(record, form)))
    names = Counter(name for row in rows for name in row)
    for name, _ in names.most_common(_MOST_PATHS):
        found.columns[name] = Column(name, [row.get(name) for row in rows])
    found.columns = {name: found.columns[name] for name in dict.fromkeys(names) if name in found.columns}
    return found


def _decoded(value: bytes, form: ValueFormat | None) -> Any:
    text = value if form is None else form.json(value)
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _paths(held: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in held.items():
        if not _can_be_said(name, first=not before):
            continue
        path = f"{before}{name}"
        if isinstance(value, dict) and depth > 1:
            yield from _paths(value, f"{path}.", depth - 1)
        elif value is not None:
            yield path, value


@functools.lru_cache(maxsize=10_000)
def _can_be_said(name: str, *, first: bool) -> bool:
    """Whether a path of the configuration can lead through an object's member of this name."""
    if not name or "." in name or name != name.strip() or (first and name.startswith("$")):
        return False
    return can_be_read(name)


def _outside(record: SampledRecord, form: ValueFormat | None) -> Iterator[tuple[str, str]]:
    """Key and headers that are text."""
    held: dict[str, bytes] = {f"$header.{name}": value for name, value in record.headers if name and value is not None}
    if record.key is not None:
        held["$key"] = record.key if form is None else form.key(record.key)
    for path, value in held.items():
        try:
            yield path, value.decode()
        except UnicodeDecodeError:
            continue
