"""Maps that follow the stream, on the flights of 2013: what each serves, learning an outcome only once it is known.

    python benchmarks/flights.py [--step-minutes 15] [--half-life-hours 24]

Every flight is served by the parameters in force when it was scored. Settings were chosen on February to May; June to
December are reported with what was chosen. Printed for both: mean log loss; mean over UTC months, and over consecutive
blocks of 6,000 flights, of the ECE in ten equal-width bins. The rivals are computed here from rows:

- Platt daily: maximum likelihood at every UTC midnight on the outcomes of the fourteen days before;
- online Platt scaling (Gupta and Ramdas 2023): an online Newton step per outcome, from the identity map;
- single rate: a filter over hours of outcome time, random walk of variance 1e-4 an hour on the intercept and a fifth of
  it on the slope; and the same with offsets per carrier and airport, half-life seven days, shrunk.

*streamcal tracking* moves with every step. *refit loop* is what `streamcal replay` does with `examples/flights`: hourly
attempts decide what is in force, and a promoted filter publishes hourly; once with the families of its configuration
and once without tracking, each also with corrections per carrier and airport. (Trap: the filter's experts are weighed
by what they said when a flight was scored. Weighed when it landed, those that forget fastest win.)

Without network or randomness; four minutes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from streamcal.maps.costs import DEFAULT_FAMILIES
from streamcal.maps.experts import TrackingSettings
from streamcal.maps.segments import SegmentTracker
from streamcal.maps.tracking import TrackingFilter, step_cells
from streamcal.stats.counts import contributions
from streamcal.stream.events import Names

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # what drives a loop

from refit_streams import Labelled, drive, settings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HOUR, DAY = 3_600_000, 86_400_000
JUNE = int(np.datetime64("2013-06-01", "ms").astype(np.int64))
TABLE = Path(__file__).parent.parent / "examples" / "flights" / "flights.csv.gz"
BLOCK = 6_000
CUT = ("carrier", "origin")


@dataclass(frozen=True)
class Flights:
    """Rows in order of prediction; `leaf` numbers carrier and airport, `parents` leads from there to the carrier."""

    scored_ms: Ints
    known_ms: Ints
    p: Floats
    x: Floats
    y: Ints
    carrier: list[str]
    origin: list[str]
    leaf: NDArray[np.intp]
    parents: list[NDArray[np.intp]]


def read() -> Flights:
    with gzip.open(TABLE, "rt") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: (int(row["scored_ms"]), int(row["id"])))
    p = np.array([float(row["score"]) for row in rows])
    clipped = np.clip(p, 1e-7, 1 - 1e-7)
    _, carrier = np.unique([row["carrier"] for row in rows], return_inverse=True)
    _, leaf = np.unique([f"{row['carrier']},{row['origin']}" for row in rows], return_inverse=True)
    of_leaf = np.zeros(leaf.max() + 1, dtype=np.intp)
    of_leaf[leaf] = carrier
    return Flights(
        np.array([int(row["scored_ms"]) for row in rows]),
        np.array([int(row["known_ms"]) for row in rows]),
        p,
        np.log(clipped / (1 - clipped)),
        np.array([int(row["label"]) for row in rows]),
        [row["carrier"] for row in rows],
        [row["origin"] for row in rows],
        leaf,
        [of_leaf, np.zeros(carrier.max() + 1, dtype=np.intp)],
    )


# --- what is printed -------------------------------------------------------------------------------------------------


def ece(p: Floats, y: Ints) -> float:
    bins = np.minimum(np.ceil(p * 10).astype(int) - 1, 9)
    return float(np.abs(np.bincount(np.maximum(bins, 0), y - p, 10)).sum() / len(p))


def figures(flights: Flights, served: Floats, chosen: NDArray[np.bool_]) -> tuple[float, float, float]:
    z, y = served[chosen], flights.y[chosen]
    p = expit(z)
    months = flights.scored_ms[chosen].astype("datetime64[ms]").astype("datetime64[M]")
    monthly = [ece(p[months == month], y[months == month]) for month in np.unique(months)]
    starts = range(0, len(p) - BLOCK + 1, BLOCK)
    blocks = [ece(p[start : start + BLOCK], y[start : start + BLOCK]) for start in starts]
    return float(np.mean(np.logaddexp(0, z) - y * z)), float(np.mean(monthly)), float(np.mean(blocks))


# --- rivals ----------------------------------------------------------------------------------------------------------


def newton(x: Floats, y: Ints, mean: Floats, precision: Floats, steps: int) -> tuple[Floats, Floats]:
    """Mode over (intercept, slope) under a normal prior, and the information there."""
    at = mean.copy()
    design = np.column_stack([np.ones_like(x), x])
    information = precision
    for _ in range(steps + 1):
        s = expit(design @ at)
        information = precision + (design * (s * (1 - s))[:, None]).T @ design
        at = at + np.linalg.solve(information, design.T @ (y - s) - precision @ (at - mean))
    return at, information


def platt_daily(flights: Flights) -> Floats:
    served = flights.x.copy()
    order = np.argsort(flights.known_ms, kind="stable")
    known = flights.known_ms[order]
    days = flights.scored_ms // DAY
    for day in np.unique(days):
        first, last = np.searchsorted(known, [(day - 14) * DAY, day * DAY])
        if last - first < 100:
            continue
        fit = order[first:last]
        (a, b), _ = newton(flights.x[fit], flights.y[fit], np.array([0.0, 1.0]), np.zeros((2, 2)), 10)
        served[days == day] = a + b * flights.x[days == day]
    return served


def online_platt(flights: Flights) -> Floats:
    p = np.clip(flights.p, 1e-5, 1 - 1e-5)
    x, y, scored = np.log(p / (1 - p)).tolist(), flights.y.tolist(), flights.scored_ms.tolist()
    order = np.argsort(flights.known_ms, kind="stable").tolist()
    known = flights.known_ms[order].tolist()
    a, b, aa, ab, bb = 1.0, 0.0, 0.01, 0.0, 0.01
    served, learned = [], 0
    for now, z in zip(scored, x, strict=True):
        while learned < len(known) and known[learned] <= now:
            row = order[learned]
            error = 1 / (1 + np.exp(-(a * x[row] + b))) - y[row]
            ga, gb = error * x[row], error
            ua, ub = aa * ga + ab * gb, ab * ga + bb * gb
            scale = 1 + ga * ua + gb * ub
            aa, ab, bb = aa - ua * ua / scale, ab - ua * ub / scale, bb - ub * ub / scale
            a, b = a - 10 * (aa * ga + ab * gb), b - 10 * (ab * ga + bb * gb)
            learned += 1
        served.append(a * z + b)
    return np.array(served)


def panes(flights: Flights, length_ms: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Of each pane in turn: the rows predicted in it, and those that became known in it."""
    scored, known = flights.scored_ms // length_ms, flights.known_ms // length_ms
    order = np.argsort(known, kind="stable")
    edges = np.arange(scored.min(), known.max() + 2)
    by_scored, by_known = np.searchsorted(scored, edges), np.searchsorted(known[order], edges)
    for i in range(len(edges) - 1):
        yield np.arange(by_scored[i], by_scored[i + 1]), order[by_known[i] : by_known[i + 1]]


