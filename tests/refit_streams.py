"""Streams of labelled predictions driven through a refit loop, without an engine: fast enough for simulated years."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.document import MapDocument, decode
from streamcal.maps.loop import LoopSettings, ModelLoop
from streamcal.stats.counts import contributions
from streamcal.stats.fit_panes import FitPanes

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
    """Rows in the order in which they became known; times in ms."""

    predicted_ms: Ints
    known_ms: Ints
    x: Floats
    y: NDArray[np.bool_]


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

    def served_at(self, times_ms: Ints, x: Floats) -> Floats:
        """Served scores of raw logits predicted at `times_ms`: a map applies after its moment."""
        p = sigmoid(x)
        served = p.copy()
        moments = [document.at_ms for document in self.documents]
        index = np.searchsorted(moments, times_ms, side="right") - 1
        for place in np.unique(index[index >= 0]).tolist():
            mine = index == place
            served[mine] = self.documents[place].to_map().apply(p[mine])
        return served


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
    driven = Driven(ModelLoop(chosen, "m", fits := FitPanes(9)), fits, [])
    for moment in attempts(driven, rows, until_ms):
        driven.documents += [decode(command.document) for command in driven.loop.attempt(moment)]
    return driven


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
        fits.add(pane, bins[start:stop], values[start:stop], rows.predicted_ms[start:stop])
        start = stop
        yield moment
