"""One record opened just far enough to read some fields and replace others; the rest stays as it was written.

An object along a configured path becomes a mapping of key to raw bytes, so whatever nobody asked for keeps its place,
its digits and its spelling. What does not survive is white space between the fields of an opened object, and all but
the last of several fields of one name, which is the one every reader here takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw

from streamcal.stream.events import Record
from streamcal.stream.fields import FieldPath
from streamcal.stream.schema import UNREADABLE

__all__ = ["Headers", "MalformedError", "Opened", "Place", "decoded"]

Headers = Sequence[tuple[str, bytes | None]]

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_ANY: Final = msgspec.json.Decoder().decode
_NUMBER: Final = msgspec.json.Decoder(int | float).decode
_ENCODE: Final = msgspec.json.Encoder().encode
_NULL: Final = Raw(b"null")  # raw text equals raw text only


class MalformedError(ValueError):
    """The value is not one JSON object in UTF-8, or a field lies behind something that is no object."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field's path, split for use.

    Attributes
    ----------
    source : {"value", "key", "header"}
    parents : tuple of str
        Keys of the objects around the field, from the root.
    name : str
        Key or header; empty for the record's key.
    """

    source: Literal["value", "key", "header"]
    parents: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, path: str) -> Place:
        """Read a path as the configuration writes it; raises ValueError for anything else.

        >>> Place.parse("payload.score")
        Place(source='value', parents=('payload',), name='score')
        """
        parsed = FieldPath.parse(path)
        if parsed.source == "key":
            return cls("key", (), "")
        return cls(parsed.source, parsed.parts[:-1], parsed.parts[-1])


class Opened:
    """A record whose value is a JSON object.

    Invariant: `close` gives the object that was opened, but for what was `put`.

    Parameters
    ----------
    record : Record
        With a value.

    Attributes
    ----------
    headers : sequence of (str, bytes or None)
        As they came, or a new list once one was put.

    Raises
    ------
    MalformedError
        The value is not one JSON object in UTF-8.
    """

    __slots__ = ("_changed", "_inner", "_key", "_root", "headers")

    def __init__(self, record: Record) -> None:
        value = record.value
        assert value is not None, "a tombstone is not opened"
        try:
            if not value.isascii():
                value.decode()  # msgspec passes over what it does not build
            self._root: dict[str, Raw] = _OBJECT(value)
        except UNREADABLE as error:
            raise MalformedError(str(error)) from error
        self._key = record.key
        self.headers: Headers = record.headers
        self._inner: dict[tuple[str, ...], dict[str, Raw]] = {}
        self._changed: set[tuple[str, ...]] = set()

    def text(self, place: Place) -> Raw | bytes | None:
        """What stands at a place, unread; None where nothing does, or null.

        Raises
        ------
        MalformedError
            The way to it leads through something that is no object.
        """
        if place.source == "value":
            held = self._object(place.parents) if place.parents else self._root
            found = None if held is None else held.get(place.name)
            return None if found is None or found == _NULL else found
        if place.source == "key":
            return self._key
        return next((value for name, value in reversed(self.headers) if name == place.name), None)

    def value(self, place: Place, *, number: bool = False) -> Any:
        """The value at a place, decoded; a key or header is text, or a number where `number` asks for one it spells.

        Raises
        ------
        MalformedError
            The way to it leads through no object, or a key or header is no UTF-8.
        """
        found = self.text(place)
        if found is None:
            return None
        if isinstance(found, Raw):
            return decoded(found)
        try:
            text = found.decode()
        except UnicodeDecodeError as error:
            raise MalformedError(str(error)) from error
        if not number:
            return text
        try:
            return _NUMBER(text)
        except UNREADABLE:
            return text

    def put(self, place: Place, text: bytes) -> None:
        """Write JSON text at a place: where it stands now, else behind what is there.

        Raises
        ------
        MalformedError
            The way to it leads through something that is no object.
        """
        if place.source == "header":
            self._put_header(place.name, text)
            return
        assert place.source == "value", "keys are not rewritten"
        if not place.parents:
            self._root[place.name] = Raw(text)
            return
        held = self._object(place.parents)
        if held is None:
            held = self._make(place.parents)
        held[place.name] = Raw(text)
        for depth in range(1, len(place.parents) + 1):
            self._changed.add(place.parents[:depth])

    def close(self) -> bytes:
        """The value as JSON, with what was put."""
        for path in sorted(self._changed, key=len, reverse=True):
            around = self._object(path[:-1])
            assert around is not None, "its parent was opened or made before it"
            around[path[-1]] = Raw(_ENCODE(self._inner[path]))
        return _ENCODE(self._root)

    def _object(self, path: tuple[str, ...]) -> dict[str, Raw] | None:
        if not path:
            return self._root
        found = self._inner.get(path)
        if found is None:
            around = self._object(path[:-1])
            raw = None if around is None else around.get(path[-1])
            if raw is None or raw == _NULL:
                return None
            try:
                found = self._inner[path] = _OBJECT(raw)
            except UNREADABLE as error:
                raise MalformedError(f"{'.'.join(path)} is no object") from error
        return found

    def _make(self, path: tuple[str, ...]) -> dict[str, Raw]:
        """Objects down to `path` where there were none or nulls; their parents are filled in by `close`."""
        for depth in range(1, len(path) + 1):
            if self._object(path[:depth]) is None:
                around = self._object(path[: depth - 1])
                assert around is not None, "made one step before"
                around[path[depth - 1]] = Raw(b"{}")
                self._changed.add(path[:depth])
                self._inner[path[:depth]] = {}
        return self._inner[path]

    def _put_header(self, name: str, text: bytes) -> None:
        headers = list(self.headers)
        place = next((i for i in range(len(headers) - 1, -1, -1) if headers[i][0] == name), None)
        if place is None:
            headers.append((name, text))
        else:
            headers[place] = (name, text)
        self.headers = headers


def decoded(raw: Raw | bytes) -> Any:
    """Valid JSON as a Python value; a number out of msgspec's range is `MalformedError`, which no field here takes."""
    try:
        return _ANY(raw)
    except UNREADABLE as error:
        raise MalformedError(str(error)) from error