def single_rate(flights: Flights) -> tuple[Floats, Floats]:
    """Served logits without and with offsets."""
    mean, covariance = np.array([0.0, 1.0]), np.diag([1.0, 0.25])
    score, information = np.zeros(flights.leaf.max() + 1), np.zeros(flights.leaf.max() + 1)
    offset = np.zeros_like(score)
    plain, offsets = np.empty_like(flights.x), np.empty_like(flights.x)
    for predicted, known in panes(flights, HOUR):
        plain[predicted] = mean[0] + mean[1] * flights.x[predicted]
        offsets[predicted] = plain[predicted] + offset[flights.leaf[predicted]]
        covariance = covariance + np.diag([1e-4, 2e-5])
        if len(known):
            x, y, leaf = flights.x[known], flights.y[known], flights.leaf[known]
            mean, inverse = newton(x, y, mean, np.linalg.inv(covariance), 2)
            covariance = np.linalg.inv(inverse)
        score *= 0.5 ** (1 / 168)
        information *= 0.5 ** (1 / 168)
        if len(known):
            s = expit(mean[0] + mean[1] * x + offset[leaf])
            spread = s * (1 - s)
            score += np.bincount(leaf, y - s + spread * offset[leaf], len(score))
            information += np.bincount(leaf, spread, len(score))
        offset = shrunk(score, information)
    return plain, offsets


def shrunk(score: Floats, information: Floats) -> Floats:
    """DerSimonian and Laird on one level, about what the segments have in common: adding that too costs .002."""
    held = information > 0
    offset = np.zeros_like(score)
    if held.sum() > 1:
        i, b = information[held], score[held] / information[held]
        mu = (i * b).sum() / i.sum()
        excess = (i * (b - mu) ** 2).sum() - (len(i) - 1)
        tau2 = max(0.0, excess / (i.sum() - (i * i).sum() / i.sum()))
        offset[held] = (b - mu) * tau2 / (tau2 + 1 / i)
    return offset


