"""All sources and the aggregator in one: slices of records and ticks in, commands and snapshots out.

Pure: no clock, no I/O, no thread. `replay` and `demo` run on it; `run` takes the same sources and the same aggregator
apart (`streamcal.worker`, `streamcal.merge`).

Here a batch is cut at the record with which event time passes a moment, so that a map made there applies from the next
record, however records were batched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.aggregator import Aggregator
from streamcal.maps.loop import ModelLoop, PublishMap
from streamcal.moments import next_moment
from streamcal.settings import EngineSettings
from streamcal.snapshot import Snapshot
from streamcal.stats.layout import SCORE_CLIP
from streamcal.stream.classes import normalised_rows
from streamcal.stream.clocks import Clocks
from streamcal.stream.decoding import Decoding
from streamcal.stream.events import NO_VERSION, Names, OutcomeBatch, PredictionBatch
from streamcal.stream.join import JoinTask
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
    decoding : Decoding
        What was read and what was set aside.
    aggregate, published, loops, watches, signs
        Of the aggregator.
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
            *settings.decoders(self.names),
            self._clocks,
            self.tally,
        )
        self._aggregator = Aggregator(settings, self.names, self.tally, on_history=on_history)
        self.aggregate, self.published = self._aggregator.aggregate, self._aggregator.published
        self.loops, self.watches, self.signs = self._aggregator.loops, self._aggregator.watches, self._aggregator.signs
        self.assign(partitions)

    @property
    def event_time_ms(self) -> int | None:
        """The model's event time; None until every log has had an event."""
        return self._aggregator.event_time_ms

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
                rules=self._aggregator.rules,
                tally=self.tally,
            )
        self._clocks.assign(wanted)
        self._aggregator.follow(wanted)

    def adopt(self, published: Mapping[str, Sequence[bytes]]) -> None:
        """Go on from the map documents published before, by key; to be called before anything is handled.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        self._aggregator.adopt(published)

    def handle(self, slices: Sequence[Slice]) -> list[PublishMap]:
        """Fold `slices` (at most one per log) and return what is to be done outside."""
        self._aggregator.start()
        reading = self.decoding.decode(slices)
        while True:
            place = self._next_cut(reading)
            self._go_on(self._take(reading, place))
            if place is None:
                return self._aggregator.take_commands()

    def advance_idle(self, topic: str, partition: int, to_ms: int) -> list[PublishMap]:
        """Move an idle partition's watermark to `to_ms`, as if an event had said so."""
        self._clocks.advance((topic, partition), to_ms)
        self._go_on({partition} | self._clocks.follow())
        return self._aggregator.take_commands()

    def end(self, topic: str, partition: int) -> list[PublishMap]:
        """Nothing more comes from this log: it is idle for good and follows the others of its topic."""
        self._clocks.end((topic, partition))
        self._go_on(self._clocks.follow())
        return self._aggregator.take_commands()

    def drain(self) -> None:
        """Release and settle everything, as if time had passed every horizon; windows and refits stay."""
        for task in self._tasks.values():
            task.advance(END, END)
        self._fold(self._tasks.values())
        self._aggregator.drain(dict.fromkeys(self._tasks, (END, END)))

    def watermark(self, topic: str, partition: int) -> int | None:
        """Event time of one log in ms, or None before its first event."""
        value = self._clocks.value(topic, partition)
        return value if value > BEGINNING else None

    def snapshot(self, *, lag: Mapping[Log, int] | None = None) -> Snapshot:
        """The immutable picture of this moment."""
        return self._aggregator.snapshot(
            outcomes_ms=self._clocks.lowest_of("outcomes"),
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
        return self._aggregator.loop(model)

    def _next_cut(self, reading: Reading) -> int | None:
        """Place of the record with which event time passes the next moment, or None if none here does."""
        now = self.event_time_ms
        moment = BEGINNING if now is None else next_moment(now, self._aggregator.repeats())
        return reading.passing(moment, self._clocks.waiting(moment))

    def _take(self, reading: Reading, place: int | None) -> set[int]:
        """Join what was read up to `place`: predictions first, for an outcome looks at where their log stands.

        Returns the partitions concerned.
        """
        outcomes: list[tuple[int, OutcomeBatch, NDArray[np.int64]]] = []
        touched = set()
        for (topic, partition), batch, watermark, reached in reading.take(place):
            if isinstance(batch, PredictionBatch):
                served = self._serve(batch)
                told = watermark <= served.time_ms
                self._aggregator.note_served(served.model[told], served.time_ms[told], served.map_version[told])
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
            served[mine] = loop.apply(batch.raw[mine], batch.profile[mine], self.names)
            champion = loop.state()
            version[mine] = NO_VERSION if champion is None else champion.version
        if self._settings.classes:
            scored = ~np.isnan(batch.raw)
            served[scored] = normalised_rows(served[scored], batch.row[scored])
        return batch.with_served(served, version)

    def _go_on(self, partitions: Iterable[int]) -> None:
        """Do what follows from watermarks of `partitions` having moved."""
        tasks = [(partition, self._tasks[partition]) for partition in sorted(partitions)]
        for partition, task in tasks:
            task.advance(*self._marks(partition))
        self._fold(task for _, task in tasks)
        self._aggregator.go_on({partition: self._marks(partition) for partition in self._tasks})

    def _marks(self, partition: int) -> tuple[int, int]:
        return self._clocks.value("predictions", partition), self._clocks.value("outcomes", partition)

    def _fold(self, tasks: Iterable[JoinTask]) -> None:
        tasks = list(tasks)
        changes = [part for task in tasks for part in task.take_changes()]
        self._aggregator.fold(changes, [task.take_arrivals() for task in tasks])
