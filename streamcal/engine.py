"""The machine in the middle: slices of records and ticks in, commands and snapshots out.

Pure: no clock, no I/O, no thread. One instance serves all models and all assigned partitions.

Everything that depends on time happens at *moments* of the model's event time (the lowest watermark over
both topics and all partitions): full UTC hours for the history, multiples of ``refit.every`` for refits.
A batch is cut at the record with which event time passes a moment, so what happens there does not depend
on how records were batched, and a map made there applies from the next record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.loop import ModelLoop, PublishMap
from streamcal.published import Publisher
from streamcal.snapshot import Snapshot
from streamcal.stats.aggregate import Aggregate
from streamcal.stats.layout import SCORE_CLIP
from streamcal.stats.series import SeriesTable
from streamcal.stream.changes import RowChanges
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.events import TOPICS, Names, OutcomeBatch, PredictionBatch, Record
from streamcal.stream.join import JoinTask, ModelRules
from streamcal.stream.reader import LogReader, Read
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import BEGINNING, END
from streamcal.settings import EngineSettings

__all__ = ["Engine", "Slice"]

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive records of one partition of one input topic.

    Attributes
    ----------
    topic : {"predictions", "outcomes"}
    order : int64 array or None
        Place of each record in the order in which all slices of one call are to be read (ascending);
        None: the whole slice after the slices before it.
    """

    topic: str
    partition: int
    records: Sequence[Record]
    order: NDArray[np.int64] | None = None


