"""Avro's instants: where a schema declares one, and its number in another unit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from streamcal.runtime.registry import Registered
from streamcal.stream.fields import TimeUnit

__all__ = ["instant_in", "logical_type"]

_PER_SECOND: Final = {"timestamp-millis": 1_000, "timestamp-micros": 1_000_000, "timestamp-nanos": 1_000_000_000}
"""Logical types that are instants. Those called local have no zone: they are left as numbers."""
_UNITS: Final[Mapping[TimeUnit, int]] = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def logical_type(registered: Registered, parts: Sequence[str]) -> str | None:
    """The instant that a schema declares at the path `parts`; None if it declares none there, or several."""
    named: dict[str, Any] = {}
    for text in registered.references.values():
        _note_names(json.loads(text), "", named)
    schema = json.loads(registered.text)
    _note_names(schema, "", named)
    found = {held for held in _at(schema, tuple(parts), named, "") if held in _PER_SECOND}
    return found.pop() if len(found) == 1 else None


def instant_in(unit: TimeUnit, number: int, logical: str) -> int | float | str:
    """The instant `number` of a logical type in the unit that is configured, finer digits floored.

    Examples
    --------
    >>> instant_in("ms", 1_700_000_000_123_456, "timestamp-micros")
    1700000000123
    >>> instant_in("rfc3339", 1_700_000_000_123, "timestamp-millis")
    '2023-11-14T22:13:20.123000+00:00'
    """
    per_second = _PER_SECOND[logical]
    if unit in _UNITS:
        return number * _UNITS[unit] // per_second
    micros = number * 1_000_000 // per_second
    if unit == "s":
        return micros / 1_000_000
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds")
    except OverflowError:
        return ""  # past the calendar, and so no time


def _at(schema: Any, parts: tuple[str, ...], named: Mapping[str, Any], space: str) -> Iterator[Any]:
    """Logical types at the end of a path, over all branches."""
    if isinstance(schema, str):
        known = named.get(schema, named.get(f"{space}.{schema}"))
        if known is not None:
            yield from _at(known, parts, named, space)
    elif isinstance(schema, list):
        for branch in schema:
            yield from _at(branch, parts, named, space)
    elif isinstance(schema, Mapping):
        space = _space(schema, space)
        if not parts:
            yield schema.get("logicalType")
        elif isinstance(schema.get("type"), (list, Mapping)):
            yield from _at(schema["type"], parts, named, space)
        for one in schema.get("fields", ()) if parts else ():
            if one.get("name") == parts[0]:
                yield from _at(one["type"], parts[1:], named, space)


def _space(schema: Mapping[str, Any], space: str) -> str:
    name = str(schema.get("name", ""))
    return str(schema.get("namespace") or (name.rpartition(".")[0] if "." in name else space))


def _note_names(schema: Any, space: str, named: dict[str, Any]) -> None:
    """Collect named types, under their full names."""
    if isinstance(schema, list):
        for branch in schema:
            _note_names(branch, space, named)
    elif isinstance(schema, Mapping):
        if "fields" in schema and "name" in schema:
            space = _space(schema, space)
            name = str(schema["name"])
            named[name if "." in name else f"{space}.{name}" if space else name] = schema
        for one in schema.get("fields", ()):
            _note_names(one.get("type"), space, named)
        for below in ("type", "items", "values"):
            if isinstance(schema.get(below), (list, Mapping)):
                _note_names(schema[below], space, named)
