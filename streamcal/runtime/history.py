"""What the whole stream's figures were at each full hour of event time."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal.engine import Engine
from streamcal.serve.report import figure_dict
from streamcal.stats.cells import RAW, SERVED
from streamcal.stats.figures import figures

__all__ = ["HistoryRecorder"]


class HistoryRecorder:
    """Collects report entries per model; give `record` to the engine as `on_history`."""

    def __init__(self, *, ece_bins: int, min_count: int) -> None:
        self._options = {"ece_bins": ece_bins, "min_count": min_count}
        self._engine: Engine | None = None
        self.entries: dict[str, list[dict[str, Any]]] = {}

    def attach(self, engine: Engine) -> None:
        """The engine whose windows are read."""
        self._engine = engine

    def record(self, at_ms: int) -> None:
        """Take down the windows as they stand, ending at `at_ms`; empty ones are left out."""
        engine = self._engine
        if engine is None:
            return
        series = engine.aggregate.series
        wholes = [(model, whole) for model in range(len(engine.names.models)) if (whole := series.whole(model)) is not None]
        if not wholes:
            return
        numbers = np.array([whole for _, whole in wholes], dtype=np.int64)
        windows = engine.aggregate.window_names
        counts = np.stack([engine.aggregate.by_series(window, numbers) for window in windows])
        flat = counts.reshape(-1, 2, *counts.shape[3:])
        found = figures(flat.reshape(-1, *flat.shape[2:]), **self._options)
        for place in range(len(flat)):
            model = wholes[place % len(wholes)][0]
            if not (flat[place, :, :, 0] != 0).any():
                continue
            entry = {
                "at_ms": at_ms,
                "window": windows[place // len(wholes)],
                "raw": figure_dict(found, 2 * place + RAW),
                "served": figure_dict(found, 2 * place + SERVED),
            }
            self.entries.setdefault(engine.names.models[model], []).append(entry)
