"""Calendar months beside the running windows: in the snapshot, and so in /metrics and in the terminal alike.

Only the demo shows them. A daemon keeps no counts of a month that left its windows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from streamcal.engine import Engine
from streamcal.serve.live import SnapshotHolder
from streamcal.serve.table import MonthRow
from streamcal.snapshot import Figures, ModelSnapshot, Series, Snapshot, WindowFigures
from streamcal.stats.aggregate import EVERYTHING

__all__ = ["MonthHolder", "everything_row", "month_rows", "with_months"]

_WHOLE: Final = Series("all", "all")
_MONTH: Final = re.compile(r"\d{4}-\d{2}")


def with_months(engine: Engine, snapshot: Snapshot) -> Snapshot:
    """`snapshot` with one more window per month that has rows, named as in ``2013-06``, for the segment ``all``.

    Parameters
    ----------
    engine : Engine
        Counts by month (`AggregateSettings.period`), and made `snapshot`.
    snapshot : Snapshot
    """
    starts = engine.aggregate.periods()
    models = [
        replace(model, windows=[*model.windows, *_months(engine, engine.names.model(model.name), starts)])
        for model in snapshot.models
    ]
    return replace(snapshot, models=models)


def _months(engine: Engine, model: int, starts: list[int]) -> list[WindowFigures]:
    whole = engine.aggregate.series.whole(model)
    if whole is None:
        return []
    found = [(start, engine.published.of_period(start, {_WHOLE: [whole]})) for start in starts]
    return [
        replace(figures, window=str(np.datetime64(start, "ms").astype("datetime64[M]")))
        for start, figures in found
        if _value(figures.raw, "n") or _value(figures.served, "n")
    ]


class MonthHolder(SnapshotHolder):
    """Publishes snapshots with months, then tells `on_picture`; both in the thread of the engine.

    Attributes
    ----------
    on_picture : callable or None
        Called with what readers see from then on.
    """

    __slots__ = ("_engine", "on_picture")

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self.on_picture: Callable[[Snapshot], None] | None = None

    def publish(self, snapshot: Snapshot, *, until_s: float = math.inf) -> None:
        """Make `snapshot`, with its months, the one that readers get from now on."""
        full = with_months(self._engine, snapshot)
        super().publish(full, until_s=until_s)
        if self.on_picture is not None:
            self.on_picture(full)


def month_rows(model: ModelSnapshot, *, horizon_ms: int, ended: bool = False) -> list[MonthRow]:
    """The months of a snapshot as rows of the terminal table, ascending.

    A month is finished once the event time has passed its end by the horizon, or when the stream has `ended`.
    """
    rows = []
    for window in model.windows:
        if _MONTH.fullmatch(window.window):
            end = int((np.datetime64(window.window, "M") + 1).astype("datetime64[ms]").astype(np.int64))
            passed = model.event_time_ms is not None and model.event_time_ms > end + horizon_ms
            rows.append(_row(window, finished=ended or passed))
    return sorted(rows, key=lambda row: row.month)


def everything_row(model: ModelSnapshot) -> MonthRow | None:
    """The window of everything read in the same form; None while it is empty."""
    for window in model.windows:
        if window.window == EVERYTHING and window.series:
            return _row(window, finished=False)
    return None


def _row(window: WindowFigures, *, finished: bool) -> MonthRow:
    return MonthRow(
        month=window.window,
        n=int(_value(window.raw, "n") or 0),
        ece_raw=_value(window.raw, "ece"),
        ece_served=_value(window.served, "ece"),
        slope_raw=_value(window.raw, "platt_slope"),
        slope_served=_value(window.served, "platt_slope"),
        finished=finished,
    )


def _value(figures: Figures, name: str) -> float | None:
    """A figure of the first series, ``all``; None where absent."""
    value = float(figures[name][0]) if name in figures else float("nan")
    return None if np.isnan(value) else value
