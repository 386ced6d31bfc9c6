"""What the whole stream's figures were at each full hour of event time.

Counts are taken down as they stand; figures are computed for many hours at a time, since the cost of one call hardly
grows with its rows (on a year of flights one call per hour took two fifths of the whole replay).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamcal.engine import Engine
from streamcal.serve.report import figure_dict
from streamcal.snapshot import AlarmState
from streamcal.stats.cells import RAW, SERVED
from streamcal.stats.counts import Column
from streamcal.stats.figures import figures

__all__ = ["HistoryRecorder"]

_BATCH: Final = 256
"""Windows whose counts are held at most: 10 MB, 24 MB with weights."""


class _Stand(NamedTuple):
    """One model's window at one hour; counts (2, 284, columns) of raw and served scores."""

    at_ms: int
    model: str
    window: str
    counts: NDArray[np.int64]
    alarm: AlarmState | None


class HistoryRecorder:
    """Collects report entries per model; give `record` to the engine as `on_history`."""

    def __init__(self, *, ece_bins: int, min_count: int) -> None:
        self._ece_bins = ece_bins
        self._min_count = min_count
        self._engine: Engine | None = None
        self._stands: list[_Stand] = []
        self._entries: dict[str, list[dict[str, Any]]] = {}

    @property
    def entries(self) -> dict[str, list[dict[str, Any]]]:
        """Model to its entries, in the order recorded."""
        self._compute()
        return self._entries

    def attach(self, engine: Engine) -> None:
        """The engine whose windows are read."""
        self._engine = engine

    def record(self, at_ms: int) -> None:
        """Take down the windows as they stand, ending at `at_ms`; empty ones are left out."""
        engine = self._engine
        if engine is None:
            return
        series = engine.aggregate.series
        wholes = {
            name: whole for model, name in enumerate(engine.names.models) if (whole := series.whole(model)) is not None
        }
        if not wholes:
            return
        numbers = np.array(list(wholes.values()), dtype=np.int64)
        alarms = {name: engine.published.alarm_of_whole(model) for model, name in enumerate(engine.names.models)}
        for window in engine.aggregate.window_names:
            counts = engine.aggregate.by_series(window, numbers)
            for name, held in zip(wholes, counts, strict=True):
                if held[:, :, Column.N].any():
                    self._take(_Stand(at_ms, name, window, held.copy(), alarms[name]))

    def _take(self, stand: _Stand) -> None:
        # The first weight other than 1 widens the counts from there on.
        if self._stands and stand.counts.shape != self._stands[0].counts.shape:
            self._compute()
        self._stands.append(stand)
        if len(self._stands) >= _BATCH:
            self._compute()

    def _compute(self) -> None:
        if not self._stands:
            return
        stands, self._stands = self._stands, []
        counts = np.stack([stand.counts for stand in stands])
        phi = np.array([1.0 if stand.alarm is None else stand.alarm.phi for stand in stands])
        raw, served = (
            figures(counts[:, kind], ece_bins=self._ece_bins, min_count=self._min_count, phi=phi)
            for kind in (RAW, SERVED)
        )
        for place, stand in enumerate(stands):
            entry = {
                "at_ms": stand.at_ms,
                "window": stand.window,
                "raw": figure_dict(raw, place),
                "served": figure_dict(served, place),
            }
            if stand.alarm is not None:
                entry["alarm"] = _alarm(stand.alarm)
            self._entries.setdefault(stand.model, []).append(entry)


def _alarm(state: AlarmState) -> dict[str, Any]:
    """The detector's view in report form; what is not known yet is left out."""
    entry: dict[str, Any] = {"threshold": state.threshold, "phi": state.phi}
    if math.isfinite(state.evidence):
        entry |= {"evidence": state.evidence, "leading": state.leading}
    if state.active is not None:
        entry["active"] = state.active
    return entry