# --- ours ------------------------------------------------------------------------------------------------------------


def tracking(flights: Flights, step_ms: int, half_life_ms: int) -> tuple[Floats, Floats]:
    """Served logits of the mixture, without and with offsets; learned from counts alone."""
    settings = TrackingSettings(memory_steps=DAY // step_ms + 1, step_ms=step_ms)
    step = int(flights.scored_ms.min()) // step_ms
    followed = TrackingFilter(settings, step)
    segments = SegmentTracker(half_life_ms / step_ms)
    bins, values, _ = contributions(flights.p, flights.y)
    predicted_step = flights.scored_ms // step_ms
    plain, offsets = np.empty_like(flights.x), np.empty_like(flights.x)
    intercept, slope = np.zeros(len(flights.parents[0])), np.zeros(len(flights.parents[0]))
    for predicted, known in panes(flights, step_ms):
        a, b = followed.current()
        x, leaf = flights.x[predicted], flights.leaf[predicted]
        plain[predicted] = a + b * x
        offsets[predicted] = plain[predicted] + intercept[leaf] + slope[leaf] * x
        cells = step_cells(predicted_step[known], bins[known], values[known])
        followed.update(step, cells)
        a, b = followed.current()
        found = segments.update(1, cells.rows, flights.leaf[known], a + b * cells.rows.logit, flights.parents)
        intercept, slope = found.intercepts[-1], found.slopes[-1]
        step += 1
    return plain, offsets


def refit_loop(flights: Flights, *families: str, by: tuple[str, ...] = ()) -> Floats:
    order = np.argsort(flights.known_ms, kind="stable")
    names = Names(("carrier", "origin"))
    pairs = zip(flights.carrier, flights.origin, strict=True)
    profile = np.array([names.profile(pair) for pair in pairs], dtype=np.int32)
    rows = Labelled(
        flights.scored_ms[order],
        flights.known_ms[order],
        flights.x[order],
        flights.y[order].astype(np.bool_),
        profile[order],
        names,
    )
    driven = drive(rows, settings(families=families, dimensions=by))
    segments = {"carrier": flights.carrier, "origin": flights.origin}
    served = driven.served_at(flights.scored_ms, flights.x, segments)
    return np.log(served) - np.log1p(-served)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step-minutes", type=int, default=15)
    parser.add_argument("--half-life-hours", type=int, default=24)
    args = parser.parse_args()
    flights = read()
    later = flights.scored_ms >= JUNE
    print(f"{(~later).sum():,} flights scored before June, {later.sum():,} from 1 June UTC on")
    print(f"{'':34}{'February to May (choice)':^27}  {'June to December (report)':^27}  {'':>7}")
    print(f"{'':34}{'log loss  monthly    6,000':>27}  {'log loss  monthly    6,000':>27}  {'seconds':>7}")
    methods: list[tuple[tuple[str, ...], Callable[[], tuple[Floats, ...]]]] = [
        (("raw",), lambda: (flights.x,)),
        (("Platt daily, 14 days",), lambda: (platt_daily(flights),)),
        (("online Platt scaling",), lambda: (online_platt(flights),)),
        (("single-rate filter", "  with carrier,origin, 7 days"), lambda: single_rate(flights)),
        (
            ("streamcal tracking", "  with carrier -> carrier,origin"),
            lambda: tracking(flights, args.step_minutes * 60_000, args.half_life_hours * HOUR),
        ),
        (("refit loop, as the example",), lambda: (refit_loop(flights, *DEFAULT_FAMILIES, "tracking"),)),
        (
            ("  with corrections by carrier,origin",),
            lambda: (refit_loop(flights, *DEFAULT_FAMILIES, "tracking", by=CUT),),
        ),
        (("refit loop without tracking",), lambda: (refit_loop(flights, *DEFAULT_FAMILIES),)),
        (("  with corrections by carrier,origin",), lambda: (refit_loop(flights, *DEFAULT_FAMILIES, by=CUT),)),
    ]
    for names, run in methods:
        start = time.perf_counter()
        served = run()
        seconds = time.perf_counter() - start
        for name, z in zip(names, served, strict=True):
            numbers = [f"{n:9.5f}" for chosen in (~later, later) for n in figures(flights, z, chosen)]
            print(f"{name:34}{''.join(numbers[:3])}  {''.join(numbers[3:])}  {seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()
