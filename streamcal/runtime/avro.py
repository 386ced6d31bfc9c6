"""Values in the Confluent wire format: a zero byte, a schema id of four bytes, and Avro.

Theory of operation. A value is read with the schema it was written with, as the registry has it under its id, and the
fields that are looked at become a JSON object; the codec does the rest. Where Avro has more than JSON:

- an instant (``timestamp-millis``, ``-micros``, ``-nanos``) in the time field says its own unit, and is given to the
  codec in the unit that is configured, so the two cannot disagree. Everywhere else, and for a plain ``long``, the
  number stays as it is;
- a ``decimal`` is its nearest double, a ``uuid`` and an ``enum`` their text;
- NaN and infinities become text, and bytes an empty object, which no score, weight or id accepts: they are counted
  under the reason of their field.

Bytes that do not fit their schema, or that are left over after it, an id the registry does not know and a schema that
is neither Avro nor JSON are `malformed`.
"""

from __future__ import annotations

import copy
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro
import msgspec
import structlog

from streamcal.runtime.avro_times import instant_in, logical_type
from streamcal.runtime.registry import Registered, SchemaRegistry
from streamcal.stream.fields import FieldPath, TimeUnit
from streamcal.stream.formats import WIRE_PREFIX, wire_schema_id

__all__ = ["AvroFormat", "FieldTree"]

_KEPT_LOGICAL: Final = frozenset({"decimal", "uuid"})
"""Logical types the reader turns into values; it would turn times into objects that hold less than their numbers."""
_NO_TEXT: Final = b"\xff"
"""No UTF-8: a field read from such a key is not valid."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class FieldTree:
    """The fields that are read of a value, as a tree of names; without children everything below is taken."""

    children: dict[str, FieldTree] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Sequence[FieldPath]) -> FieldTree:
        """The tree of the paths that lead into the value."""
        root = cls()
        for path in paths:
            node = root
            for part in path.parts if path.source == "value" else ():
                node = node.children.setdefault(part, cls())
        return root

    def pick(self, found: Any) -> Any:
        """The part of a decoded value that is read, of JSON types only."""
        if self.children and isinstance(found, dict):
            return {name: below.pick(found[name]) for name, below in self.children.items() if name in found}
        return _plain(found)


def _plain(found: Any) -> Any:
    if found is None or isinstance(found, str | bool | int):
        return found
    if isinstance(found, float):
        return found if math.isfinite(found) else repr(found)
    if isinstance(found, dict):
        return {name: _plain(held) for name, held in found.items()}
    if isinstance(found, list | tuple):
        return [_plain(held) for held in found]
    if isinstance(found, Decimal):
        return _plain(float(found))
    return str(found) if isinstance(found, UUID) else {}


@dataclass(frozen=True, slots=True)
class _Reader:
    """How values of one schema are read; `avro` is None where they are JSON after the prefix."""

    avro: Any
    instant: str | None


class AvroFormat:
    """Reads one topic; see `streamcal.stream.formats.ValueFormat`.

    Parameters
    ----------
    registry : SchemaRegistry
    fields : FieldTree
        What is read of a value; an empty tree takes everything.
    time : FieldPath or None
        The time field, where the value has it.
    time_unit : str
        Unit the codec reads it in.
    decode_values, decode_keys : bool
        Whether values (else they are JSON) and keys (else they are text) are in the wire format.

    Raises
    ------
    RegistryError
        From `json` and `key`, when the registry does not answer for a new schema id.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        fields: FieldTree | None = None,
        *,
        time: FieldPath | None = None,
        time_unit: TimeUnit = "ms",
        decode_values: bool = True,
        decode_keys: bool = False,
    ) -> None:
        self._registry = registry
        self._fields = fields or FieldTree()
        self._time = None if time is None or time.source != "value" else time
        self._unit = time_unit
        self._decode_values = decode_values
        self._decode_keys = decode_keys
        self._readers: dict[int, tuple[Registered, _Reader | None]] = {}
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode

    def json(self, value: bytes) -> bytes | None:
        """JSON object of a value; None if it cannot be decoded."""
        if not self._decode_values:
            return value
        reader = self._reader(value)
        if reader is None:
            return None
        if reader.avro is None:
            return value[WIRE_PREFIX:]
        found = _read(reader.avro, value)
        if not isinstance(found, dict):
            return None
        if reader.instant is not None and self._time is not None:
            _replace_instant(found, self._time.parts, reader.instant, self._unit)
        try:
            return self._encode(self._fields.pick(found))
        except (ValueError, msgspec.MsgspecError, RecursionError):  # a lone surrogate in a name; nesting
            return None

    def key(self, key: bytes) -> bytes:
        """UTF-8 text of a key: as it is, or that of a string, number or single field in the wire format."""
        if not self._decode_keys:
            return key
        reader = self._reader(key)
        if reader is None:
            return _NO_TEXT
        found = _json_of(key) if reader.avro is None else _read(reader.avro, key)
        if isinstance(found, dict) and len(found) == 1:
            found = next(iter(found.values()))
        if isinstance(found, bool) or not isinstance(found, str | int | UUID):
            return _NO_TEXT
        return str(found).encode(errors="replace")

    def _reader(self, value: bytes) -> _Reader | None:
        number = wire_schema_id(value)
        if number is None:
            return None
        registered = self._registry.schema(number)
        if registered is None:
            return None
        held = self._readers.get(number)
        if held is None or held[0] is not registered:
            held = self._readers[number] = registered, self._compile(number, registered)
        return held[1]

    def _compile(self, number: int, registered: Registered) -> _Reader | None:
        if registered.kind == "JSON":
            return _Reader(None, None)
        if registered.kind != "AVRO":
            log.warning("schemas of this kind are not read", schema_id=number, kind=registered.kind)
            return None
        try:
            named: dict[str, Any] = {}
            for text in registered.references.values():
                fastavro.parse_schema(_without_times(json.loads(text)), named)
            avro = fastavro.parse_schema(_without_times(json.loads(registered.text)), named)
            instant = logical_type(registered, self._time.parts) if self._time is not None else None
        except Exception as error:  # noqa: BLE001 - whatever a registered text makes the parser raise, it is no schema
            log.warning("a registered schema cannot be read", schema_id=number, error=str(error))
            return None
        return _Reader(avro, instant)


def _read(schema: Any, value: bytes) -> Any:
    """The value after the prefix; None if the bytes do not fit."""
    stream = io.BytesIO(value)
    stream.seek(WIRE_PREFIX)
    try:
        found = fastavro.schemaless_reader(stream, schema, None)
    except Exception:  # noqa: BLE001 - foreign bytes raise anything from the compiled reader
        return None
    return found if stream.tell() == len(value) else None


def _json_of(key: bytes) -> Any:
    try:
        return msgspec.json.decode(key[WIRE_PREFIX:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _replace_instant(found: dict[str, Any], parts: Sequence[str], logical: str, unit: TimeUnit) -> None:
    """Give the time field in the configured unit."""
    node: Any = found
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
