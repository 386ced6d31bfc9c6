"""Avro values as plain ones.

Where Avro has more than JSON: an instant (``timestamp-millis``, ``-micros``, ``-nanos``) in the time field says its own
unit, and is given to the codec in the unit that is configured, so the two cannot disagree; everywhere else, and for a
plain ``long``, the number stays as it is. A ``decimal`` is its nearest double, a ``uuid`` and an ``enum`` their text.
Bytes that are left over do not fit.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import fastavro
from fastavro._read_py import schemaless_reader as deep_reader

from streamcal.runtime.avro_shape import schema_shape
from streamcal.runtime.avro_times import instant_in, logical_type
from streamcal.runtime.registry import Registered
from streamcal.runtime.wire_format import Reading
from streamcal.stream.fields import TimeUnit

__all__ = ["AvroReader"]

_KEPT_LOGICAL: Final = frozenset({"decimal", "uuid"})
"""Logical types the reader turns into values; it would turn times into objects that hold less than their numbers."""


class AvroReader:
    """Reads values of one schema; see `streamcal.runtime.wire_format.Reader`.

    Raises
    ------
    Exception
        What fastavro or a JSON parser make of a text that is no schema.
    ValueError
        The schema has arrays of items that take no bytes: seven bytes could ask for any amount of memory.
    """

    def __init__(self, registered: Registered, reading: Reading) -> None:
        named: dict[str, Any] = {}
        for text in registered.references.values():
            fastavro.parse_schema(_without_times(json.loads(text)), named)
        self._schema = fastavro.parse_schema(_without_times(json.loads(registered.text)), named)
        shape = schema_shape(self._schema, named)
        # The compiled reader ends the process where values nest too deep; the other one says so.
        self._read = deep_reader if shape.recursive else fastavro.schemaless_reader
        self._reading = reading
        self._instant = logical_type(registered, reading.time) if reading.time is not None else None

    def read(self, value: bytes, start: int) -> Any:
        """The value from byte `start` on; None if the bytes do not fit."""
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            found = self._read(stream, self._schema, None)
        except Exception:  # noqa: BLE001 - foreign bytes raise anything
            return None
        if stream.tell() != len(value):
            return None
        if self._instant is not None and self._reading.time is not None:
            _replace_instant(found, self._reading.time, self._instant, self._reading.time_unit)
        return found


def _replace_instant(found: Any, parts: Sequence[str], logical: str, unit: TimeUnit) -> None:
    """Give the time field in the configured unit."""
    node = found
    for part in parts[:-1]:
        node = node.get(part) if isinstance(node, dict) else None
    if isinstance(node, dict) and isinstance(node.get(parts[-1]), int):
        node[parts[-1]] = instant_in(unit, node[parts[-1]], logical)


def _without_times(schema: Any) -> Any:
    """The schema without the logical types that would become objects."""
    if isinstance(schema, list):
        return [_without_times(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return copy.copy(schema)
    return {
        name: _without_times(held) for name, held in schema.items() if name != "logicalType" or held in _KEPT_LOGICAL
    }
