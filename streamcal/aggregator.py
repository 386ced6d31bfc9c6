"""Where the counts of all sources meet: windows, alarms, refits and what is shown of them.

Pure: no clock, no I/O, no thread. Everything that depends on time happens at *moments* of the model's event time (the
lowest watermark over both topics and all sources): full UTC hours for the history, multiples of ``refit.every`` for
refits. What happens there reads only what is final by then, so it does not depend on how far event time moved at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.detect.panes import WatchPanes
from streamcal.detect.watch import ModelWatch
from streamcal.early.signs import EarlySigns
from streamcal.errors import StreamcalError
from streamcal.maps.loop import MapRequest, ModelLoop, PublishMap, shadowed_model
from streamcal.maps.wanted import Attempted
from streamcal.moments import HOUR_MS, Repeat, moments
from streamcal.published import WHOLE, Publisher
from streamcal.settings import EngineSettings
from streamcal.snapshot import Snapshot
from streamcal.stats.aggregate import Aggregate
from streamcal.stats.cells import Cells
from streamcal.stats.scored import Scored
from streamcal.stats.segment_panes import SegmentPanes
from streamcal.stats.series import SAFETY_FACTOR, SeriesTable
from streamcal.stream.arrivals import Arrivals
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import Names
from streamcal.stream.rules import ModelRules
from streamcal.stream.tally import Tally
from streamcal.stream.watermark import BEGINNING

__all__ = ["Aggregator", "Marks"]

Ints = NDArray[np.int64]
Marks = Mapping[int, tuple[int, int]]
"""Source to its prediction and outcome watermark, `BEGINNING` for a log without events yet."""


class Aggregator:
    """Counts, windows, alarms and refit loops of all models.

    Guarantee: a snapshot is immutable; alarms and refits are a function of the logs.

    Parameters
    ----------
    settings : EngineSettings
    names : Names
    tally : Tally
        Counters shown in snapshots.
    on_history : callable, optional
        Called with each full UTC hour (ms) that event time passes, windows ending there.

    Attributes
    ----------
    event_time_ms : int or None
        The model's event time; None until every log has had an event.
    """

    STATE = ("names", "aggregate", "loops", "watches", "watch_panes", "signs", "event_time_ms", "_started", "_alarms")

    def __init__(
        self,
        settings: EngineSettings,
        names: Names,
        tally: Tally,
        *,
        on_history: Callable[[int], None] | None = None,
    ) -> None:
        self._settings = settings
        self.names = names
        self._tally = tally
        series = SeriesTable(names, settings.cuts, settings.max_segments)
        self.aggregate = Aggregate(
            settings.aggregate, series, lambda model: self.rules(model).positives_only, self._segment_panes
        )
        self.loops: dict[int, ModelLoop] = {}
        self.watches: dict[int, ModelWatch] = {}
        self.watch_panes: dict[int, WatchPanes] = {}
        self.signs = EarlySigns(
            names,
            settings.cuts,
            settings.max_segments,
            settings.aggregate.pane_ms,
            settings.aggregate.windows,
            self.rules,
            settings.min_count,
        )
        self.published = Publisher(settings, names, self.aggregate, tally, self.watches, self.watch_panes, self.signs)
        self._on_history = on_history
        self.event_time_ms: int | None = None
        self._commands: list[PublishMap] = []
        self._sources: list[int] = []
        self._started = False
        self._alarms: dict[int, int] = {}
        for name in settings.models:
            self.loop(names.model(name))

    def state_child(self, name: str, key: int) -> ModelLoop | ModelWatch | WatchPanes:
        """What is kept of a model index."""
        self.loop(key)
        held: ModelLoop | ModelWatch | WatchPanes = getattr(self, name)[key]
        return held

    def follow(self, sources: Iterable[int]) -> None:
        """Wait for these sources from now on."""
        self._sources = sorted(sources)
        for watch in self.watches.values():
            watch.follow(self._sources)

    def adopt(self, published: Mapping[str, Sequence[bytes]]) -> None:
        """Go on from the map documents published before, by key; to be called before anything is counted.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        for key, documents in published.items():
            model = shadowed_model(key)
            loop = self.loop(self.names.model(key if model is None else model))
            (loop.adopt if model is None else loop.adopt_shadow)(documents)

    def start(self) -> None:
        """Put the maps of day 0 in force before the first event, where none was published before."""
        if not self._started:
            self._started = True
            for loop in self.loops.values():
                self._commands.extend(loop.start())

    def take_commands(self) -> list[PublishMap]:
        """What is to be done outside, since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def loop(self, model: int) -> ModelLoop:
        """The refit loop of a model index."""
        loop = self.loops.get(model)
        if loop is None:
            name, settings = self.names.models[model], self._settings
            fits, segments = self.aggregate.fits(model), self.aggregate.segments(model)
            loop = self.loops[model] = ModelLoop(settings.loop(name), name, fits, segments)
            self.watches[model] = ModelWatch(settings.watch(name), model, self._sources)
            self.watch_panes[model] = WatchPanes(
                self.names, settings.cuts, settings.max_segments, settings.aggregate.pane_ms
            )
        return loop

    def rules(self, model: int) -> ModelRules:
        """Join rules of a model index."""
        return self._settings.rules(self.names.models[model])

    def ask(self, model: str, request: MapRequest) -> Attempted:
        """Do what a person asks of the maps of a model, now.

        Raises
        ------
        StreamcalError
            There is no such model, event time has not begun, or the map asked for is not known.
        """
        if model not in self.names.models or self.event_time_ms is None:
            what = f"there is no model {model!r}" if self.event_time_ms is not None else "no event has been seen yet"
            raise StreamcalError(what, hint=f"models seen: {', '.join(self.names.models) or 'none'}")
        asked = self.loop(self.names.model(model)).manual(self.event_time_ms, request)
        self._commands.extend(asked.commands)
        return asked

    def repeats(self) -> set[Repeat]:
        """What happens at moments, and how long after the last event it still has something to say."""
        pane_ms = self._settings.aggregate.pane_ms
        refits = {Repeat(loop.every_ms, loop.span_ms + pane_ms) for loop in self.loops.values()}
        return refits | {Repeat(HOUR_MS, self._settings.history_ms + pane_ms)}

    def note_version(self, model: int, pane: int, version: int) -> None:
        """The highest map version of the predictions of a pane, none of them late."""
        self.watches[model].note_versions(pane, self._promoted(model, np.array([version])))

    def note_served(self, model: NDArray[np.int32], time_ms: Ints, version: Ints) -> None:
        """Predictions, none of them late, were served by these map versions; shape (n,) each."""
        for index in np.unique(model).tolist():
            mine = model == index
            self.watches[index].note_served(time_ms[mine], self._promoted(index, version[mine]))

    def fold(self, changes: Sequence[RowChanges], arrivals: Iterable[Arrivals]) -> None:
        """Count what joins told."""
        self.signs.fold(arrivals)
        if changes:
            folded = RowChanges.concatenate(changes)
            self._fold_watched(folded, self.aggregate.fold(folded))

    def add_watch(self, model: int, pane: Ints, cells: Cells) -> None:
        """Count served cells by prediction-time pane, shape (n,), as far as their panes have not been weighed."""
        weighed = self.watches[model].weighed_before
        if weighed is not None:
            open_ = pane >= weighed
            pane, cells = pane[open_], Cells(cells.code[open_], cells.values[open_])
        if len(pane):
            self.watch_panes[model].add(model, pane, cells)

    def needed_from(self, family: str, model: int) -> int:
        """First pane of a family of parts that is still of use here."""
        if family == "window":
            return BEGINNING if self.aggregate.retained_from is None else self.aggregate.retained_from
        if family == "watch":
            weighed = self.watches[model].weighed_before
            return BEGINNING if weighed is None else weighed
        if family in ("fit", "segment"):
            loop, pane_ms = self.loop(model), self._settings.aggregate.pane_ms
            return BEGINNING if self.event_time_ms is None else (self.event_time_ms - 2 * loop.span_ms) // pane_ms
        cohort, slot = self.signs.kept_from(model)
        return cohort if family == "cohort" else slot

    def go_on(self, marks: Marks) -> None:
        """Let event time, alarms and early signs follow the watermarks of the sources."""
        self.start()
        lowest = min((min(pair) for pair in marks.values()), default=BEGINNING)
        self._tick(lowest)
        self._weigh(marks)
        self.signs.advance(min((predictions for predictions, _ in marks.values()), default=BEGINNING))
        self._mature()

    def drain(self, marks: Marks) -> None:
        """Weigh and mature everything up to `marks`; windows and refits stay where event time is."""
        self._weigh(marks)
        self._mature()

    def snapshot(
        self,
        *,
        outcomes_ms: int,
        watermarks: Mapping[tuple[str, int], int],
        lag: Mapping[tuple[str, int], int],
        pending_bytes: int,
    ) -> Snapshot:
        """The immutable picture of this moment; `outcomes_ms` is the event time of the outcomes alone."""
        return self.published.snapshot(
            event_time_ms=self.event_time_ms,
            outcomes_ms=outcomes_ms,
            loops=self.loops,
            watermarks=watermarks,
            lag=lag,
            pending_bytes=pending_bytes,
        )

    def _segment_panes(self, model: int) -> SegmentPanes | None:
        """What is kept for the corrections of a model, where it has any."""
        settings, name = self._settings, self.names.models[model]
        cut = settings.corrected(name)
        if cut is None:
            return None
        series = SeriesTable(self.names, settings.cuts, SAFETY_FACTOR * settings.max_segments)
        return SegmentPanes(series, cut, settings.aggregate.pane_ms, settings.loop(name).step_ms)

    def _fold_watched(self, changes: RowChanges, served: Scored) -> None:
        """Bring served contributions to the panes of each model; every model numbers its series by itself."""
        models = np.unique(changes.model).tolist()
        if len(models) == 1:
            self.watch_panes[models[0]].fold(changes, served)
            return
        for model in models:
            rows = np.flatnonzero(changes.model == model)
            mine = Scored(np.arange(len(rows)), served.bins[rows], served.values[rows])
            self.watch_panes[model].fold(changes.take(rows), mine)

    def _promoted(self, model: int, version: Ints) -> Ints:
        """What a tracking filter publishes goes on from a promotion; the evidence of alarms goes on too."""
        return self.loops[model].promotion_of(version)

    def _tick(self, lowest: int) -> None:
        """Let event time move to the lowest watermark, through every moment on the way."""
        before = self.event_time_ms
        if lowest <= BEGINNING or (before is not None and lowest <= before):
            return
        if before is None:
            # Which log was first heard of last is chance: moments begin with the first row, not with this one.
            before = min([lowest, *self.aggregate.panes_ms()[:1]])
        repeats = self.repeats()
        # Mostly event time is just past the one moment a batch was cut at, and the rest is left aside.
        panes = self.aggregate.panes_ms() if lowest - before > min(repeats).every_ms else []
        for moment in moments(before, lowest, repeats, panes):
            self._at_moment(moment)
        self.event_time_ms = lowest
        self.aggregate.advance(lowest)

    def _at_moment(self, moment: int) -> None:
        self.aggregate.advance(moment)
        self._weigh(dict.fromkeys(self._sources, (moment, moment)))
        for model, loop in self.loops.items():
            alarmed = moment % HOUR_MS == 0 and self._alarmed(model, moment)
            if moment % loop.every_ms == 0:
                self._commands.extend(loop.attempt(moment))
            elif alarmed:
                self._commands.extend(loop.alarm(moment))
        if moment % HOUR_MS == 0 and self._on_history is not None:
            self._on_history(moment)

    def _alarmed(self, model: int, moment: int) -> bool:
        """Whether an alarm of the whole model has become known since the last full hour.

        By when it could be known, not by when it was weighed, which depends on how far the logs were read.
        """
        known = sum(record.at_ms <= moment and record.series == WHOLE for record in self.watches[model].alarms)
        before, self._alarms[model] = self._alarms.get(model, 0), known
        return known > before

    def _weigh(self, marks: Marks) -> None:
        """Let the detector weigh what every source has sealed."""
        for model, watch in self.watches.items():
            watch.advance(marks, self.watch_panes[model])

    def _mature(self) -> None:
        """Tell early signs what is sealed."""
        if self.event_time_ms is not None:
            for model, watch in self.watches.items():
                sealed_ms = watch.sealed_until_ms
                if sealed_ms is not None:
                    self.signs.mature(model, sealed_ms, self.event_time_ms)
