"""A log that one writer at a time owns: claims, fencing, chunks, snapshots.

Rules
-----
- Who wants to own the log appends a *claim* under an author id never used before, and takes up what was written up to
  that claim's offset. The highest claim owns the log.
- Every record says who wrote it and its place in that author's sequence. A reader drops records of anyone but the
  author of the last claim before them, *then* judges whether sequences and chunks are complete; a place seen before is
  a repetition and left aside, a place left out means that state is lost.
- After each acknowledgement the owner looks at what stands between this record and its last. A claim of another there
  means that the log was taken over: `FencedError`, and nothing of this append may be acted on.
- An append of which it is not known whether it was stored is never tried again by the same author; the owner drops
  everything and claims again.
- A payload larger than a record is cut in chunks; it counts once all of them are there. Chunks that a crash left
  behind are dropped with their author.
- What lies before the snapshot before the last is deleted, never by age. So the log begins with a snapshot or a claim;
  one that begins with anything else has lost something.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from streamcal.errors import StateFormatError, StreamcalError

__all__ = [
    "CHUNK_BYTES",
    "AppendUncertainError",
    "ClaimedLog",
    "FencedError",
    "LogUnavailableError",
    "RecordLog",
    "Restored",
    "StateLostError",
]

FORMAT: Final = 1
CHUNK_BYTES: Final = 900_000
"""Below the broker's usual limit of a megabyte, headers included."""

Kind = Literal["claim", "delta", "snapshot"]


class LogUnavailableError(Exception):
    """The log does not answer; whoever works on it drops what it has and takes over anew, later."""


class AppendUncertainError(LogUnavailableError):
    """Whether records were stored is not known; their author may not write again."""


class FencedError(Exception):
    """Another has claimed the log."""


class StateLostError(StreamcalError):
    """Part of the state is missing in its log."""

    exit_code = 9


class RecordLog(Protocol):
    """One partition of the state topic; used from one thread."""

    def append(self, values: Sequence[bytes]) -> list[int]:
        """Store records one after the other; their offsets, once all are acknowledged.

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
        """
        ...

    def delete_before(self, offset: int) -> None:
        """Let go of records before `offset`; may fail silently, to be done by the next call."""
        ...


class _Record(msgspec.Struct, array_like=True, frozen=True):
    format: int
    kind: Kind
    author: bytes
    sequence: int
    part: int
    parts: int
    payload: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Record)


@dataclass(slots=True)
class Restored:
    """What the owners before have left.

    Attributes
    ----------
    about : bytes or None
        What the last claim before ours said of itself; None where nobody claimed the log before.
    snapshot : bytes or None
    deltas : list of bytes
        In order, since the snapshot.
    ignored : int
        Records of authors that did not own the log any more, and repetitions.
    records : int
        Read so far.
    """

    about: bytes | None = None
    snapshot: bytes | None = None
    deltas: list[bytes] = field(default_factory=list)
    ignored: int = 0
    records: int = 0


class _Reading:
    """Judges records one by one."""

    def __init__(self, where: str) -> None:
        self.restored = Restored()
        self.snapshot_at: int | None = None
        self._where = where
        self._claimant: bytes | None = None
        self._next = 0
        self._chunks: list[bytes] = []
        self._first = 0

    def take(self, offset: int, record: _Record) -> None:
        """Take the next record in.

        Raises
        ------
        StateLostError
            Records of the owner are missing.
        """
        self.restored.records += 1
        if record.kind == "claim":
            self._claimant, self._next, self._chunks = record.author, record.sequence + 1, []
            self.restored.about = record.payload
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

    def _begin_with(self, record: _Record, offset: int) -> None:
        if record.kind != "snapshot" or record.part:
            raise self._lost(f"it begins at offset {offset} in the middle of what was written")
        self._claimant, self._next = record.author, record.sequence

    def _assemble(self, offset: int, record: _Record) -> None:
        if record.part == 0:
            self._chunks, self._first = [], offset
        self._chunks.append(record.payload)
        if record.part < record.parts - 1:
            return
        payload, self._chunks = b"".join(self._chunks), []
        if record.kind == "snapshot":
            self.restored.snapshot, self.restored.deltas, self.snapshot_at = payload, [], self._first
        else:
            self.restored.deltas.append(payload)

    def _lost(self, what: str) -> StateLostError:
        return StateLostError(
            f"the state has a gap: {what}",
            where=self._where,
            hint="Records of this topic were deleted, by hand or by its retention (it must be unlimited). Begin anew "
            "with `streamcal state reset`, or read the inputs again with `streamcal state rebuild`.",
        )


