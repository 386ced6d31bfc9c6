"""Slices of records in, decoded reads against their logs' clocks out; what cannot be used is counted with its place."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.clocks import Clocks
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import OutcomeBatch, PredictionBatch, Rejected
from streamcal.stream.reader import Log, Read, Reading, Slice
from streamcal.stream.tally import Tally

__all__ = ["Decoding"]

_RECENT = 10
"""Rejections kept to be told of: enough to find a faulty producer, few enough for any log."""


class Decoding:
    """Decodes both topics and keeps count of what was read.

    Attributes
    ----------
    first_ms, last_ms : int or None
        Earliest and latest event time read.
    records : Counter
        Records read, by log.
    rejections : deque of Rejected
        The latest events set aside; whoever tells of them takes them out.
    """

    def __init__(self, predictions: PredictionDecoder, outcomes: OutcomeDecoder, clocks: Clocks, tally: Tally) -> None:
        self._predictions = predictions
        self._outcomes = outcomes
        self._clocks = clocks
        self._tally = tally
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.records: Counter[Log] = Counter()
        self.rejections: deque[Rejected] = deque(maxlen=_RECENT)

    def decode(self, slices: Sequence[Slice]) -> Reading:
        """Decode `slices`, at most one per log, to be taken in their order."""
        reading = Reading()
        first = 0
        for piece in slices:
            read = self._read(piece, first)
            self._tally.add("ignored", read.batch.ignored)
            self._set_aside(piece, read.batch)
            self._note_span(read.batch.clock_ms)
            self.records[piece.topic, piece.partition] += len(piece.records)
            first += len(piece.records)
            reading.add((piece.topic, piece.partition), read)
        return reading

    def _read(self, piece: Slice, first: int) -> Read[PredictionBatch] | Read[OutcomeBatch]:
        log, count = self._clocks.reader((piece.topic, piece.partition)), len(piece.records)
        if piece.topic == "predictions":
            predictions = self._predictions.decode(piece.records)
            self._tally.add("clipped", predictions.clipped)
            return log.read(predictions, count, piece.order, first)
        return log.read(self._outcomes.decode(piece.records), count, piece.order, first)

    def _set_aside(self, piece: Slice, batch: PredictionBatch | OutcomeBatch) -> None:
        self._tally.rejected.update((piece.topic, rejection.reason) for rejection in batch.rejected)
        self.rejections.extend(
            Rejected(piece.topic, piece.partition, piece.records[rejection.row].offset, rejection.reason)
            for rejection in batch.rejected[-_RECENT:]
        )

    def _note_span(self, clock_ms: NDArray[np.int64]) -> None:
        if len(clock_ms):
            first, last = int(clock_ms.min()), int(clock_ms.max())
            self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
            self.last_ms = last if self.last_ms is None else max(self.last_ms, last)
