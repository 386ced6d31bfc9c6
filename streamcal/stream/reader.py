"""One partition's two logs, decoded: watermarks per record and cuts at moments of event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.events import OutcomeBatch, PredictionBatch
from streamcal.stream.watermark import Watermark

__all__ = ["LogReader", "Read"]

Ints = NDArray[np.int64]
Batch = TypeVar("Batch", PredictionBatch, OutcomeBatch)


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
