"""Recorded events as a log: two files of values, or one file of records in arrival order."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamcal.engine import Slice
from streamcal.errors import InputFileError
from streamcal.runtime.logs.base import Advance, LogRecord, Poll
from streamcal.runtime.logs.lines import read_line_blocks
from streamcal.stream.events import TOPICS
from streamcal.stream.watermark import BEGINNING

__all__ = ["Clock", "EventsFile", "FilePair", "FilesLog", "LogExtent"]

Clock = Callable[[str, Sequence[LogRecord]], NDArray[np.int64]]
"""(topic, records) to event time per record, `BEGINNING` where a record has none."""

_BLOCK = 20_000


class FilesLog:
    """A finished log over a source of polls; published maps are kept in `documents`."""

    def __init__(self, partitions: frozenset[int], polls: Iterator[Poll]) -> None:
        self.partitions = partitions
        self.finished = False
        self.documents: list[tuple[str, bytes]] = []
        self._polls = polls

    def open(self) -> Mapping[str, Sequence[bytes]]:
        """Nothing was published before."""
        return {}

    def poll(self, timeout_s: float) -> Poll:  # noqa: ARG002 - files never make one wait
        """The next block."""
        found = next(self._polls, None)
        if found is None:
            self.finished = True
            return Poll()
        return found

    def lag(self) -> dict[tuple[str, int], int]:
        """Unknown."""
        return {}

    def publish(self, key: str, document: bytes) -> None:
        """Keep the document for the report."""
        self.documents.append((key, document))

    def commit(self) -> None:
        """Nothing to keep."""

    def close(self) -> None:
        """Nothing to release."""


class FilePair:
    """Predictions and outcomes from a file each, one partition; the earlier head is read first.

    Each file keeps its own order, so a record cannot be read before those above it: it sorts by the
    latest time at or above it. Predictions go first on ties; a record without a time follows at once.
    """

    def __init__(self, predictions: Path, outcomes: Path, clock: Clock) -> None:
        self._heads = [_Head(topic, path, clock) for topic, path in zip(TOPICS, (predictions, outcomes), strict=True)]

    def polls(self) -> Iterator[Poll]:
        """Both files in order, in blocks."""
        first, second = self._heads
        while True:
            first.fill()
            second.fill()
            if not len(first) and not len(second):
                return
            take_first = first.count_until(second.last, inclusive=True)
            take_second = second.count_until(first.last, inclusive=False)
            a, keys_a = first.take(take_first)
            b, keys_b = second.take(take_second)
            place_a = np.arange(len(a)) + np.searchsorted(keys_b, keys_a, side="left")
            place_b = np.arange(len(b)) + np.searchsorted(keys_a, keys_b, side="right")
            slices = [Slice(first.topic, 0, a, place_a), Slice(second.topic, 0, b, place_b)]
            yield Poll([piece for piece in slices if len(piece.records)])


@dataclass(slots=True)
class _Head:
    """The unread front of one file. Invariant: `_keys` never decreases."""

    topic: str
    path: Path
    clock: Clock
    _blocks: Iterator[list[bytes]] | None = None
    _records: list[LogRecord] = field(default_factory=list)
    _keys: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _ended: bool = False
    _reached: int = BEGINNING
    _offset: int = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def last(self) -> int | None:
        """Key of the last record read; None when nothing can follow."""
        return None if self._ended else int(self._keys[-1])

    def fill(self) -> None:
        """Read on unless a block is there or the file has ended."""
        if self._blocks is None:
            self._blocks = read_line_blocks(self.path, _BLOCK)
        if self._ended or self._records:
            return
        block = next(self._blocks, None)
        if block is None:
            self._ended = True
            return
        self._records = [LogRecord(line, offset=self._offset + i) for i, line in enumerate(block)]
        self._offset += len(block)
        times = np.maximum(self.clock(self.topic, self._records), self._reached)
        self._keys = np.maximum.accumulate(times)
        self._reached = int(self._keys[-1])

    def count_until(self, limit: int | None, *, inclusive: bool) -> int:
        """Records that nothing unread in the other file can precede."""
        if limit is None:
            return len(self._records)
        return int(np.searchsorted(self._keys, limit, side="right" if inclusive else "left"))

    def take(self, count: int) -> tuple[list[LogRecord], NDArray[np.int64]]:
        """Hand out the first `count` records and their keys."""
        records, keys = self._records[:count], self._keys[:count]
        self._records, self._keys = self._records[count:], self._keys[count:]
        return records, keys


class LogExtent(NamedTuple):
    """How much of a file is one log's: its records, and the number of its last line."""

    records: int
    last_line: int


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")  # not in a union with None, which would refuse every object
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] | list[tuple[str, str]] | None = None
    timestamp_ms: int | None = None
    advance_ms: int | None = None


