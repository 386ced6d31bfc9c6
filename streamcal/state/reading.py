"""Reading a log that one writer at a time owns: records, and what counts of them; see `streamcal.state.claimed_log`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from streamcal.errors import StateFormatError, StreamcalError

__all__ = [
    "FOREIGN_RECORD",
    "FORMAT",
    "AppendUncertainError",
    "FencedError",
    "Kind",
    "LogRecord",
    "LogUnavailableError",
    "Reading",
    "RecordLog",
    "Restored",
    "Sent",
    "StateLostError",
    "decoded",
    "read_state",
]

FORMAT: Final = 1
FOREIGN_RECORD: Final = (
    "Only streamcal may write to this topic. If a later release wrote it, run that one; otherwise find who writes "
    "there, and begin anew (`streamcal state reset`) or read the inputs again (`streamcal state rebuild`)."
)
"""What to do about a record that we cannot have written."""

Kind = Literal["claim", "delta", "snapshot", "reset"]


class LogUnavailableError(Exception):
    """The log does not answer; whoever works on it drops what it has and takes over anew, later."""


class AppendUncertainError(LogUnavailableError):
    """Whether records were stored is not known; their author may not write again."""


class FencedError(Exception):
    """Another has claimed the log."""


class StateLostError(StreamcalError):
    """Part of the state is missing in its log."""

    exit_code = 9


Sent = Callable[[], list[int]]
"""Waits until all records sent are acknowledged, and gives their offsets; raises AppendUncertainError."""


class RecordLog(Protocol):
    """One partition of the state topic; used from one thread."""

    def send(self, values: Sequence[bytes]) -> Sent:
        """Hand records over, to be stored one after the other; what is returned says what became of them.

        Raises
        ------
        AppendUncertainError
            Some may or may not have been stored.
        """
        ...

    def read(self, start: int | None, stop: int) -> Iterator[tuple[int, bytes] | None]:
        """(offset, value) of the records from `start` (None: the first kept) up to offset `stop`, excluded.

        None now and then, so that whoever reads can do something else.

        Raises
        ------
        LogUnavailableError
            Also where records are deleted while they are read.
        """
        ...

    def delete_before(self, offset: int) -> None:
        """Let go of records before `offset`; may fail silently, to be done by the next call."""
        ...


class LogRecord(msgspec.Struct, array_like=True, frozen=True):
    """One record, or one chunk of a payload larger than a record."""

    format: int
    kind: Kind
    author: bytes
    sequence: int
    part: int
    parts: int
    payload: bytes
    about: bytes = b""
    """Of a snapshot and a reset: what their author's claim said, which may be deleted by now."""
    base: int = 0
    """Of a snapshot and a reset: what is added to the offset of a claim."""


_DECODER: Final = msgspec.msgpack.Decoder(LogRecord)


@dataclass(slots=True)
class Restored:
    """What the owners before have left.

    Attributes
    ----------
    about : bytes or None
        What the last owner who wrote state said of itself in its claim; None where there is no state.
    snapshot : bytes or None
    deltas : list of bytes
        In order, since the snapshot.
    reset : bytes or None
        What the reset says before which there is nothing; None once there is a snapshot.
    base : int
        What is added to the offset of a claim.
    ignored : int
        Records of authors that did not own the log any more, and repetitions.
    records : int
        Read so far.
    remaining : int
        Records and deltas still to be read and applied, at most.
    claims : list of (offset, about)
        Those that are kept.
    snapshot_at : int or None
        Offset of the snapshot.
    """

    about: bytes | None = None
    snapshot: bytes | None = None
    deltas: list[bytes] = field(default_factory=list)
    reset: bytes | None = None
    base: int = 0
    ignored: int = 0
    records: int = 0
    remaining: int = 0
    claims: list[tuple[int, bytes]] = field(default_factory=list)
    snapshot_at: int | None = None


