"""Values in the Confluent wire format: a zero byte, a schema id of four bytes, and what the schema says.

Theory of operation. A value is read with the schema it was written with, as the registry has it under its id, and the
fields that are looked at become a JSON object; the codec does the rest. Which kind a schema is of, Avro, Protobuf or
JSON, the registry says; the library of a kind is loaded with its first schema. Where they have more than JSON, NaN and
infinities become text, and bytes an empty object, which no score, weight or id accepts: they are counted under the
reason of their field. Instants that say their own unit are given in the unit that is configured.

Bytes that do not fit their schema, an id the registry does not know and a schema that cannot be read are `malformed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
import structlog

from streamcal.runtime.registry import Registered, SchemaRegistry
from streamcal.stream.fields import FieldPath, TimeUnit
from streamcal.stream.formats import WIRE_PREFIX, wire_schema_id

__all__ = ["FieldTree", "Reader", "Reading", "WireFormat"]

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
class Reading:
    """What is looked at in values, and how.

    Attributes
    ----------
    fields : FieldTree
        What is read of a value; an empty tree takes everything.
    time : tuple of str or None
        Names that lead to the time field, where the value has it.
    time_unit : str
        Unit the codec reads it in.
    optional : frozenset of tuple of str
        Names that lead to fields the codec can do without. Where nothing tells zero from absent, zero there is absent.
    """

    fields: FieldTree = field(default_factory=FieldTree)
    time: tuple[str, ...] | None = None
    time_unit: TimeUnit = "ms"
    optional: frozenset[tuple[str, ...]] = frozenset()


class Reader(Protocol):
    """Reads values of one schema."""

    def read(self, value: bytes, start: int) -> Any:
        """What the value says from byte `start` on; None if the bytes do not fit."""
        ...


class WireFormat:
    """Reads one topic; see `streamcal.stream.formats.ValueFormat`.

    Parameters
    ----------
    registry : SchemaRegistry
    reading : Reading
        What is looked at in values.
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
        reading: Reading | None = None,
        *,
        decode_values: bool = True,
        decode_keys: bool = False,
    ) -> None:
        self._registry = registry
        self._reading = reading or Reading()
        self._decode_values = decode_values
        self._decode_keys = decode_keys
        self._readers: dict[tuple[int, bool], tuple[Registered, Reader | None]] = {}
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode

    def json(self, value: bytes) -> bytes | None:
        """JSON object of a value; None if it cannot be decoded."""
        if not self._decode_values:
            return value
        reader = self._reader(value, is_key=False)
        if reader is None:
            return None
        if isinstance(reader, _Json):
            return value[WIRE_PREFIX:]
        found = reader.read(value, WIRE_PREFIX)
        if not isinstance(found, dict):
            return None
        try:
            return self._encode(self._reading.fields.pick(found))
        except (ValueError, msgspec.MsgspecError, RecursionError):  # a lone surrogate in a name; nesting
            return None

    def key(self, key: bytes) -> bytes:
        """UTF-8 text of a key: as it is, or that of a string, number or single field in the wire format."""
        if not self._decode_keys:
            return key
        reader = self._reader(key, is_key=True)
        if reader is None:
            return _NO_TEXT
        found = reader.read(key, WIRE_PREFIX)
        if isinstance(found, dict) and len(found) == 1:
            found = next(iter(found.values()))
        if isinstance(found, bool) or not isinstance(found, str | int | UUID):
            return _NO_TEXT
        return str(found).encode(errors="replace")

    def _reader(self, value: bytes, *, is_key: bool) -> Reader | None:
        number = wire_schema_id(value)
        if number is None:
            return None
        registered = self._registry.schema(number)
        if registered is None:
            return None
        held = self._readers.get((number, is_key))
        if held is None or held[0] is not registered:
            reading = Reading() if is_key else self._reading
            held = self._readers[number, is_key] = registered, _compiled(number, registered, reading)
        return held[1]


class _Json:
    """The value is JSON behind the prefix."""

    def read(self, value: bytes, start: int) -> Any:
        try:
            return msgspec.json.decode(value[start:])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


def _compiled(number: int, registered: Registered, reading: Reading) -> Reader | None:
    try:
        if registered.kind == "JSON":
            return _Json()
        if registered.kind == "AVRO":
            from streamcal.runtime.avro import AvroReader  # noqa: PLC0415 - loads the extra `avro`

            return AvroReader(registered, reading)
        if registered.kind == "PROTOBUF":
            from streamcal.runtime.protobuf import ProtobufReader  # noqa: PLC0415 - loads the extra `protobuf`

            return ProtobufReader(registered, reading)
    except Exception as error:  # noqa: BLE001 - whatever a registered text makes a parser raise, it is no schema
        log.warning("a registered schema cannot be read", schema_id=number, kind=registered.kind, error=str(error))
        return None
    log.warning("schemas of this kind are not read", schema_id=number, kind=registered.kind)
    return None
