"""Builds what readers see: figures of every series and window, the snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.detect.panes import WatchPanes
from streamcal.detect.watch import ModelWatch
from streamcal.early.signs import EarlySigns
from streamcal.maps.loop import ModelLoop
from streamcal.settings import EngineSettings
from streamcal.snapshot import (
    AlarmEntry,
    AlarmState,
    EarlyEstimate,
    Figures,
    MapEntry,
    MapsHeld,
    ModelSnapshot,
    Series,
    Snapshot,
    WindowFigures,
)
from streamcal.stats.aggregate import EVERYTHING, Aggregate
from streamcal.stats.cells import RAW, SERVED
from streamcal.stats.figures import figures
from streamcal.stats.reliability import reliability
from streamcal.stream.events import Names
from streamcal.stream.tally import Tally

__all__ = ["WHOLE", "Publisher", "WindowCounts"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Members = Mapping[Series, Sequence[int]]
"""Published series, and the series numbers each adds up."""
Shown = dict[int, dict[Series, list[int]]]
"""`Members` by model index."""

WHOLE = Series("all", "all")

_TOGETHER = 500
"""Series whose figures are computed in one go: 40 MB of counts; more save nothing."""

_BY_HAND = frozenset(("pin", "unpin"))
_LOG = 100
"""Newest maps and alarms of a model that a snapshot holds: what people look through, at no cost to speak of."""


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Integer counts of one window of one model, a copy.

    `counts` has shape (S, 2, 284, K): series, score kind (raw, served), bin, columns of the layout.
    """

    model: str
    window: str
    series: Sequence[Series]
    counts: Ints


