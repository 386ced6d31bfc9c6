"""One partition's two logs, decoded: watermarks per record and cuts at moments of event time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.events import OutcomeBatch, PredictionBatch, Record
from streamcal.stream.watermark import Watermark

__all__ = ["Log", "LogReader", "Read", "Reading", "Slice"]

Ints = NDArray[np.int64]
Log = tuple[str, int]
"""Topic and partition."""
Batch = TypeVar("Batch", PredictionBatch, OutcomeBatch)


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one partition of one input topic.

    Attributes
    ----------
    topic : {"predictions", "outcomes"}
    order : int64 array, shape (records,), or None
        Place of each record in the order in which all slices of one call are to be read (ascending);
        None: the whole slice after the slices before it.
    """

    topic: str
    partition: int
    records: Sequence[Record]
    order: NDArray[np.int64] | None = None


@dataclass(slots=True)
class Read(Generic[Batch]):
    """A decoded slice of one log and how far it was taken.

    Attributes
    ----------
    batch : PredictionBatch or OutcomeBatch
    before : int64 array
        The log's watermark just before each accepted row.
    after : int64 array
        The log's watermark just after each event that moves the clock; non-decreasing.
    order : int64 array or None
        Place of each record in the order of reading over all logs; None when the slice is read whole,
        after the slices before it.
    first : int
        Place of the first record when `order` is None.
    """

    batch: Batch
    before: Ints
    after: Ints
    records: int
    order: Ints | None
    first: int
    taken_records: int = 0
    taken_rows: int = 0
    taken_clock: int = 0

    def place(self, record: int) -> int:
        """Place of a record in the common order."""
        return self.first + record if self.order is None else int(self.order[record])

    def passing(self, moment_ms: int) -> int | None:
        """Place of the first untaken record after which the watermark is past `moment_ms`, or None."""
        found = int(np.searchsorted(self.after, moment_ms, side="right"))
        found = max(found, self.taken_clock)
        if found >= len(self.after):
            return None
        return self.place(int(self.batch.clock_row[found]))

    def take(self, place: int | None) -> tuple[Batch, Ints]:
        """The untaken accepted rows up to and with `place` (None: all), with their watermarks."""
        stop = self.records
        if place is not None:
            if self.order is None:
                stop = min(max(place + 1 - self.first, self.taken_records), self.records)
            else:
                stop = int(np.searchsorted(self.order, place, side="right"))
        self.taken_records = stop
        start, self.taken_rows = self.taken_rows, int(np.searchsorted(self.batch.row, stop, side="left"))
        self.taken_clock = int(np.searchsorted(self.batch.clock_row, stop, side="left"))
        return self.batch.span(start, self.taken_rows), self.before[start : self.taken_rows]

    @property
    def reached(self) -> int | None:
        """The watermark after what was taken; None if nothing moved it."""
        return int(self.after[self.taken_clock - 1]) if self.taken_clock else None


class Reading:
    """The slices of one call, at most one per log, read together piece by piece."""

    def __init__(self) -> None:
        self._reads: dict[Log, Read[PredictionBatch] | Read[OutcomeBatch]] = {}

    def add(self, log: Log, read: Read[PredictionBatch] | Read[OutcomeBatch]) -> None:
        """Add the slice of one more log."""
        assert log not in self._reads, "one slice per log and call"
        self._reads[log] = read

    def passing(self, moment_ms: int, waiting: Iterable[Log]) -> int | None:
        """Place of the record with which the last of the logs `waiting` passes `moment_ms`, or None if one does not."""
        place = None
        for log in waiting:
            passing = self._reads[log].passing(moment_ms) if log in self._reads else None
            if passing is None:
                return None
            place = passing if place is None else max(place, passing)
        return place

    def take(self, place: int | None) -> Iterator[tuple[Log, PredictionBatch | OutcomeBatch, Ints, int | None]]:
        """Of each log the untaken rows up to and with `place` (None: all), their watermarks, and its watermark then."""
        for log, read in self._reads.items():
            batch, watermark = read.take(place)
            yield log, batch, watermark, read.reached


class LogReader:
    """Watermark of one (topic, partition), and the rules for reading a decoded slice against it."""

    def __init__(self, out_of_order_ms: int) -> None:
        self.watermark = Watermark(out_of_order_ms)

    def read(self, batch: Batch, records: int, order: Ints | None, first: int) -> Read[Batch]:
        """Prepare a slice for taking."""
        at = np.searchsorted(batch.clock_row, batch.row, side="left")
        return Read(
            batch=batch,
            before=self.watermark.before(batch.clock_ms)[at] if len(at) else np.empty(0, dtype=np.int64),
            after=self.watermark.after(batch.clock_ms) if len(batch.clock_ms) else np.empty(0, dtype=np.int64),
            records=records,
            order=order,
            first=first,
        )
