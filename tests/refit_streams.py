"""Streams of labelled predictions driven through a refit loop, without an engine: fast enough for simulated years."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.document import MapDocument, decode
from streamcal.maps.loop import LoopSettings, ModelLoop
from streamcal.stats.counts import contributions
from streamcal.stats.fit_panes import FitPanes
from streamcal.stats.segment_panes import SegmentPanes
from streamcal.stats.series import SeriesTable
from streamcal.stream.events import Names

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Truth = Callable[[Floats, Ints], Floats]
"""Logit of the true rate at raw logits `x` predicted at times (ms)."""

HOUR = 3_600_000
DAY = 24 * HOUR


def sigmoid(z: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-z))


@dataclass(frozen=True)
class Labelled:
    """Rows in the order in which they became known; times in ms; `profile` numbers segments by `names`."""

    predicted_ms: Ints
    known_ms: Ints
    x: Floats
    y: NDArray[np.bool_]
    profile: NDArray[np.int32] | None = None
    names: Names = field(default_factory=lambda: Names(()))


def stream(
    rng: np.random.Generator,
    rows: int,
    length_ms: int,
    truth: Truth,
    *,
    mean: float = -4.91,
    spread: float = 1.5,
    delay_ms: int = 0,
) -> Labelled:
    """Rows predicted uniformly over `length_ms`; labels are known up to `delay_ms` later."""
    predicted = np.sort(rng.integers(0, length_ms, rows))
    x = rng.normal(mean, spread, rows)
    y = rng.random(rows) < sigmoid(truth(x, predicted))
    known = predicted + rng.integers(0, delay_ms + 1, rows)
    order = np.argsort(known, kind="stable")
    return Labelled(predicted[order], known[order], x[order], y[order])


@dataclass
class Driven:
    """A loop with its fit panes, and what it has published."""

    loop: ModelLoop
    fits: FitPanes
    documents: list[MapDocument]
    segments: SegmentPanes | None = None

    def served_at(self, times_ms: Ints, x: Floats, segments: Mapping[str, Sequence[str]] | None = None) -> Floats:
        """Served scores of raw logits predicted at `times_ms`: a map applies after its moment."""
        p = sigmoid(x)
        served = p.copy()
        moments = [document.at_ms for document in self.documents]
        index = np.searchsorted(moments, times_ms, side="right") - 1
        for place in np.unique(index[index >= 0]).tolist():
            mine = index == place
            rows = np.flatnonzero(mine).tolist()
            given = segments and {name: [values[row] for row in rows] for name, values in segments.items()}
            served[mine] = self.documents[place].compile().apply(p[mine], given)
        return served


def served_by(loop: ModelLoop, raw: Floats) -> Floats:
    """What a loop serves now for raw scores without segments."""
    names = Names(())
    names.profile(())
    return loop.apply(raw, np.zeros(len(raw), dtype=np.int32), names)


def settings(**options: Any) -> LoopSettings:
    chosen: dict[str, Any] = {
        "mode": "auto",
        "every_ms": HOUR,
        "fit_window_ms": 14 * DAY,
        "pane_ms": 15 * 60_000,
        "min_count": 50,
        "maturity_ms": 0,
        "prior": None,
        "horizon_ms": DAY,
    }
    return LoopSettings(**(chosen | options))


def drive(rows: Labelled, chosen: LoopSettings, *, until_ms: int | None = None) -> Driven:
    """Every attempt up to the end of the rows."""
    driven = driven_loop(chosen, rows.names)
    for moment in attempts(driven, rows, until_ms):
        driven.documents += [decode(command.document) for command in driven.loop.attempt(moment)]
    return driven


def driven_loop(chosen: LoopSettings, names: Names) -> Driven:
    """A loop that has seen nothing yet."""
    fits, segments = FitPanes(9), None
    if chosen.dimensions:
        names.model("m")
        series = SeriesTable(names, [(), chosen.dimensions], 1000)
        segments = SegmentPanes(series, 1, chosen.pane_ms, chosen.step_ms)
    return Driven(ModelLoop(chosen, "m", fits, segments), fits, [], segments)


def attempts(driven: Driven, rows: Labelled, until_ms: int | None = None) -> Iterator[int]:
    """Moments of attempts, what is known by then brought in."""
    chosen, fits = driven.loop.settings, driven.fits
    driven.documents += [decode(command.document) for command in driven.loop.start()]
    bins, values, _ = contributions(sigmoid(rows.x), rows.y)
    by_pane = rows.predicted_ms if chosen.maturity_ms else rows.known_ms
    end = int(rows.known_ms[-1]) + 1 if until_ms is None else until_ms
    start, every = 0, chosen.every_ms
    for moment in range(int(rows.predicted_ms.min()) // every * every, end // every * every + 1, every):
        stop = int(np.searchsorted(rows.known_ms, moment))
        pane = by_pane[start:stop] // chosen.pane_ms
        made = rows.predicted_ms[start:stop]
        fits.add(pane, bins[start:stop], values[start:stop], made)
        if driven.segments is not None and rows.profile is not None:
            model = np.zeros(stop - start, dtype=np.int32)
            given = bins[start:stop], values[start:stop]
            driven.segments.fold(model, rows.profile[start:stop], pane, made, *given)
        start = stop
        yield moment
