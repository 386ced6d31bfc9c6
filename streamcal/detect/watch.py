"""The alarms of one model: sealed panes fed to the detector as the watermarks allow, and what came of it.

A new map begins to serve when producers pick it up, so the evidence begins again with the first pane that has a
prediction of a higher map version: those before it were served by the old map (`versions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamcal.detect.alarm import AlarmEvent
from streamcal.detect.bets import FAULTS
from streamcal.detect.detector import Detector, DetectorSettings
from streamcal.detect.panes import WatchPanes
from streamcal.detect.sealing import Sealing, sealed_before
from streamcal.detect.triggers import ChangeTriggers
from streamcal.detect.versions import ServedVersions
from streamcal.snapshot import AlarmState, Series
from streamcal.state.trees import recorded
from streamcal.stats.cells import Cells
from streamcal.stats.layout import N_BINS
from streamcal.stream.watermark import BEGINNING

__all__ = ["AlarmRecord", "ChangeRecord", "ModelWatch", "WatchSettings"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """How one model is watched.

    Attributes
    ----------
    detector : DetectorSettings
    pane_ms, horizon_ms : int
    change_triggers : bool
        Whether ADWIN and Page-Hinkley watch the whole model beside it.
    """

    detector: DetectorSettings
    pane_ms: int
    horizon_ms: int
    change_triggers: bool


@recorded
@dataclass(slots=True)
class AlarmRecord:
    """An alarm in the history; `ended_ms` is None while it is in force.

    `at_ms` is when the deciding pane could be known: its end and the horizon.
    """

    at_ms: int
    series: Series
    fault: str
    evidence: float
    phi: float
    ended_ms: int | None = None


@recorded
@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change trigger fired for the whole model."""

    at_ms: int
    trigger: str


