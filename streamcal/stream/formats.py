"""Values that are no JSON: turned into the JSON text the codec decodes, before anything else looks at them.

A format reads one value at a time and gives the JSON object it stands for, at least the fields that are read of it. So
there is one codec and one authority on reasons, whatever the wire carries. Offsets, headers and timestamps are those
of the record; what is set aside can be found again under its offset, as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from streamcal.stream.events import Record

__all__ = ["WIRE_PREFIX", "Converted", "ValueFormat", "converted", "wire_schema_id"]

UNDECODABLE: Final = b""
"""No JSON: the codec counts it as `malformed`."""


WIRE_PREFIX: Final = 5
"""Bytes before the content in the Confluent wire format: a zero, and the schema id."""


def wire_schema_id(value: bytes) -> int | None:
    """The schema id a value begins with; None if it is not in the wire format."""
    return int.from_bytes(value[1:WIRE_PREFIX], "big") if len(value) >= WIRE_PREFIX and value[0] == 0 else None


class ValueFormat(Protocol):
    """Reads values (and keys) of one topic."""

    def json(self, value: bytes) -> bytes | None:
        """JSON object of a value; None if it cannot be decoded, now or ever."""
        ...

    def key(self, key: bytes) -> bytes:
        """UTF-8 text of a record's key; anything else where it has none."""
        ...


class Converted(NamedTuple):
    """A record with its value as JSON; see `streamcal.stream.events.Record`."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes]]
    timestamp: int | None
    offset: int


def converted(records: Sequence[Record], form: ValueFormat, max_bytes: int) -> list[Converted]:
    """The records with values as JSON text.

    Parameters
    ----------
    records : sequence of Record
    form : ValueFormat
    max_bytes : int
        Longest value; one that is longer on the wire stays longer as JSON, so that it is counted as `too_large`.
    """
    return [
        Converted(
            value=None if record.value is None else _json(record.value, form, max_bytes),
            key=None if record.key is None else form.key(record.key),
            headers=record.headers,
            timestamp=record.timestamp,
            offset=record.offset,
        )
        for record in records
    ]


def _json(value: bytes, form: ValueFormat, max_bytes: int) -> bytes:
    text = form.json(value)
    if text is None:
        return UNDECODABLE
    # JSON may end in spaces; this keeps the order in which reasons are tested.
    return text if len(value) <= max_bytes else text.ljust(max_bytes + 1)