class Publisher:
    """Computes figures from the counts; holds no counts of its own."""

    def __init__(
        self,
        settings: EngineSettings,
        names: Names,
        aggregate: Aggregate,
        tally: Tally,
        watches: Mapping[int, ModelWatch],
        watch_panes: Mapping[int, WatchPanes],
        signs: EarlySigns,
    ) -> None:
        self._settings = settings
        self._names = names
        self._aggregate = aggregate
        self._tally = tally
        self._watches = watches
        self._watch_panes = watch_panes
        self._signs = signs
        self._sequence = count(1)

    def windows(self) -> list[str]:
        """Window names, the one of everything last."""
        return [spec.name for spec in self._settings.aggregate.windows] + [EVERYTHING]

    def shown(self, window: str) -> Shown:
        """Per model index, the published series with rows in a window, and the numbers each adds up.

        Slots under the cap are dealt over all windows together, so a segment keeps its name in each.
        """
        return self._shown()[window]

    def _shown(self) -> dict[str, Shown]:
        """What is shown in each window."""
        alive = {name: self._aggregate.alive(name) for name in self.windows()}
        ever = np.unique(np.concatenate(list(alive.values())))
        published = self._aggregate.series.published(ever)
        by_window: dict[str, Shown] = {}
        for window, numbers in alive.items():
            inside = set(numbers.tolist())
            shown = by_window[window] = {}
            for (model, labels), members in published.items():
                if not inside.isdisjoint(members):
                    shown.setdefault(model, {})[labels] = members
        return by_window

    def window_figures(self, window: str, members: Members, counts: Ints) -> WindowFigures:
        """Figures of the series `members`; `counts` (S, 2, 284, K) are theirs, in ascending label order."""
        ((_, found),) = self._together(window, [(0, counts, members)])
        return found

    def _figures(self, counts: Ints, phi: Floats) -> Figures:
        return figures(counts, ece_bins=self._settings.ece_bins, min_count=self._settings.min_count, phi=phi)

    def of_window(self, window: str) -> Iterator[tuple[int, WindowFigures]]:
        """(model index, figures) of every model with rows in the window."""
        return self._of_window(window, self.shown(window))

    def _of_window(self, window: str, shown: Shown) -> Iterator[tuple[int, WindowFigures]]:
        """`of_window`, many models at a time: what figures cost hardly depends on how few series they are for."""
        waiting: list[tuple[int, Ints, Members]] = []
        for model, members in shown.items():
            waiting.append((model, self._summed(window, members), members))
            if sum(len(counts) for _, counts, _ in waiting) >= _TOGETHER:
                yield from self._together(window, waiting)
                waiting = []
        yield from self._together(window, waiting)

    def _together(
        self, window: str, models: Sequence[tuple[int, Ints, Members]]
    ) -> Iterator[tuple[int, WindowFigures]]:
        if not models:
            return
        counts = np.concatenate([counts for _, counts, _ in models])
        phi = np.concatenate([self._phi(model, _in_order(members)) for model, _, members in models])
        raw, served = self._figures(counts[:, RAW], phi), self._figures(counts[:, SERVED], phi)
        start = 0
        for model, mine, members in models:
            part = slice(start, start + len(mine))
            start = part.stop
            labels = _in_order(members)
            yield (
                model,
                WindowFigures(
                    window=window,
                    series=labels,
                    raw={name: values[part] for name, values in raw.items()},
                    served={name: values[part] for name, values in served.items()},
                    raw_bins=self._bins(labels, mine[:, RAW], phi[part]),
                    served_bins=self._bins(labels, mine[:, SERVED], phi[part]),
                ),
            )

    def _bins(self, labels: Sequence[Series], counts: Ints, phi: Floats) -> Sequence[Mapping[str, Any]]:
        """Reliability table of the series ``all``."""
        if WHOLE not in labels:
            return []
        whole = labels.index(WHOLE)
        return reliability(counts[whole], ece_bins=self._settings.ece_bins, phi=float(phi[whole]))

    def _phi(self, model: int, labels: Sequence[Series]) -> Floats:
        """Over-dispersion of each series; 1 where nothing is known of it."""
        alarms = self.alarms(model)
        return np.array([alarms[label].phi if label in alarms else 1.0 for label in labels])

    def alarm_of_whole(self, model: int) -> AlarmState | None:
        """How the whole of a model stands; None before its first row."""
        if model not in self._watches:
            return None
        whole = self._watch_panes[model].series.whole(model)
        return None if whole is None else self._watches[model].states(np.array([whole]))[0]

    def alarms(self, model: int) -> dict[Series, AlarmState]:
        """How every series of a model that is watched stands."""
        watch = self._watches.get(model)
        if watch is None:
            return {}
        numbers = self._watch_panes[model].labelled(model)
        return dict(zip(numbers, watch.states(np.array(list(numbers.values()), dtype=np.int64)), strict=True))

    def _ece_exceeded(self, model: int, windows: Sequence[WindowFigures]) -> dict[tuple[Series, str], bool]:
        threshold = self._settings.ece_threshold(self._names.models[model])
        if threshold is None:
            return {}
        found: dict[tuple[Series, str], bool] = {}
        for window in windows:
            exceeded = threshold.exceeded(window.served["ece"], window.served["n"], window.served["ece_z"])
            found.update({(label, window.window): bool(e) for label, e in zip(window.series, exceeded, strict=True)})
        return found

    def counts(self) -> list[WindowCounts]:
        """Counts of everything shown, for audit; the window of everything too."""
        return [
            WindowCounts(self._names.models[model], window, _in_order(members), self._summed(window, members))
            for window, shown in self._shown().items()
            for model, members in shown.items()
        ]

    def of_period(self, start_ms: int, members: Members) -> WindowFigures:
        """Figures of one calendar period for the series `members`."""
        numbers = np.array(sorted({n for held in members.values() for n in held}), dtype=np.int64)
        counts = self._aggregate.period_counts(start_ms, numbers)
        return self.window_figures(str(start_ms), members, _sum_members(members, numbers, counts))

    def snapshot(
        self,
        *,
        event_time_ms: int | None,
        outcomes_ms: int,
        loops: Mapping[int, ModelLoop],
        watermarks: Mapping[tuple[str, int], int],
        lag: Mapping[tuple[str, int], int],
        pending_bytes: int,
    ) -> Snapshot:
        """The whole picture; `outcomes_ms` is the event time of the outcomes topic alone."""
        # A model exists once it has predicted; a name that only outcomes use is none.
        by_model: dict[int, list[WindowFigures]] = {model: [] for model in loops}
        by_window = self._shown()
        for window, shown in by_window.items():
            for model, found in self._of_window(window, shown):
                by_model[model].append(found)
        last_outcomes = self._last_outcomes(by_window)
        shifts = self._signs.shifts()
        return Snapshot(
            sequence=next(self._sequence),
            event_time_ms=event_time_ms,
            models=[
                replace(
                    self._model(model, windows, loops[model], event_time_ms, last_outcomes.get(model, {})),
                    labels=self._signs.labels(model),
                    early=self._early(model, outcomes_ms),
                    score_shift=shifts.get(model, {}),
                )
                for model, windows in by_model.items()
            ],
            counters=self._tally.total(),
            rejected=dict(self._tally.rejected),
            watermarks=dict(watermarks),
            lag=dict(lag),
            pending=self._tally.pending(),
            pending_bytes=pending_bytes,
        )

    def _model(
        self,
        model: int,
        windows: Sequence[WindowFigures],
        loop: ModelLoop,
        event_time_ms: int | None,
        last_outcome_ms: Mapping[Series, int],
    ) -> ModelSnapshot:
        counters = self._tally.of_model(model)
        watch = self._watches[model]
        return ModelSnapshot(
            name=self._names.models[model],
            event_time_ms=event_time_ms,
            windows=windows,
            counters=counters,
            pending=self._tally.pending(model),
            champion=loop.state(),
            refits=dict(loop.results),
            last_outcome_ms=last_outcome_ms,
            alarms=self.alarms(model),
            ece_exceeded=self._ece_exceeded(model, windows),
            changes=Counter(change.trigger for change in watch.changes),
            sealed_until_ms=watch.sealed_until_ms,
            blocking_partition=watch.blocking,
            map_log=_map_log(loop),
            alarm_log=_alarm_log(watch),
            maps=_maps_held(loop),
        )

    def _early(self, model: int, outcomes_ms: int) -> EarlyEstimate | None:
        state = self.alarm_of_whole(model)
        return self._signs.early(model, outcomes_ms, 1.0 if state is None else state.phi)

    def _last_outcomes(self, by_window: Mapping[str, Shown]) -> dict[int, dict[Series, int]]:
        """Per model, the latest outcome time of every series shown in any window."""
        last: dict[int, dict[Series, int]] = {}
        for shown in by_window.values():
            for model, members in shown.items():
                for labels, numbers in members.items():
                    last.setdefault(model, {})[labels] = int(self._aggregate.last_outcome_ms[numbers].max())
        return last

    def _summed(self, window: str, members: Members) -> Ints:
        numbers = np.array(sorted({n for held in members.values() for n in held}), dtype=np.int64)
        return _sum_members(members, numbers, self._aggregate.by_series(window, numbers))