@dataclass(slots=True)
class ModelWatch:
    """Weighs the sealed panes of a model, each once, in order.

    Guarantee: evidence, alarms and their times are a function of the logs.

    Attributes
    ----------
    alarms : list of AlarmRecord
        Every alarm raised, oldest first.
    changes : list of ChangeRecord
    weighed_before : int or None
        Every pane below it was weighed or was empty.
    """

    STATE: ClassVar = ("detector", "alarms", "changes", "weighed_before", "_active", "_versions", "_version", "_day")
    """Not the change triggers, which begin again with the process, nor the sealing, which follows from watermarks."""

    settings: WatchSettings
    model: int
    sources: Iterable[int]
    detector: Detector = field(init=False)
    alarms: list[AlarmRecord] = field(default_factory=list)
    changes: list[ChangeRecord] = field(default_factory=list)
    weighed_before: int | None = None
    _active: dict[int, AlarmRecord] = field(default_factory=dict)
    _versions: ServedVersions = field(default_factory=ServedVersions)
    _version: int | None = None
    _day: int | None = None
    _sealing: Sealing = field(init=False)
    _triggers: ChangeTriggers | None = field(init=False)

    def __post_init__(self) -> None:
        self.detector = Detector(self.settings.detector)
        self._sealing = Sealing(self.sources)
        self._triggers = ChangeTriggers() if self.settings.change_triggers else None

    def state_loaded(self) -> None:
        """Let the alarms in force be the entries of the history again."""
        told = {(record.at_ms, record.series, record.fault): record for record in self.alarms}
        self._active = {n: told[record.at_ms, record.series, record.fault] for n, record in self._active.items()}

    def note_versions(self, pane: int, version: Ints) -> None:
        """Map versions that predictions of a pane carried."""
        self._versions.note(np.full(len(version), pane), version)

    def follow(self, sources: Iterable[int]) -> None:
        """Wait for these source partitions from now on."""
        held = self._sealing.state()
        self._sealing = Sealing.from_state({source: held.get(source) for source in sources})

    def note_served(self, time_ms: Ints, version: Ints) -> None:
        """Predictions of these times, none of them late, were served by these map versions; shape (n,) each."""
        self._versions.note(time_ms // self.settings.pane_ms, version)

    def advance(self, watermarks: Mapping[int, tuple[int, int]], panes: WatchPanes) -> None:
        """Weigh what has been sealed.

        Parameters
        ----------
        watermarks : mapping
            Source partition to its prediction and outcome watermark, `BEGINNING` for a log without events yet.
        panes : WatchPanes
            Panes that were weighed are dropped from it.
        """
        for source, (prediction_ms, outcome_ms) in watermarks.items():
            if min(prediction_ms, outcome_ms) <= BEGINNING:
                continue
            sealed = sealed_before(prediction_ms, outcome_ms, self.settings.horizon_ms, self.settings.pane_ms)
            self._sealing.seal(source, sealed)
        before = self._sealing.before
        if before is None or (self.weighed_before is not None and before <= self.weighed_before):
            return
        store = panes.of_model(self.model)
        # What a source that joined late and behind brings of panes weighed before is left out.
        first = min(store.panes(), default=before) if self.weighed_before is None else self.weighed_before
        for pane, held in store.each(first, before):
            cells = held.filled()
            if len(cells.code):
                self._weigh(pane, cells, panes)
        self.weighed_before = before
        store.drop_before(before)

    def states(self, series: Ints) -> list[AlarmState]:
        """How `series` stand."""
        found = self.detector.evidence(series)
        return [
            AlarmState(
                evidence=float(found.evidence[i]),
                threshold=float(found.threshold[i]),
                leading=FAULTS[found.leading[i]] if found.leading[i] >= 0 else None,
                active=FAULTS[found.active[i]] if found.active[i] >= 0 else None,
                phi=float(found.phi[i]),
            )
            for i in range(len(series))
        ]

    @property
    def blocking(self) -> int | None:
        """The source partition that the next pane waits for."""
        return self._sealing.blocking

    @property
    def sealed_until_ms(self) -> int | None:
        """Prediction time up to which everything is sealed by all sources."""
        before = self._sealing.before
        return None if before is None else before * self.settings.pane_ms

    def _weigh(self, pane: int, cells: Cells, panes: WatchPanes) -> None:
        self._begin_day(pane, panes)
        self._restart_before(pane)
        cells = panes.weigh(self.model, pane, cells)
        series, bins = cells.code // N_BINS, cells.code % N_BINS
        self._note(self.detector.update_cells(pane, series, bins, cells.values), panes)
        if self._triggers is not None:
            mine = series == panes.series.whole(self.model)
            fired = self._triggers.update(bins[mine], cells.values[mine])
            self.changes += [ChangeRecord(self._known_ms(pane), trigger) for trigger in fired]

    def _begin_day(self, pane: int, panes: WatchPanes) -> None:
        """With the first pane of a day, drop series that were quiet for a month; their alarms end."""
        day = pane // panes.panes_per_day
        if day == self._day:
            return
        self._day = day
        first = day * panes.panes_per_day
        quiet = panes.forget_quiet(self.model, first)
        self.detector.forget(quiet)
        for number in quiet.tolist():
            if (record := self._active.pop(number, None)) is not None:
                record.ended_ms = self._known_ms(first - 1)

    def _restart_before(self, pane: int) -> None:
        """Begin the evidence of every series again where a higher map version begins to serve."""
        version, before = self._versions.take_until(pane), self._version
        if version is None or (before is not None and version <= before):
            return
        self._version = version
        if before is not None:
            self.detector.restart(np.arange(len(self.detector.panes)))
            if self._triggers is not None:
                self._triggers.restart()

    def _note(self, events: list[AlarmEvent], panes: WatchPanes) -> None:
        # By label, not by number: numbers are given by arrival. A clearing stays before the alarm in its place.
        for event in sorted(events, key=lambda event: panes.series.label(event.series)):
            at_ms = self._known_ms(event.pane)
            if event.raised:
                record = AlarmRecord(at_ms, panes.series.label(event.series), event.fault, event.evidence, event.phi)
                self._active[event.series] = record
                self.alarms.append(record)
            elif (ended := self._active.pop(event.series, None)) is not None:
                ended.ended_ms = at_ms

    def _known_ms(self, pane: int) -> int:
        return (pane + 1) * self.settings.pane_ms + self.settings.horizon_ms