class ClaimedLog:
    """Writes a log as its owner; one instance is one author.

    Parameters
    ----------
    log : RecordLog
    author : bytes
        Never used before.
    where : str
        For messages: topic and partition.
    chunk_bytes : int

    Attributes
    ----------
    claim : int
        Offset of our claim; outranks every earlier one.
    """

    def __init__(self, log: RecordLog, author: bytes, *, where: str = "", chunk_bytes: int = CHUNK_BYTES) -> None:
        self._log = log
        self._author = author
        self._where = where
        self._chunk_bytes = chunk_bytes
        self._sequence = 0
        self._last = -1
        self._snapshot_at: int | None = None
        self.claim = -1

    def take_over(self, about: bytes) -> Iterator[Restored]:
        """Claim the log and read what was left; yields progress, the last is complete.

        Raises
        ------
        AppendUncertainError
            Begin again as another author.
        StateLostError
            Something is missing.
        StateFormatError
            A later release has written here.
        """
        (self.claim,) = self._log.append([self._record("claim", about, 0, 1)])
        self._last = self.claim
        reading = _Reading(self._where)
        for found in self._log.read(None, self.claim):
            if found is not None:
                reading.take(found[0], self._decoded(found[1]))
            yield reading.restored
        self._snapshot_at = reading.snapshot_at
        if not reading.restored.records and self.claim > 0:
            raise StateLostError(
                f"the state is gone: nothing is left before offset {self.claim}",
                where=self._where,
                hint="Begin anew (`streamcal state reset`), or read the inputs again (`streamcal state rebuild`).",
            )
        yield reading.restored

    def append(self, payload: bytes) -> None:
        """Make a delta durable.

        Raises
        ------
        FencedError
            The log has another owner; nothing may follow from this.
        AppendUncertainError
            It may or may not be stored; drop everything and take over anew.
        """
        self._write("delta", payload)

    def snapshot(self, payload: bytes) -> None:
        """Make a snapshot durable, and let go of what lies before the one before it; raises as `append` does."""
        first = self._write("snapshot", payload)
        if self._snapshot_at is not None:
            self._log.delete_before(self._snapshot_at)
        self._snapshot_at = first

    def _write(self, kind: Kind, payload: bytes) -> int:
        size = self._chunk_bytes
        chunks = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        records = [self._record(kind, chunk, part, len(chunks)) for part, chunk in enumerate(chunks)]
        offsets = self._log.append(records)
        self._check_fence(offsets)
        return offsets[0]

    def _record(self, kind: Kind, payload: bytes, part: int, parts: int) -> bytes:
        record = _Record(FORMAT, kind, self._author, self._sequence, part, parts, payload)
        self._sequence += 1
        return _ENCODER.encode(record)

    def _check_fence(self, offsets: Sequence[int]) -> None:
        start, self._last = self._last + 1, offsets[-1]
        if self._last - start + 1 == len(offsets):
            return
        for found in self._log.read(start, self._last):
            if found is not None:
                record = self._decoded(found[1])
                if record.kind == "claim" and record.author != self._author:
                    raise FencedError(f"{self._where}: claimed by another at offset {found[0]}")

    def _decoded(self, value: bytes) -> _Record:
        try:
            record = _DECODER.decode(value)
        except msgspec.DecodeError as error:
            raise StateFormatError(
                f"a record of the state cannot be read: {error}",
                where=self._where,
                hint="Only streamcal may write to this topic; run the release that wrote it if that is a later one.",
            ) from error
        if record.format > FORMAT:
            raise StateFormatError(
                f"the state was written in format {record.format}, this release knows {FORMAT}",
                where=self._where,
                hint="Run the release that wrote it, or a later one.",
            )
        return record