def _map_log(loop: ModelLoop) -> list[MapEntry]:
    """Copies: the last entry of the loop still changes while the same refusal repeats.

    Half are the newest of any kind, half the newest that changed the map for a reason, or who may change it: a tracking
    filter publishes every hour, and its last promotion is months ago.
    """
    newest, changes = [], 0
    for i, entry in enumerate(reversed(loop.history)):
        changed = (entry.promoted and entry.reason != "publication") or entry.reason in _BY_HAND
        if i < _LOG // 2 or (changed and changes < _LOG // 2):
            newest.append(entry)
            changes += changed
    newest.reverse()
    return [
        MapEntry(
            version=entry.version,
            family=entry.family,
            at_ms=entry.at_ms,
            until_ms=max(entry.until_ms, entry.at_ms),
            attempts=entry.attempts,
            promoted=entry.promoted,
            reason=entry.reason,
            document=entry.document,
            trigger=entry.trigger,
            who=entry.who,
            why=entry.why,
        )
        for entry in newest
    ]


def _maps_held(loop: ModelLoop) -> MapsHeld:
    return MapsHeld(
        pinned=loop.pinned,
        champion=loop.champion.document,
        candidate=None if loop.candidate is None else loop.candidate.document,
        fits={family: loop.challengers.newest(family) for family in loop.challengers.families},
    )


def _alarm_log(watch: ModelWatch) -> list[AlarmEntry]:
    return [
        AlarmEntry(record.at_ms, record.ended_ms, record.series, record.fault, record.evidence, record.phi)
        for record in watch.alarms[-_LOG:]
    ]


def _in_order(members: Members) -> list[Series]:
    """``all`` first, then by cut and segment."""
    return sorted(members, key=lambda s: (s != WHOLE, s.cut, s.segment))


def _sum_members(members: Members, numbers: Ints, counts: Ints) -> Ints:
    """Counts per published series in label order; `counts[i]` belongs to `numbers[i]`."""
    labels = _in_order(members)
    places = [np.searchsorted(numbers, members[label]) for label in labels]
    if all(len(place) == 1 for place in places):
        return counts[np.concatenate(places)]
    return np.stack([counts[place].sum(axis=0) for place in places])
