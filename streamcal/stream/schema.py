"""What is compiled from the configured paths: a strict msgspec type for whole slices, a lazy one for single events.

A *slot* is one field an event is read for. The slots' paths form a tree, and the tree becomes two msgspec types:

- the *strict* type, whose leaves carry each slot's JSON type and bounds, so that an event that decodes is valid
  as far as single values go. Fields nobody asked for are skipped without being built;
- the *lazy* type, whose leaves stay raw bytes: it tells a missing field from a wrong one, value by value.

Both skip unknown fields by the same code of msgspec, so they agree on what is JSON. Where one path serves two
strict slots, or a slot's value is also a parent of another, no strict type exists (`Schema.strict` is None)
and every event is read lazily: correct, and about ten times slower (11 instead of 1 microseconds).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import GenericAlias
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from streamcal.stream.events import Record
from streamcal.stream.fields import FieldPath
from streamcal.stream.values import BROKEN

__all__ = ["UNREADABLE", "Schema", "Slot", "UnreadableError"]

UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What decoding bytes that are no JSON (or nest deeper than the stack) raises."""

_NULL: Final = Raw(b"null")
_NUMBER: Final = msgspec.json.Decoder(int | float)


class UnreadableError(ValueError):
    """The value of a record is not one JSON object in UTF-8."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One field to read.

    Attributes
    ----------
    json_type : msgspec type
        What the strict type admits besides null; `Any` constrains nothing.
    required : bool
        Absent or null is not valid.
    wide : bool
        The type is wide enough to leave a path it shares with another slot to that one.
    lossy : bool
        The type does not keep the JSON value (1 becomes 1.0), so a wide slot cannot share it.
    number : bool
        Text from a key or header is read as a JSON number where it is one.
    """

    name: str
    path: FieldPath
    json_type: Any
    required: bool = False
    wide: bool = False
    number: bool = False
    lossy: bool = False

    @property
    def column_type(self) -> Any:
        """`json_type`, with null where the field may be absent."""
        return self.json_type if self.required or self.json_type is Any else self.json_type | None


@dataclass(slots=True)
class _Node:
    """One object key of the tree; a node with slots is a leaf of the strict type."""

    slots: list[Slot] = field(default_factory=list)
    children: dict[str, _Node] = field(default_factory=dict)
    lazy: msgspec.json.Decoder[Any] | None = None
    empty: Struct | None = None

    def grow(self, slot: Slot) -> None:
        node = self
        for part in slot.path.parts:
            node = node.children.setdefault(part, _Node())
        node.slots.append(slot)

    def leaf_type(self) -> Any:
        """Strict type of the slots that share this path.

        Raises
        ------
        TypeError
            Two of them are strict: no single type says both.
        """
        narrow = [s for s in self.slots if not s.wide]
        shared = len(self.slots) > len(narrow)
        if self.children or len(narrow) > 1 or (shared and any(s.lossy for s in narrow)):
            raise TypeError("one path, two types")
        return (narrow or sorted(self.slots, key=lambda s: s.json_type is Any))[0].column_type

    @property
    def required(self) -> bool:
        return any(s.required for s in self.slots) or any(c.required for c in self.children.values())

    def strict_type(self, *, root: bool = False) -> type[Struct]:
        """Struct of the children; absent optional objects share one frozen empty instance."""
        fields: list[Any] = []
        for index, child in enumerate(self.children.values()):
            kind = child.leaf_type() if child.slots else child.strict_type()
            if child.required:
                fields.append((f"f{index}", kind))
            elif child.slots:
                fields.append((f"f{index}", kind, None))
            else:
                child.empty = kind()
                fields.append((f"f{index}", kind | None, child.empty))
        # gc=False: the rows hold no cycles, and tracking them costs a tenth of the decoding.
        return msgspec.defstruct(
            "Event", fields, rename=self._names(), frozen=not root, gc=False, kw_only=True, module=__name__
        )

    def make_lazy(self) -> None:
        fields: list[Any] = [(f"f{i}", Raw, _NULL) for i in range(len(self.children))]
        kind = msgspec.defstruct("Lazy", fields, rename=self._names(), module=__name__)
        self.lazy = msgspec.json.Decoder(kind)
        for child in self.children.values():
            if child.children:
                child.make_lazy()

    def _names(self) -> dict[str, str]:
        return {f"f{i}": name for i, name in enumerate(self.children)}

    def slots_below(self) -> Iterator[Slot]:
        for child in self.children.values():
            yield from child.slots
            yield from child.slots_below()