class Engine:
    """Folds events into counts, and runs the scheduled refit.

    Guarantees: counts and counters are a function of the logs, whatever the batching and interleaving;
    a snapshot is immutable.

    Parameters
    ----------
    settings : EngineSettings
    partitions : iterable of int
        The partition numbers this engine joins.
    on_history : callable, optional
        Called with each full UTC hour (ms) that event time passes, windows ending there.

    Attributes
    ----------
    event_time_ms : int or None
        The model's event time; None until every log has had an event.
    first_ms, last_ms : int or None
        Earliest and latest event time read.
    """

    def __init__(
        self,
        settings: EngineSettings,
        partitions: Iterable[int],
        *,
        on_history: Callable[[int], None] | None = None,
    ) -> None:
        self._settings = settings
        self.names = Names(settings.dimensions)
        self.tally = Tally()
        self._predictions = PredictionDecoder(settings.prediction_fields, self.names, **settings.prediction_limits())
        self._outcomes = OutcomeDecoder(settings.outcome_fields, self.names, **settings.outcome_limits())
        self._tasks: dict[int, JoinTask] = {}
        self._logs: dict[tuple[str, int], LogReader] = {}
        series = SeriesTable(self.names, settings.cuts, settings.max_segments)
        self.aggregate = Aggregate(settings.aggregate, series, self._at_maturity)
        self.loops: dict[int, ModelLoop] = {}
        self.published = Publisher(settings, self.names, self.aggregate, self.tally)
        self._on_history = on_history
        self.event_time_ms: int | None = None
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self._read: Counter[tuple[str, int]] = Counter()
        self._commands: list[PublishMap] = []
        for name in settings.models:
            self.loop(self.names.model(name))
        self.assign(partitions)

    def assign(self, partitions: Iterable[int]) -> None:
        """Join these partitions from now on; those already joined keep their state."""
        wanted = set(partitions)
        for gone in self._tasks.keys() - wanted:
            del self._tasks[gone]
        for partition in sorted(wanted - self._tasks.keys()):
            self._tasks[partition] = JoinTask(
                skew_ms=self._settings.skew_ms,
                pane_ms=self._settings.aggregate.pane_ms,
                score_clip=SCORE_CLIP,
                rules=self._rules,
                tally=self.tally,
            )
        self._logs = {
            (topic, partition): self._logs.get((topic, partition)) or LogReader(self._settings.out_of_order_ms)
            for topic in TOPICS
            for partition in sorted(wanted)
        }

    def handle(self, slices: Sequence[Slice]) -> list[PublishMap]:
        """Fold `slices` (at most one per log) and return what is to be done outside."""
        reads = self._decode(slices)
        while True:
            place = self._next_cut(reads)
            self._take(reads, place)
            self._tick()
            if place is None:
                break
        commands, self._commands = self._commands, []
        return commands

    def advance_idle(self, topic: str, partition: int, to_ms: int) -> list[PublishMap]:
        """Move an idle partition's watermark to `to_ms`, as if an event had said so."""
        self._logs[topic, partition].watermark.advance(to_ms)
        self._advance_tasks([partition])
        self._tick()
        commands, self._commands = self._commands, []
        return commands

    def drain(self) -> None:
        """Release and settle everything, as if time had passed every horizon; windows and refits stay."""
        for task in self._tasks.values():
            task.advance(END, END)
            self._fold(task)

    def watermark(self, topic: str, partition: int) -> int | None:
        """Event time of one log in ms, or None before its first event."""
        value = self._logs[topic, partition].watermark.value
        return value if value > BEGINNING else None

    def snapshot(self, *, lag: dict[tuple[str, int], int] | None = None) -> Snapshot:
        """The immutable picture of this moment."""
        return self.published.snapshot(
            event_time_ms=self.event_time_ms,
            loops=self.loops,
            watermarks={log: w for log in self._logs if (w := self.watermark(*log)) is not None},
            lag=lag or {},
            pending_bytes=sum(task.nbytes for task in self._tasks.values()),
        )

    @property
    def logs(self) -> list[tuple[str, int]]:
        """Every (topic, partition) joined here."""
        return list(self._logs)

    def records_read(self, topic: str, partition: int) -> int:
        """Records of one log handled so far."""
        return self._read[topic, partition]

    @property
    def remembered(self) -> int:
        """Predictions remembered over all partitions, released ones included."""
        return sum(task.remembered for task in self._tasks.values())

    def loop(self, model: int) -> ModelLoop:
        """The refit loop of a model index."""
        loop = self.loops.get(model)
        if loop is None:
            name = self.names.models[model]
            loop = ModelLoop(self._settings.loop(name), model, name, self.aggregate)
            self.loops[model] = loop
            self._commands.extend(loop.start())
        return loop

    def _decode(self, slices: Sequence[Slice]) -> list[tuple[tuple[str, int], Read[PredictionBatch] | Read[OutcomeBatch]]]:
        reads: list[tuple[tuple[str, int], Read[PredictionBatch] | Read[OutcomeBatch]]] = []
        first = 0
        for piece in slices:
            log = self._logs[piece.topic, piece.partition]
            read: Read[PredictionBatch] | Read[OutcomeBatch]
            if piece.topic == "predictions":
                predictions = self._predictions.decode(piece.records)
                self.tally.add("clipped", predictions.clipped)
                read = log.read(predictions, len(piece.records), piece.order, first)
            else:
                read = log.read(self._outcomes.decode(piece.records), len(piece.records), piece.order, first)
            self.tally.add("ignored", read.batch.ignored)
            for rejection in read.batch.rejected:
                self.tally.rejected[piece.topic, rejection.reason] += 1
            self._note_span(read.batch.clock_ms)
            self._read[piece.topic, piece.partition] += len(piece.records)
            first += len(piece.records)
            reads.append(((piece.topic, piece.partition), read))
        return reads

    def _note_span(self, clock_ms: NDArray[np.int64]) -> None:
        if len(clock_ms):
            first, last = int(clock_ms.min()), int(clock_ms.max())
            self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
            self.last_ms = last if self.last_ms is None else max(self.last_ms, last)

    def _next_cut(self, reads: list[tuple[tuple[str, int], Read[PredictionBatch] | Read[OutcomeBatch]]]) -> int | None:
        """Place of the record with which event time passes the next moment, or None if none here does."""
        moment = self._next_moment()
        waiting = {log for log, reader in self._logs.items() if reader.watermark.value <= moment}
        by_log = dict(reads)
        place = -1
        for log in waiting:
            passing = by_log[log].passing(moment) if log in by_log else None
            if passing is None:
                return None
            place = max(place, passing)
        return place if place >= 0 else None

    def _next_moment(self) -> int:
        if self.event_time_ms is None:
            return BEGINNING
        now = self.event_time_ms
        periods = {HOUR_MS} | {loop.every_ms for loop in self.loops.values()}
        return min((now // period + 1) * period for period in periods)

    def _take(
        self, reads: list[tuple[tuple[str, int], Read[PredictionBatch] | Read[OutcomeBatch]]], place: int | None
    ) -> None:
        taken = [(log, read, *read.take(place)) for log, read in reads]
        touched = set()
        for (_, partition), _, batch, watermark in taken:
            if isinstance(batch, PredictionBatch):
                for model in np.unique(batch.model).tolist():
                    self.loop(model)
                served = self._serve(batch) if self._settings.apply_maps else batch
                self._tasks[partition].predictions(served, watermark)
        for log, read, _, _ in taken:
            if read.reached is not None:
                self._logs[log].watermark.advance(read.reached)
            touched.add(log[1])
        for (_, partition), _, batch, watermark in taken:
            if isinstance(batch, OutcomeBatch):
                stands = self._logs["predictions", partition].watermark.value
                self._tasks[partition].outcomes(batch, watermark, stands)
        self._advance_tasks(sorted(touched))

    def _serve(self, batch: PredictionBatch) -> PredictionBatch:
        """Score again through the maps in force, as a live producer would."""
        served = batch.served.copy()
        for model in np.unique(batch.model).tolist():
            mine = (batch.model == model) & ~np.isnan(batch.raw)
            served[mine] = self.loop(model).apply(batch.raw[mine])
        return batch.with_served(served)

    def _advance_tasks(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            task = self._tasks[partition]
            task.advance(
                self._logs["predictions", partition].watermark.value, self._logs["outcomes", partition].watermark.value
            )
            self._fold(task)

    def _fold(self, task: JoinTask) -> None:
        changes = task.take_changes()
        if changes:
            self.aggregate.fold(RowChanges.concatenate(changes))

    def _tick(self) -> None:
        """Let event time move to the lowest watermark, through every moment on the way."""
        lowest = min((log.watermark.value for log in self._logs.values()), default=BEGINNING)
        before = self.event_time_ms
        if lowest <= BEGINNING or (before is not None and lowest <= before):
            if before is not None:
                self.aggregate.advance(before)
            return
        if before is not None:
            for moment in self._moments(before, lowest):
                self._at_moment(moment)
        self.event_time_ms = lowest
        self.aggregate.advance(lowest)

    def _moments(self, before: int, now: int) -> list[int]:
        """Hours and refit times in (before, now]; after a long jump only those the windows still see."""
        moments: set[int] = set()
        for period, span in [(HOUR_MS, self._settings.history_ms), *((p.every_ms, p.span_ms) for p in self.loops.values())]:
            last = now // period * period
            seen = min(last, before // period * period + span + period)
            moments.update(range((before // period + 1) * period, seen + 1, period))
        return sorted(moments)

    def _at_moment(self, moment: int) -> None:
        self.aggregate.advance(moment)
        for loop in self.loops.values():
            if moment % loop.every_ms == 0:
                self._commands.extend(loop.attempt(moment))
        if moment % HOUR_MS == 0 and self._on_history is not None:
            self._on_history(moment)

    def _rules(self, model: int) -> ModelRules:
        return self._settings.rules(self.names.models[model])

    def _at_maturity(self, model: int) -> bool:
        return self._rules(model).positives_only
