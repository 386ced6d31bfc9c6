"""Seeded streams of scores and outcomes for the detector, many independent runs at a time: a run is a series."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from streamcal.detect.alarm import AlarmEvent
from streamcal.detect.detector import Detector, DetectorSettings
from streamcal.stats.counts import contributions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PANES_PER_DAY = 1440


class Scores(NamedTuple):
    """Forty scores with normal weights: logits x, probabilities of each, share of the traffic."""

    x: Floats
    p: Floats
    share: Floats

    @property
    def pivot(self) -> float:
        """Mean logit with weights p (1 - p)."""
        weight = self.share * self.p * (1 - self.p)
        return float((weight * self.x).sum() / weight.sum())


class Rows(NamedTuple):
    """Rows and positives of a pane, int64[runs, scores]."""

    n: Ints
    y: Ints


def scores(base: float, sd: float = 1.5) -> Scores:
    """Scores whose mean is `base`."""
    z = np.linspace(-3, 3, 40)
    share = np.exp(-0.5 * z * z)
    share /= share.sum()
    mean = brentq(lambda m: (share * expit(m + sd * z)).sum() - base, -20, 10)
    return Scores(mean + sd * z, expit(mean + sd * z), share)


def settings(**changes: float | None) -> DetectorSettings:
    """One series that may alarm falsely once in `panes` panes."""
    panes = changes.pop("panes", 518_400)
    rate = PANES_PER_DAY * 30 / panes
    base = {"panes_per_day": PANES_PER_DAY, "false_alarms_per_month": rate, "share": 1, "clear_after": 100}
    return DetectorSettings(**{**base, **changes})


def cells(grid: Scores, rows: Rows) -> tuple[Ints, NDArray[np.intp], Ints]:
    """Sparse counts of a pane: series, bins, values; exact sums of the rows' contributions."""
    bins, negative, _ = contributions(grid.p, np.zeros(len(grid.p), dtype=np.int64))
    _, positive, _ = contributions(grid.p, np.ones(len(grid.p), dtype=np.int64))
    series, score = np.nonzero(rows.n)
    n, y = rows.n[series, score], rows.y[series, score]
    values = (n - y)[:, None] * negative[score] + y[:, None] * positive[score]
    return series, bins[score], values


def panes(grid: Scores, runs: int, rows: float, seed: int, rates: Iterable[Floats]) -> Iterator[Rows]:
    """A pane for each element of `rates` (true probabilities, [scores] or [runs, scores]), about `rows` rows a run."""
    draw = np.random.default_rng(seed)
    for rate in rates:
        n = draw.poisson(rows * grid.share, (runs, len(grid.p)))
        yield Rows(n, draw.binomial(n, np.broadcast_to(rate, n.shape)))


def watch(detector: Detector, grid: Scores, stream: Iterable[Rows], start: int = 0) -> list[AlarmEvent]:
    """Everything the detector says over a stream."""
    given = enumerate(stream, start)
    return [event for pane, rows in given for event in detector.update_cells(pane, *cells(grid, rows))]


def first_raised(events: Iterable[AlarmEvent]) -> dict[int, AlarmEvent]:
    """First alarm of each run that has one."""
    first: dict[int, AlarmEvent] = {}
    for event in events:
        if event.raised:
            first.setdefault(event.series, event)
    return first


def shocks(grid: Scores, runs: int, count: int, seed: int, *, sd: float, memory: float) -> Iterator[Floats]:
    """Rates with a shared multiplicative shock per pane of mean 1: log-normal, AR(1) with coefficient `memory`."""
    draw = np.random.default_rng(seed)
    state = draw.normal(0, sd, runs)
    for _ in range(count):
        yield np.minimum(grid.p * np.exp(state - sd * sd / 2)[:, None], 1.0)
        state = memory * state + sd * np.sqrt(1 - memory * memory) * draw.normal(size=runs)


def information(grid: Scores, rate: Floats) -> float:
    """Nats a row gains on average for the bet that is exactly right, the D of the delay formula."""
    p = grid.p
    return float((grid.share * (rate * np.log(rate / p) + (1 - rate) * np.log((1 - rate) / (1 - p)))).sum())


class Delayed(NamedTuple):
    """Rows of a stream whose positives come later than its negatives; hours."""

    made: Floats
    known: Floats
    p: Floats
    y: Ints


def delayed(seed: int, days: int, per_hour: float) -> Delayed:
    """Calibrated rows with a daily traffic cycle; delays below 24 h, of about 6 h for positives, 1 h for negatives."""
    draw = np.random.default_rng(seed)
    made = np.sort(draw.uniform(0, 24 * days, draw.poisson(2 * per_hour * 24 * days)))
    made = made[draw.random(len(made)) < 0.5 + 0.45 * np.sin(2 * np.pi * made / 24)]
    p = expit(draw.normal(-2, 1, len(made)))
    y = (draw.random(len(made)) < p).astype(np.int64)
    mean = np.where(y == 1, 6.0, 1.0)
    delay = -mean * np.log1p(-draw.random(len(made)) * -np.expm1(-24.0 / mean))
    return Delayed(made, made + delay, p, y)


def feed(detector: Detector, hours: Floats, p: Floats, y: Ints, pane_hours: float) -> list[AlarmEvent]:
    """Give rows to the detector in panes by `hours`."""
    order = np.argsort(hours, kind="stable")
    pane = (hours[order] // pane_hours).astype(np.int64)
    edges = np.flatnonzero(np.concatenate([[True], pane[1:] != pane[:-1], [True]]))
    events = []
    for start, stop in itertools.pairwise(edges.tolist()):
        rows = order[start:stop]
        bins, values, _ = contributions(p[rows], y[rows])
        held, total = _by_bin(bins, values)
        events += detector.update_cells(int(pane[start]), np.zeros(len(held), dtype=np.int64), held, total)
    return events


def _by_bin(bins: NDArray[np.intp], values: Ints) -> tuple[NDArray[np.intp], Ints]:
    held, where = np.unique(bins, return_inverse=True)
    total = np.zeros((len(held), values.shape[1]), dtype=np.int64)
    np.add.at(total, where, values)
    return held, total