class Schema:
    """Reads slots from records, many at once (`columns`) or one by itself (`read`).

    Parameters
    ----------
    slots : sequence of Slot
    fast : bool
        False leaves `strict` None, so that every event is read by itself.

    Attributes
    ----------
    strict : msgspec decoder or None
    """

    def __init__(self, slots: Sequence[Slot], *, fast: bool = True) -> None:
        self.names: tuple[str, ...] = tuple(s.name for s in slots)
        self._text_slots = [s for s in slots if s.path.source != "value"]
        self._root = _Node()
        for slot in slots:
            if slot.path.source == "value":
                self._root.grow(slot)
        self._root.make_lazy()
        self.strict: msgspec.json.Decoder[Any] | None = None
        if fast:
            try:
                self.strict = msgspec.json.Decoder(self._root.strict_type(root=True))
            except TypeError:
                self.strict = None

    def columns(self, rows: Sequence[Any], records: Sequence[Record]) -> tuple[dict[str, Sequence[Any]], set[int]]:
        """Columns by slot name, and the rows whose key or header does not fit its slot (their entries are None).

        Parameters
        ----------
        rows : sequence
            Decoded by `strict`.
        records : sequence
            The records of those rows; read only for keys and headers.
        """
        out: dict[str, Sequence[Any]] = {}
        _fill_columns(self._root, rows, out)
        unfit: set[int] = set()
        for slot in self._text_slots:
            texts = [_text_value(slot, record) for record in records]
            out[slot.name] = self._fitting(slot, texts, unfit)
        return out, unfit

    def _fitting(self, slot: Slot, texts: list[Any], unfit: set[int]) -> list[Any]:
        try:
            # One call for the column: msgspec reads the type anew in each call, for half a microsecond.
            return cast("list[Any]", msgspec.convert(texts, GenericAlias(list, (slot.column_type,))))
        except msgspec.ValidationError:
            pass
        for index, text in enumerate(texts):
            try:
                msgspec.convert(text, slot.column_type)
            except msgspec.ValidationError:
                texts[index] = None
                unfit.add(index)
        return texts

    def read(self, value: bytes, record: Record) -> dict[str, Any]:
        """Decoded value of every slot of one record, None where absent or null.

        `BROKEN` stands where the way to a field leads through something that is no object, or where a key
        or header is no UTF-8.

        Raises
        ------
        UnreadableError
            The value is not one JSON object in UTF-8.
        """
        out: dict[str, Any] = dict.fromkeys(self.names)
        try:
            value.decode()
            _read_object(self._root, value, out)
        except UNREADABLE as error:
            raise UnreadableError(str(error)) from error
        for slot in self._text_slots:
            out[slot.name] = _text_value(slot, record)
        return out


def _fill_columns(node: _Node, objects: Sequence[Any], out: dict[str, Sequence[Any]]) -> None:
    """Columns of the slots below `node`; where an explicit null stands for an object, its fields are absent.

    One pass per field: half the time of picking all fields of a row at once and transposing.
    """
    for index, child in enumerate(node.children.values()):
        column = list(map(operator.attrgetter(f"f{index}"), objects))
        for slot in child.slots:
            out[slot.name] = column
        if child.children:
            if column.count(None):
                column = [child.empty if found is None else found for found in column]
            _fill_columns(child, column, out)


def _read_object(node: _Node, value: bytes | Raw, out: dict[str, Any]) -> None:
    assert node.lazy is not None  # every node with children has one
    found = node.lazy.decode(value)
    for index, child in enumerate(node.children.values()):
        raw: Raw = getattr(found, f"f{index}")
        if child.slots:
            leaf = _leaf(raw)
            out.update((slot.name, leaf) for slot in child.slots)
        if child.children:
            opening = bytes(memoryview(raw)[:1])
            if opening == b"{":
                _read_object(child, raw, out)
            elif opening != b"n":
                out.update((slot.name, BROKEN) for slot in child.slots_below())


def _leaf(raw: Raw) -> Any:
    """Value of valid JSON; a number msgspec finds out of range becomes what Python makes of it."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        text = bytes(raw).decode()
    if text[0] in "[{":
        return {}
    try:
        return int(text)
    except ValueError:  # a fraction, an exponent, or more digits than Python converts
        return float(text)


def _text_value(slot: Slot, record: Record) -> Any:
    """Key or header of a record: text, a number where the slot wants one, None if absent, `BROKEN` if no UTF-8."""
    if slot.path.source == "key":
        found = record.key
    else:
        name = slot.path.parts[0]
        found = next((v for k, v in reversed(record.headers or ()) if k == name), None)
    if found is None:
        return None
    try:
        text = found.decode()
        return _number(text) if slot.number else text
    except UnicodeDecodeError:
        return BROKEN


def _number(text: str) -> Any:
    try:
        return _NUMBER.decode(text)
    except UNREADABLE:
        return text
