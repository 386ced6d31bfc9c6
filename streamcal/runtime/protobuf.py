"""Protobuf values as plain ones.

Theory of operation. Registries of Confluent's kind hand out a Protobuf schema compiled, as a file descriptor, where
they are asked for it ``serialized``; so no source text is parsed here, and no program run. Before the message stands
which one of the file it is: the number of indexes and the indexes from the outermost message on, zigzag varints, a
single zero for the first message.

Where Protobuf has more than JSON: a ``google.protobuf.Timestamp`` in the time field is given in the unit that is
configured, and is text elsewhere, unless its fields are asked for; wrappers such as ``google.protobuf.DoubleValue``
are the value they hold; an enum is its name.

Absent fields. With presence (proto2, ``optional``, ``oneof``, messages) a field that is not set is absent. Without
presence, as in plain proto3, an unset field and a zero are the same bytes. Both are read as the zero, since a score of
0 and a label of 0 are ordinary, but for what the codec can do without (raw score, map version, weight, model): there a
zero is absent, since an unset one is ordinary.

Not seen: bytes of another message that parse as this one, as fields of unknown numbers are allowed on the wire.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError, Message

from streamcal.runtime.avro_times import instant_in
from streamcal.runtime.registry import Registered
from streamcal.runtime.wire_format import FieldTree, Reading

__all__ = ["ProtobufReader"]

_SHIPPED: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
    )
}  # fmt: skip
"""Files that schemas import and registries do not hold."""
_WRAPPERS: Final = frozenset(message.full_name for message in wrappers_pb2.DESCRIPTOR.message_types_by_name.values())
_TIMESTAMP: Final = timestamp_pb2.Timestamp.DESCRIPTOR.full_name
_DEEPEST: Final = 32
"""Indexes before a message: messages are not nested deeper."""

Path = tuple[str, ...]


class ProtobufReader:
    """Reads values of one schema; see `streamcal.runtime.wire_format.Reader`.

    Raises
    ------
    Exception
        What the library makes of a text that is no descriptor, or of one whose types are not all there.
    """

    def __init__(self, registered: Registered, reading: Reading) -> None:
        self._file = _descriptor(registered)
        self._reading = reading
        self._classes: dict[tuple[int, ...], type[Message]] = {}

    def read(self, value: bytes, start: int) -> Any:
        """The message from byte `start` on; None if the bytes do not fit."""
        try:
            indexes, start = _indexes(value, start)
            message = self._class(indexes).FromString(value[start:])
        except (IndexError, DecodeError):
            return None
        return self._fields(message, self._reading.fields, ())

    def _class(self, indexes: tuple[int, ...]) -> type[Message]:
        found = self._classes.get(indexes)
        if found is None:
            held: Any = list(self._file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                held = held.nested_types[index]
            found = self._classes[indexes] = message_factory.GetMessageClass(held)
        return found

    def _fields(self, message: Any, wanted: FieldTree, path: Path) -> dict[str, Any]:
        known, found = message.DESCRIPTOR.fields_by_name, {}
        for name in wanted.children or known:
            field, here = known.get(name), (*path, name)
            if field is None or (field.has_presence and not message.HasField(name)):
                continue
            held = getattr(message, name)
            if not field.has_presence and not held and self._is_optional(here):
                continue
            found[name] = self._value(field, held, wanted.children.get(name, FieldTree()), here)
        return found

    def _value(self, field: Any, held: Any, wanted: FieldTree, path: Path) -> Any:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_values, names = field.message_type.fields_by_name["value"], wanted.children
            entries = ((_key(key), value) for key, value in held.items())
            return {
                key: self._single(of_values, value, names.get(key, FieldTree()), (*path, key))
                for key, value in entries
                if not names or key in names
            }
        if field.is_repeated:
            return [self._single(field, one, wanted, path) for one in held]
        return self._single(field, held, wanted, path)

    def _single(self, field: Any, held: Any, wanted: FieldTree, path: Path) -> Any:
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(held)
            return held if known is None else known.name
        if field.message_type is None:
            return held
        if field.message_type.full_name == _TIMESTAMP and not wanted.children:
            unit = self._reading.time_unit if path == self._reading.time else "rfc3339"
            return instant_in(unit, held.seconds * 10**9 + held.nanos, "timestamp-nanos")
        return held.value if field.message_type.full_name in _WRAPPERS else self._fields(held, wanted, path)

    def _is_optional(self, path: Path) -> bool:
        return any(path[: len(one)] == one for one in self._reading.optional)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _descriptor(registered: Registered) -> Any:
    """The file of the schema, with all it imports, in a pool of its own: ids may disagree about a type."""
    pool, added = descriptor_pool.DescriptorPool(), set[str]()

    def add(name: str, serialized: bytes) -> Any:
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        for imported in file.dependency:
            if imported in _SHIPPED and imported not in added:
                add(imported, _SHIPPED[imported])
        file.name = name
        _forget_imports(file, added)
        added.add(name)
        return pool.AddSerializedFile(file.SerializeToString())

    for name, text in registered.references.items():
        add(name, base64.b64decode(text, validate=True))
    # A name of ours, which no import can have.
    found = add("", base64.b64decode(registered.text, validate=True))
    return pool.FindFileByName("") if found is None else found


def _forget_imports(file: Any, added: set[str]) -> None:
    """Drop imports nobody has: registries hold back those of mere options, and a type that is missing still fails."""
    before = list(file.dependency)
    kept = [name for name in before if name in added]
    if kept == before:
        return
    public = [kept.index(before[i]) for i in file.public_dependency if before[i] in added]
    for names in (file.dependency, file.public_dependency, file.weak_dependency):
        del names[:]
    file.dependency.extend(kept)
    file.public_dependency.extend(public)


def _indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message follows, and where it begins.

    Raises
    ------
    IndexError
        The bytes end, or no message has such indexes.
    """
    count, at = _zigzag(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise IndexError(count)
    found = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        if index < 0:
            raise IndexError(index)
        found.append(index)
    return tuple(found), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        if shift > 28:
            raise IndexError(at)