class Reading:
    """Judges records one by one."""

    def __init__(self, where: str) -> None:
        self.restored = Restored()
        self._where = where
        self._claimant: bytes | None = None
        self._about = b""
        self._next = 0
        self._chunks: list[bytes] = []
        self._first: tuple[int, LogRecord] | None = None

    def take(self, offset: int, record: LogRecord) -> None:
        """Take the next record in.

        Raises
        ------
        StateLostError
            Records of the owner are missing.
        """
        self.restored.records += 1
        if record.kind == "claim":
            self._claimant, self._next, self._chunks = record.author, record.sequence + 1, []
            self._about = record.payload
            self.restored.claims.append((offset, record.payload))
            return
        if self._claimant is None:
            self._begin_with(record, offset)
        if record.author != self._claimant or record.sequence < self._next:
            self.restored.ignored += 1
            return
        if record.sequence > self._next:
            raise self._lost(f"at offset {offset} {record.sequence - self._next} records of its owner are missing")
        self._next += 1
        self._assemble(offset, record)

    def _begin_with(self, record: LogRecord, offset: int) -> None:
        if record.kind not in ("snapshot", "reset") or record.part:
            raise self._lost(f"it begins at offset {offset} in the middle of what was written")
        self._claimant, self._next, self._about = record.author, record.sequence, record.about

    def _assemble(self, offset: int, record: LogRecord) -> None:
        if record.part == 0:
            self._chunks, self._first = [], (offset, record)
        self._chunks.append(record.payload)
        if record.part < record.parts - 1 or self._first is None:
            return
        payload, self._chunks = b"".join(self._chunks), []
        (first, head), restored = self._first, self.restored
        if record.kind == "delta":
            restored.deltas.append(payload)
            restored.about = self._about
            return
        restored.deltas, restored.base, restored.snapshot_at = [], head.base, first
        restored.snapshot, restored.reset, restored.about = payload, None, head.about
        if record.kind == "reset":
            restored.snapshot, restored.reset, restored.about = None, payload, None

    def _lost(self, what: str) -> StateLostError:
        return StateLostError(
            f"the state has a gap: {what}",
            where=self._where,
            hint="Records of this topic were deleted, by hand or by its retention (it must be unlimited). Begin anew "
            "with `streamcal state reset`, or read the inputs again with `streamcal state rebuild`.",
        )


def read_state(log: RecordLog, stop: int, *, where: str = "") -> Iterator[Restored]:
    """What owners left before offset `stop`, without claiming it; yields progress, the last is complete.

    Raises
    ------
    StateLostError
        Something is missing.
    StateFormatError
        A later release has written here.
    LogUnavailableError
    """
    reading = Reading(where)
    restored = reading.restored
    restored.remaining = stop
    yield restored
    for found in log.read(None, stop):
        if found is not None:
            reading.take(found[0], decoded(found[1], where))
            restored.remaining = stop - found[0] - 1 + len(restored.deltas)
        yield restored
    if not restored.records and stop > 0:
        raise StateLostError(
            f"the state is gone: nothing is left before offset {stop}",
            where=where,
            hint="Begin anew (`streamcal state reset`), or read the inputs again (`streamcal state rebuild`).",
        )
    restored.remaining = len(restored.deltas)
    yield restored


def decoded(value: bytes | None, where: str) -> LogRecord:
    """The record of a value.

    Raises
    ------
    StateFormatError
        It cannot be read, or was written by a later release.
    """
    try:
        record = _DECODER.decode(b"" if value is None else value)
    except msgspec.DecodeError as error:
        raise StateFormatError(
            f"a record of the state cannot be read: {error}", where=where, hint=FOREIGN_RECORD
        ) from error
    if record.format > FORMAT:
        raise StateFormatError(
            f"the state was written in format {record.format}, this release knows {FORMAT}",
            where=where,
            hint="Run the release that wrote it, or a later one.",
        )
    return record
