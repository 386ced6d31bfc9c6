"""The machine in the middle: slices of records and ticks in, commands and snapshots out.

Pure: no clock, no I/O, no thread. One instance serves all models and all assigned partitions.

Everything that depends on time happens at *moments* of the model's event time (the lowest watermark over
both topics and all partitions): full UTC hours for the history, multiples of ``refit.every`` for refits.
A batch is cut at the record with which event time passes a moment, so what happens there does not depend
on how records were batched, and a map made there applies from the next record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.detect.panes import WatchPanes
from streamcal.detect.watch import ModelWatch
from streamcal.early.signs import EarlySigns
from streamcal.maps.loop import ModelLoop, PublishMap, shadowed_model
from streamcal.moments import HOUR_MS, Repeat, moments, next_moment
from streamcal.published import Publisher
from streamcal.settings import EngineSettings
from streamcal.snapshot import Snapshot
from streamcal.stats.aggregate import Aggregate
from streamcal.stats.layout import SCORE_CLIP
from streamcal.stats.scored import Scored
from streamcal.stats.series import SeriesTable
from streamcal.stream.changes import RowChanges
from streamcal.stream.clocks import Clocks
from streamcal.stream.codec import OutcomeDecoder, PredictionDecoder
from streamcal.stream.decoding import Decoding
from streamcal.stream.events import NO_VERSION, Names, OutcomeBatch, PredictionBatch
from streamcal.stream.join import JoinTask, ModelRules
from streamcal.stream.reader import Log, Reading, Slice
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import BEGINNING, END

__all__ = ["Engine", "Slice"]


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
    decoding : Decoding
        What was read and what was set aside.
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
        self._tasks: dict[int, JoinTask] = {}
        self._clocks = Clocks(settings.out_of_order_ms)
        self.decoding = Decoding(
            PredictionDecoder(settings.prediction_fields, self.names, **settings.prediction_limits()),
            OutcomeDecoder(settings.outcome_fields, self.names, **settings.outcome_limits()),
            self._clocks,
            self.tally,
        )
        series = SeriesTable(self.names, settings.cuts, settings.max_segments)
        self.aggregate = Aggregate(settings.aggregate, series, lambda model: self._rules(model).positives_only)
        self.loops: dict[int, ModelLoop] = {}
        self.watches: dict[int, ModelWatch] = {}
        self._watch_panes: dict[int, WatchPanes] = {}
        self.signs = EarlySigns(
            self.names,
            settings.cuts,
            settings.max_segments,
            settings.aggregate.pane_ms,
            settings.aggregate.windows,
            self._rules,
            settings.min_count,
        )
        self.published = Publisher(
            settings, self.names, self.aggregate, self.tally, self.watches, self._watch_panes, self.signs
        )
        self._on_history = on_history
        self.event_time_ms: int | None = None
        self._commands: list[PublishMap] = []
        self._started = False
        for name in settings.models:
            self.loop(self.names.model(name))
        self.assign(partitions)

    def assign(self, partitions: Iterable[int]) -> None:
        """Join these partitions from now on; those already joined keep their state."""
        wanted = set(partitions)
        if wanted == self._tasks.keys():
            return
        for gone in self._tasks.keys() - wanted:
            task = self._tasks.pop(gone)
            self.tally.abandon(task.pending())
            self.signs.withdraw(task.withdraw())
        for partition in sorted(wanted - self._tasks.keys()):
            self._tasks[partition] = JoinTask(
                skew_ms=self._settings.skew_ms,
                pane_ms=self._settings.aggregate.pane_ms,
                score_clip=SCORE_CLIP,
                rules=self._rules,
                tally=self.tally,
            )
        self._clocks.assign(wanted)
        for watch in self.watches.values():
            watch.follow(sorted(wanted))

    def adopt(self, published: Mapping[str, Sequence[bytes]]) -> None:
        """Go on from the map documents published before, by key; to be called before anything is handled.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        for key, documents in published.items():
            model = shadowed_model(key)
            loop = self.loop(self.names.model(key if model is None else model))
            (loop.adopt if model is None else loop.adopt_shadow)(documents)

    def handle(self, slices: Sequence[Slice]) -> list[PublishMap]:
        """Fold `slices` (at most one per log) and return what is to be done outside."""
        self._start()
        reading = self.decoding.decode(slices)
        while True:
            place = self._next_cut(reading)
            self._go_on(self._take(reading, place))
            if place is None:
                return self._take_commands()

    def advance_idle(self, topic: str, partition: int, to_ms: int) -> list[PublishMap]:
        """Move an idle partition's watermark to `to_ms`, as if an event had said so."""
        self._clocks.advance((topic, partition), to_ms)
        self._go_on({partition} | self._clocks.follow())
        return self._take_commands()

    def end(self, topic: str, partition: int) -> list[PublishMap]:
        """Nothing more comes from this log: it is idle for good and follows the others of its topic."""
        self._clocks.end((topic, partition))
        self._go_on(self._clocks.follow())
        return self._take_commands()

    def drain(self) -> None:
        """Release and settle everything, as if time had passed every horizon; windows and refits stay."""
        for task in self._tasks.values():
            task.advance(END, END)
        self._fold(self._tasks.values())
        self._weigh(dict.fromkeys(self._tasks, (END, END)))
        self._mature()

    def watermark(self, topic: str, partition: int) -> int | None:
        """Event time of one log in ms, or None before its first event."""
        value = self._clocks.value(topic, partition)
        return value if value > BEGINNING else None

    def snapshot(self, *, lag: Mapping[Log, int] | None = None) -> Snapshot:
        """The immutable picture of this moment."""
        return self.published.snapshot(
            event_time_ms=self.event_time_ms,
            outcomes_ms=self._clocks.lowest_of("outcomes"),
            loops=self.loops,
            watermarks={log: w for log in self._clocks.logs if (w := self.watermark(*log)) is not None},
            lag=lag or {},
            pending_bytes=sum(task.nbytes for task in self._tasks.values()),
        )

    @property
    def logs(self) -> list[Log]:
        """Every (topic, partition) joined here."""
        return self._clocks.logs

    def loop(self, model: int) -> ModelLoop:
        """The refit loop of a model index."""
        loop = self.loops.get(model)
        if loop is None:
            name = self.names.models[model]
            loop = self.loops[model] = ModelLoop(self._settings.loop(name), name, self.aggregate.fits(model))
            self.watches[model] = ModelWatch(self._settings.watch(name), model, sorted(self._tasks))
            self._watch_panes[model] = WatchPanes(
                self.names, self._settings.cuts, self._settings.max_segments, self._settings.aggregate.pane_ms
            )
        return loop

    def _start(self) -> None:
        """Put the maps of day 0 in force before the first event, where none was published before."""
        if not self._started:
            self._started = True
            for loop in self.loops.values():
                self._commands.extend(loop.start())

    def _take_commands(self) -> list[PublishMap]:
        commands, self._commands = self._commands, []
        return commands

    def _next_cut(self, reading: Reading) -> int | None:
        """Place of the record with which event time passes the next moment, or None if none here does."""
        now = self.event_time_ms
        moment = BEGINNING if now is None else next_moment(now, self._repeats())
        return reading.passing(moment, self._clocks.waiting(moment))

    def _repeats(self) -> set[Repeat]:
        pane_ms = self._settings.aggregate.pane_ms
        refits = {Repeat(loop.every_ms, loop.span_ms + pane_ms) for loop in self.loops.values()}
        return refits | {Repeat(HOUR_MS, self._settings.history_ms + pane_ms)}

    def _take(self, reading: Reading, place: int | None) -> set[int]:
        """Join what was read up to `place`: predictions first, for an outcome looks at where their log stands.

        Returns the partitions concerned.
        """
        outcomes: list[tuple[int, OutcomeBatch, NDArray[np.int64]]] = []
        touched = set()
        for (topic, partition), batch, watermark, reached in reading.take(place):
            if isinstance(batch, PredictionBatch):
                served = self._serve(batch)
                self._note_versions(served, watermark)
                self._tasks[partition].predictions(served, watermark)
            else:
                outcomes.append((partition, batch, watermark))
            if reached is not None:
                self._clocks.advance((topic, partition), reached)
            touched.add(partition)
        touched |= self._clocks.follow()
        for partition, batch, watermark in outcomes:
            stands = self._clocks.value("predictions", partition)
            self._tasks[partition].outcomes(batch, watermark, stands)
        return touched

    def _serve(self, batch: PredictionBatch) -> PredictionBatch:
        """Know the models, and where asked score again through the maps in force, as a live producer would."""
        models = {model: self.loop(model) for model in np.unique(batch.model).tolist()}
        if not self._settings.apply_maps:
            return batch
        served, version = batch.served.copy(), batch.map_version.copy()
        for model, loop in models.items():
            mine = (batch.model == model) & ~np.isnan(batch.raw)
            served[mine] = loop.apply(batch.raw[mine])
            champion = loop.state()
            version[mine] = NO_VERSION if champion is None else champion.version
        return batch.with_served(served, version)

    def _note_versions(self, batch: PredictionBatch, watermark: NDArray[np.int64]) -> None:
        """Tell the watches which maps served; of late predictions nothing is told, their panes may be weighed."""
        told = watermark <= batch.time_ms
        for model in np.unique(batch.model[told]).tolist():
            mine = told & (batch.model == model)
            # What a tracking filter publishes goes on from a promotion; the evidence of alarms goes on too.
            promoted = self.loops[model].promotion_of(batch.map_version[mine])
            self.watches[model].note_served(batch.time_ms[mine], promoted)

    def _go_on(self, partitions: Iterable[int]) -> None:
        """Do what follows from watermarks of `partitions` having moved."""
        self._start()
        tasks = [(partition, self._tasks[partition]) for partition in sorted(partitions)]
        for partition, task in tasks:
            task.advance(self._clocks.value("predictions", partition), self._clocks.value("outcomes", partition))
        self._fold(task for _, task in tasks)
        self._tick()
        self._weigh({p: (self._clocks.value("predictions", p), self._clocks.value("outcomes", p)) for p in self._tasks})
        self.signs.advance(self._clocks.lowest_of("predictions"))
        self._mature()

    def _fold(self, tasks: Iterable[JoinTask]) -> None:
        tasks = list(tasks)
        self.signs.fold(task.take_arrivals() for task in tasks)
        changes = [part for task in tasks for part in task.take_changes()]
        if changes:
            folded = RowChanges.concatenate(changes)
            self._fold_watched(folded, self.aggregate.fold(folded))

    def _fold_watched(self, changes: RowChanges, served: Scored) -> None:
        """Bring served contributions to the panes of each model; every model numbers its series by itself."""
        models = np.unique(changes.model).tolist()
        if len(models) == 1:
            self._watch_panes[models[0]].fold(changes, served)
            return
        for model in models:
            rows = np.flatnonzero(changes.model == model)
            mine = Scored(np.arange(len(rows)), served.bins[rows], served.values[rows])
            self._watch_panes[model].fold(changes.take(rows), mine)

    def _tick(self) -> None:
        """Let event time move to the lowest watermark, through every moment on the way."""
        lowest = self._clocks.lowest()
        before = self.event_time_ms
        if lowest <= BEGINNING or (before is not None and lowest <= before):
            return
        if before is None:
            # Which log was first heard of last is chance: moments begin with the first row, not with this one.
            before = min([lowest, *self.aggregate.panes_ms()[:1]])
        repeats = self._repeats()
        # Mostly event time is just past the one moment a batch was cut at, and the rest is left aside.
        panes = self.aggregate.panes_ms() if lowest - before > min(repeats).every_ms else []
        for moment in moments(before, lowest, repeats, panes):
            self._at_moment(moment)
        self.event_time_ms = lowest
        self.aggregate.advance(lowest)

    def _at_moment(self, moment: int) -> None:
        self.aggregate.advance(moment)
        self._weigh(dict.fromkeys(self._tasks, (moment, moment)))
        for loop in self.loops.values():
            if moment % loop.every_ms == 0:
                self._commands.extend(loop.attempt(moment))
        if moment % HOUR_MS == 0 and self._on_history is not None:
            self._on_history(moment)

    def _weigh(self, watermarks: Mapping[int, tuple[int, int]]) -> None:
        """Let the detector weigh what every source has sealed at these (prediction, outcome) watermarks."""
        for model, watch in self.watches.items():
            watch.advance(watermarks, self._watch_panes[model])

    def _mature(self) -> None:
        """Tell early signs what is sealed."""
        if self.event_time_ms is not None:
            for model, watch in self.watches.items():
                sealed_ms = watch.sealed_until_ms
                if sealed_ms is not None:
                    self.signs.mature(model, sealed_ms, self.event_time_ms)

    def _rules(self, model: int) -> ModelRules:
        return self._settings.rules(self.names.models[model])