class EventsFile:
    """One file of records of both topics in arrival order, one JSON object per line.

    ``{"topic": "predictions"|"outcomes", "partition": 0, "value": {...}}`` with optional `key`, `headers`,
    `timestamp_ms`, and `value_base64` in place of `value` (null: a tombstone), `key_base64` in place of `key`; a
    recorded advance has `advance_ms` in place of a value.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(_Line)

    def extents(self) -> dict[tuple[str, int], LogExtent]:
        """Records and last line of each log (the file is read through once)."""
        found: dict[tuple[str, int], LogExtent] = {}
        for block in self._blocks():
            for number, line in block:
                log = line.topic, line.partition
                records = found[log].records if log in found else 0
                found[log] = LogExtent(records + (line.advance_ms is None), number)
        return found

    def polls(self, extents: Mapping[tuple[str, int], LogExtent]) -> Iterator[Poll]:
        """The file in blocks; an advance ends a block, and so does the last line of a log."""
        partitions = {partition for _, partition in extents}
        yield Poll(ended=[(t, partition) for t in TOPICS for partition in partitions if (t, partition) not in extents])
        ends = {extent.last_line: log for log, extent in extents.items()}
        pending: list[_Line] = []
        for block in self._blocks():
            for number, line in block:
                advances = []
                if line.advance_ms is None:
                    pending.append(line)
                else:
                    advances = [Advance(line.topic, line.partition, line.advance_ms)]
                if advances or number in ends:
                    yield self._poll(pending, advances, [ends[number]] if number in ends else [])
                    pending = []
            yield self._poll(pending, [], [])
            pending = []

    @staticmethod
    def _poll(lines: Sequence[_Line], advances: Sequence[Advance], ended: Sequence[tuple[str, int]]) -> Poll:
        records: dict[tuple[str, int], list[LogRecord]] = {}
        places: dict[tuple[str, int], list[int]] = {}
        for place, line in enumerate(lines):
            log = line.topic, line.partition
            records.setdefault(log, []).append(_record(line))
            places.setdefault(log, []).append(place)
        slices = [Slice(*log, held, np.array(places[log], dtype=np.int64)) for log, held in records.items()]
        return Poll(slices, advances, ended)

    def _blocks(self) -> Iterator[list[tuple[int, _Line]]]:
        """Lines that hold something, with their numbers."""
        number = 0
        for block in read_line_blocks(self._path, _BLOCK):
            lines = []
            for text in block:
                number += 1
                if text.strip():
                    lines.append((number, self._parse(number, text)))
            yield lines

    def _parse(self, number: int, text: bytes) -> _Line:
        hint = 'each line is {"topic": "predictions" or "outcomes", "partition": 0, "value": {...}}'
        try:
            line = self._decoder.decode(text)
            for text_of in (line.value_base64, line.key_base64):
                if text_of is not None:
                    base64.b64decode(text_of, validate=True)
        except (msgspec.MsgspecError, binascii.Error, UnicodeDecodeError) as error:
            raise InputFileError(str(error), where=f"{self._path}, line {number}", hint=hint) from error
        if line.topic not in TOPICS or not 0 <= line.partition < 1 << 31:
            message = f"topic {line.topic!r}, partition {line.partition}"
            raise InputFileError(message, where=f"{self._path}, line {number}", hint=hint)
        return line


def _key(line: _Line) -> bytes | None:
    if line.key_base64 is not None:
        return base64.b64decode(line.key_base64)
    return None if line.key is None else line.key.encode()


def _record(line: _Line) -> LogRecord:
    value: bytes | None = None
    if line.value_base64 is not None:
        value = base64.b64decode(line.value_base64)
    elif bytes(line.value) != b"null":
        value = bytes(line.value)
    pairs = line.headers.items() if isinstance(line.headers, dict) else line.headers or ()
    return LogRecord(
        value=value,
        key=_key(line),
        headers=[(name, text.encode()) for name, text in pairs],
        timestamp=line.timestamp_ms,
    )
