"""A log that one writer at a time owns: claims, fencing, chunks, snapshots.

Rules
-----
- Who wants to own the log appends a *claim* under an author id never used before, and takes up what was written up to
  that claim's offset. The highest claim owns the log.
- Every record says who wrote it and its place in that author's sequence. A reader drops records of anyone but the
  author of the last claim before them, *then* judges whether sequences and chunks are complete; a place seen before is
  a repetition and left aside, a place left out means that state is lost.
- After each acknowledgement the owner looks at what stands between this record and its last. A claim of another there,
  or something that was deleted (the claim, by an owner who has written two snapshots since), means that the log was
  taken over: `FencedError`, and nothing of this append may be acted on.
- An append of which it is not known whether it was stored is never tried again by the same author; the owner drops
  everything and claims again.
- A payload larger than a record is cut in chunks; it counts once all of them are there. Chunks that a crash left
  behind are dropped with their author.
- What lies before the snapshot before the last is deleted, never by age. So the log begins with a snapshot, a reset or
  a claim; one that begins with anything else has lost something.
- A *reset* takes everything before it back, and says where to begin. It may also lift the numbers of all claims after
  it (the epoch): where claims of a log that is gone are still known elsewhere, offsets alone would not outrank them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from streamcal.errors import StateFormatError
from streamcal.state.reading import (
    FORMAT,
    AppendUncertainError,
    FencedError,
    Kind,
    LogRecord,
    LogUnavailableError,
    RecordLog,
    Restored,
    Sent,
    StateLostError,
    decoded,
    read_state,
)

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

CHUNK_BYTES: Final = 900_000
"""Below the broker's usual limit of a megabyte, headers included."""

_ENCODER: Final = msgspec.msgpack.Encoder()


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
        Number of our claim, from its offset; outranks every earlier one.
    """

    def __init__(self, log: RecordLog, author: bytes, *, where: str = "", chunk_bytes: int = CHUNK_BYTES) -> None:
        self._log = log
        self._author = author
        self.where = where
        self._chunk_bytes = chunk_bytes
        self._sequence = 0
        self._last = -1
        self._delta: Sent | None = None
        self._snapshot_at: int | None = None
        self._about = b""
        self._base = 0
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
        self._about = about
        (self._last,) = self._log.send([self._record("claim", about, 0, 1)])()
        restored = Restored()
        for restored in read_state(self._log, self._last, where=self.where):
            yield restored
        self._snapshot_at, self._base = restored.snapshot_at, restored.base
        self.claim = self._base + self._last
        yield restored

    def append(self, payload: bytes) -> None:
        """Make a delta durable; raises as `finish` does."""
        self.begin(payload)
        self.finish()

    def begin(self, payload: bytes) -> None:
        """Send a delta. Until `finish` has returned nothing may follow from it, and nothing else be written.

        Raises
        ------
        AppendUncertainError
            As `finish`.
        """
        self._check_finished()
        self._delta = self._log.send(self._records("delta", payload))

    def finish(self) -> None:
        """Wait until the delta that was sent is durable.

        Raises
        ------
        FencedError
            The log has another owner; nothing may follow from this.
        AppendUncertainError
            It may or may not be stored; drop everything and take over anew.
        """
        sent, self._delta = self._delta, None
        assert sent is not None, "begun before"
        self._check_fence(sent())

    def snapshot(self, payload: bytes) -> None:
        """Make a snapshot durable, and let go of what lies before the one before it; raises as `finish` does."""
        first = self._write("snapshot", payload)
        if self._snapshot_at is not None:
            self._log.delete_before(self._snapshot_at)
        self._snapshot_at = first

    def begin_anew(self, about: bytes, payload: bytes, *, outrank: int = -1) -> int:
        """Claim the log and take back everything in it, damaged or not; raises as `finish` does.

        Parameters
        ----------
        about, payload : bytes
            What our claim says, and what is said to whoever claims the log next.
        outrank : int
            The highest claim of this log that is known anywhere; later claims have higher numbers.

        Returns
        -------
        int
            The number below which all claims are void.
        """
        self._about = about
        (self._last,) = self._log.send([self._record("claim", about, 0, 1)])()
        with contextlib.suppress(StateLostError, StateFormatError):  # a damaged log is what this is for
            for restored in read_state(self._log, self._last, where=self.where):
                self._base = restored.base
        self._base = max(self._base, outrank - self._last)
        first = self._write("reset", payload)
        self._log.delete_before(first)
        return self._base + first

    def _write(self, kind: Kind, payload: bytes) -> int:
        self._check_finished()
        offsets = self._log.send(self._records(kind, payload))()
        self._check_fence(offsets)
        return offsets[0]

    def _check_finished(self) -> None:
        assert self._delta is None, "the delta that was begun comes first: its offsets are those the fence looks at"

    def _records(self, kind: Kind, payload: bytes) -> list[bytes]:
        size = self._chunk_bytes
        chunks = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        about, base = (self._about, self._base) if kind in ("snapshot", "reset") else (b"", 0)
        return [
            self._record(kind, chunk, part, len(chunks), *((about, base) if part == 0 else ()))
            for part, chunk in enumerate(chunks)
        ]

    def _record(self, kind: Kind, payload: bytes, part: int, parts: int, about: bytes = b"", base: int = 0) -> bytes:
        record = LogRecord(FORMAT, kind, self._author, self._sequence, part, parts, payload, about, base)
        self._sequence += 1
        return _ENCODER.encode(record)

    def _check_fence(self, offsets: Sequence[int]) -> None:
        start, self._last = self._last + 1, offsets[-1]
        if offsets[0] < start:
            raise StateLostError(
                f"the topic was made anew while it was in use: offset {offsets[0]} follows {start - 1}",
                where=self.where,
                hint="Stop all processes and begin anew (`streamcal state reset`), or read the inputs again "
                "(`streamcal state rebuild`).",
            )
        if self._last - start + 1 == len(offsets):
            return
        expected = start
        for found in self._log.read(start, self._last):
            if found is None:
                continue
            offset, value = found
            if offset > expected:
                break
            expected = offset + 1
            record = decoded(value, self.where)
            if record.kind == "claim" and record.author != self._author:
                raise FencedError(f"{self.where}: claimed by another at offset {offset}")
        if expected < self._last:  # only an owner deletes, and we have deleted nothing so young
            raise FencedError(f"{self.where}: another owner has deleted what stood at offset {expected}")
