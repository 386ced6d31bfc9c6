"""What the figures of each whole model were, kept in the process for the charts over time.

Bounded: a track per model and window holds at most `CAPACITY` points. When it is full, event time is cut into steps
of which each keeps its last point, so that half of the points go; the steps grow as the track does. A track always
reaches back to where it began, ever more coarsely, and its newest point is the newest snapshot. A restart begins
anew: Prometheus keeps the long history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.snapshot import Figures, ModelSnapshot, Series, Snapshot

__all__ = ["CAPACITY", "TRACED", "FigureTrace", "Track"]

CAPACITY: Final = 480
"""Points of a track: two pixels each on a wide chart."""
_MAX_TRACKS: Final = 300
"""Models times windows; 60 kB each. Those that come later have no chart over time."""

TRACED: Final = ("n", "ece", "ece_noise_floor", "platt_slope", "platt_slope_se", "ratio")
"""Figures kept of raw and of served scores, by report key."""

_COLUMNS: Final = 2 * len(TRACED) + 2
_WHOLE: Final = Series("all", "all")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Track:
    """Points of one model and window, oldest first.

    Attributes
    ----------
    at_ms : int64[n]
        Event time.
    step_ms : int
        Each run of event time of this length has one point; 0 while every snapshot has one.
    raw, served : mapping of str to float64[n]
        `TRACED` figures; NaN is absent.
    evidence, threshold : float64[n]
        Natural logarithms, of the whole model.
    """

    at_ms: NDArray[np.int64]
    step_ms: int
    raw: Figures
    served: Figures
    evidence: Floats
    threshold: Floats


class FigureTrace:
    """Takes down every snapshot; one thread records, any number read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tracks: dict[tuple[str, str], _Points] = {}

    def record(self, snapshot: Snapshot) -> None:
        """Take down the whole of every model; what has no event time yet is left out."""
        with self._lock:
            for model in snapshot.models:
                if model.event_time_ms is not None:
                    self._record(model, model.event_time_ms)

    def track(self, model: str, window: str) -> Track | None:
        """The points of a model and window; None where nothing was taken down."""
        with self._lock:
            points = self._tracks.get((model, window))
            return None if points is None else points.track()

    def windows(self, model: str) -> list[str]:
        """Windows with a track, in the order they appeared."""
        with self._lock:
            return [window for name, window in self._tracks if name == model]

    def _record(self, model: ModelSnapshot, at_ms: int) -> None:
        state = model.alarms.get(_WHOLE)
        for window in model.windows:
            if not window.series or window.series[0] != _WHOLE:
                continue
            points = self._tracks.get((model.name, window.window))
            if points is None:
                if len(self._tracks) >= _MAX_TRACKS:
                    continue
                points = self._tracks[model.name, window.window] = _Points()
            row = points.room(at_ms)
            row[: len(TRACED)] = _first(window.raw)
            row[len(TRACED) : 2 * len(TRACED)] = _first(window.served)
            known = state is not None and math.isfinite(state.evidence)
            row[-2] = state.evidence if state is not None and known else math.nan
            row[-1] = math.nan if state is None else state.threshold


def _first(figures: Figures) -> list[float]:
    return [float(figures[name][0]) if name in figures else math.nan for name in TRACED]


class _Points:
    """Rows of one track, in arrays of a fixed size."""

    def __init__(self) -> None:
        self._at_ms = np.zeros(CAPACITY, dtype=np.int64)
        self._rows = np.full((CAPACITY, _COLUMNS), np.nan)
        self._size = 0
        self._step_ms = 0

    def room(self, at_ms: int) -> Floats:
        """The row for a point at `at_ms`, to be filled: a new one, or the last where both are of one step."""
        # Event time goes back when a partition that is behind comes in; what was said of later times goes with it.
        while self._size and self._at_ms[self._size - 1] >= at_ms:
            self._size -= 1
        if self._size == CAPACITY and not self._is_of_last_step(at_ms):
            self._thin(at_ms)
        if self._size > 1 and self._is_of_last_step(at_ms):
            self._size -= 1
        self._at_ms[self._size] = at_ms
        self._size += 1
        row: Floats = self._rows[self._size - 1]
        return row

    def _is_of_last_step(self, at_ms: int) -> bool:
        return self._step_ms > 0 and int(self._at_ms[self._size - 1]) // self._step_ms == at_ms // self._step_ms

    def _thin(self, at_ms: int) -> None:
        """Keep the oldest point and the last one of every step, for steps that leave half of them."""
        span = at_ms - int(self._at_ms[0])
        self._step_ms = max(2 * self._step_ms, -(-2 * span // CAPACITY))
        steps = self._at_ms // self._step_ms
        kept = np.flatnonzero(np.append(steps[1:] != steps[:-1], True))
        kept = kept if kept[0] == 0 else np.insert(kept, 0, 0)
        self._at_ms[: len(kept)] = self._at_ms[kept]
        self._rows[: len(kept)] = self._rows[kept]
        self._size = len(kept)

    def track(self) -> Track:
        rows = self._rows[: self._size].copy()

        def part(start: int) -> Mapping[str, Floats]:
            return {name: rows[:, start + i] for i, name in enumerate(TRACED)}

        return Track(
            at_ms=self._at_ms[: self._size].copy(),
            step_ms=self._step_ms,
            raw=part(0),
            served=part(len(TRACED)),
            evidence=rows[:, -2],
            threshold=rows[:, -1],
        )
