"""Builds what readers see: figures of every series and window, the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.loop import ModelLoop
from streamcal.settings import EngineSettings
from streamcal.snapshot import Figures, ModelSnapshot, Series, Snapshot, WindowFigures
from streamcal.stats.aggregate import EVERYTHING, Aggregate
from streamcal.stats.cells import RAW, SERVED
from streamcal.stats.figures import figures
from streamcal.stats.reliability import reliability
from streamcal.stream.events import Names
from streamcal.stream.tally import Tally

__all__ = ["Publisher", "WindowCounts"]

Ints = NDArray[np.int64]
WHOLE = Series("all", "all")


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

    def __init__(self, settings: EngineSettings, names: Names, aggregate: Aggregate, tally: Tally) -> None:
        self._settings = settings
        self._names = names
        self._aggregate = aggregate
        self._tally = tally
        self._sequence = count(1)

    def windows(self) -> list[str]:
        """Window names, the one of everything last."""
        return [spec.name for spec in self._settings.aggregate.windows] + [EVERYTHING]

    def shown(self, window: str) -> dict[int, dict[Series, list[int]]]:
        """Per model index, the published series with rows in a window, and the numbers each adds up.

        Slots under the cap are dealt over all windows together, so a segment keeps its name in each.
        """
        alive = set(self._aggregate.alive(window).tolist())
        ever = np.unique(np.concatenate([self._aggregate.alive(name) for name in self.windows()]))
        by_model: dict[int, dict[Series, list[int]]] = {}
        for (model, labels), numbers in self._aggregate.series.published(ever).items():
            if not alive.isdisjoint(numbers):
                by_model.setdefault(model, {})[labels] = numbers
        return by_model

    def window_figures(self, window: str, members: Mapping[Series, Sequence[int]], counts: Ints) -> WindowFigures:
        """Figures of the series `members`; `counts` (S, 2, 284, K) are theirs, in ascending label order."""
        labels = _in_order(members)
        whole = labels.index(WHOLE) if WHOLE in labels else None
        bins = [
            [] if whole is None else reliability(counts[whole, kind], ece_bins=self._settings.ece_bins)
            for kind in (RAW, SERVED)
        ]
        return WindowFigures(
            window=window,
            series=labels,
            raw=self._figures(counts[:, RAW]),
            served=self._figures(counts[:, SERVED]),
            raw_bins=bins[RAW],
            served_bins=bins[SERVED],
        )

    def _figures(self, counts: Ints) -> Figures:
        return figures(counts, ece_bins=self._settings.ece_bins, min_count=self._settings.min_count)

    def of_window(self, window: str) -> Iterator[tuple[int, WindowFigures]]:
        """(model index, figures) of every model with rows in the window."""
        for model, members in self.shown(window).items():
            yield model, self.window_figures(window, members, self._summed(window, members))

    def counts(self) -> list[WindowCounts]:
        """Counts of everything shown, for audit; the window of everything too."""
        return [
            WindowCounts(self._names.models[model], window, _in_order(members), self._summed(window, members))
            for window in self.windows()
            for model, members in self.shown(window).items()
        ]

    def of_period(self, start_ms: int, members: Mapping[Series, Sequence[int]]) -> WindowFigures:
        """Figures of one calendar period for the series `members`."""
        numbers = np.array(sorted({n for held in members.values() for n in held}), dtype=np.int64)
        counts = self._aggregate.period_counts(start_ms, numbers)
        return self.window_figures(str(start_ms), members, _sum_members(members, numbers, counts))

    def snapshot(
        self,
        *,
        event_time_ms: int | None,
        loops: Mapping[int, ModelLoop],
        watermarks: Mapping[tuple[str, int], int],
        lag: Mapping[tuple[str, int], int],
        pending_bytes: int,
    ) -> Snapshot:
        """The whole picture."""
        # A model exists once it has predicted; a name that only outcomes use is none.
        by_model: dict[int, list[WindowFigures]] = {model: [] for model in loops}
        for window in self.windows():
            for model, found in self.of_window(window):
                by_model[model].append(found)
        return Snapshot(
            sequence=next(self._sequence),
            event_time_ms=event_time_ms,
            models=[self._model(model, windows, loops[model], event_time_ms) for model, windows in by_model.items()],
            counters=self._tally.total(),
            rejected=dict(self._tally.rejected),
            watermarks=dict(watermarks),
            lag=dict(lag),
            pending=self._tally.pending(),
            pending_bytes=pending_bytes,
        )

    def _model(
        self, model: int, windows: Sequence[WindowFigures], loop: ModelLoop, event_time_ms: int | None
    ) -> ModelSnapshot:
        counters = self._tally.of_model(model)
        released = counters["matched"] + counters["expired"] + counters["negative_at_maturity"]
        return ModelSnapshot(
            name=self._names.models[model],
            event_time_ms=event_time_ms,
            windows=windows,
            counters=counters,
            pending=self._tally.pending(model),
            coverage=1 - counters["expired"] / released if released else None,
            champion=loop.state(),
            refits=dict(loop.results),
            last_outcome_ms=self._last_outcomes(model),
        )

    def _last_outcomes(self, model: int) -> dict[Series, int]:
        last: dict[Series, int] = {}
        for labels, numbers in self.shown(self.windows()[0]).get(model, {}).items():
            last[labels] = max(int(self._aggregate.last_outcome_ms[n]) for n in numbers)
        return last

    def _summed(self, window: str, members: Mapping[Series, Sequence[int]]) -> Ints:
        numbers = np.array(sorted({n for held in members.values() for n in held}), dtype=np.int64)
        return _sum_members(members, numbers, self._aggregate.by_series(window, numbers))


def _in_order(members: Mapping[Series, Sequence[int]]) -> list[Series]:
    """``all`` first, then by cut and segment."""
    return sorted(members, key=lambda s: (s != WHOLE, s.cut, s.segment))


def _sum_members(members: Mapping[Series, Sequence[int]], numbers: Ints, counts: Ints) -> Ints:
    """Counts per published series in label order; `counts[i]` belongs to `numbers[i]`."""
    labels = _in_order(members)
    places = [np.searchsorted(numbers, members[label]) for label in labels]
    if all(len(place) == 1 for place in places):
        return counts[np.concatenate(places)]
    return np.stack([counts[place].sum(axis=0) for place in places])
