"""How close each family comes to the truth from few labels, beside scikit-learn and beta calibration on the same rows.

Three truths about a model that scores x ~ N(m, 1.5) in the logit, positives about 2 %: a line (Platt), the score itself
(identity), a line with a wave (wiggly). A fit gets as many rows as hold 50, 300 or 2,000 positives on average. What is
printed is the excess of its expected log loss over the truth's, as a percentage of the truth's: 0 is perfect, and
positive is what the map costs. Expectations are over a grid of 20,000 quantiles of x, not over drawn labels; printed
are means over the repetitions, with their standard error in brackets.

The row *in force* is what the refit loop has in force at the end, from its own attempts: the same number of rows
arrives over ten days, attempts are hourly, and of nothing is known which family is right.

Two further tables of the loop: years of hourly attempts on a calibrated model, whole and with corrections of twenty
segments that do not differ, and streams of which one burst of 2 % has its labels flipped.

Rivals read rows, not counts: scikit-learn's `IsotonicRegression` clipped to [1e-6, 1 - 1e-6] and its sigmoid (Platt
with his targets) on logits; beta calibration by the exact maximum-likelihood GLM with its authors' rule for negative
parameters. Seeded; half an hour, or less with fewer years.

    python benchmarks/maps.py [--years 20] [--families intercept,platt,cir]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy.special import expit, log_expit, ndtri
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from streamcal.maps.costs import DEFAULT_FAMILIES
from streamcal.maps.families import Map
from streamcal.maps.fit import FITS, fit_platt
from streamcal.maps.fit_girb import GirbSettings, fit_girb
from streamcal.stats.counts import PLAIN, contributions
from streamcal.stats.layout import N_BINS
from streamcal.stream.events import Names

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the streams

from refit_streams import DAY, HOUR, Labelled, drive, settings, stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Apply = Callable[[Floats], Floats]

BASE_RATE = 0.02
MEAN, SPREAD = -4.91, 1.5
POSITIVES = (50, 300, 2000)
REPEATS = {50: 40, 300: 24, 2000: 12}
PANES = 20
RATE_CLIP = 1e-6
GRID: Floats = MEAN + SPREAD * ndtri((np.arange(20_000) + 0.5) / 20_000)

TRUTHS: dict[str, Apply] = {
    "platt": lambda x: 0.687 * x - 1.015,
    "identity": lambda x: x,
    "wiggly": lambda x: 0.8 * x - 0.737 + 0.51 * np.sin(1.5 * x),
}
"""Logit of the true rate at the raw logit x."""


@dataclass(frozen=True)
class Rows:
    """One sample: raw logits, labels, and the counts of each of `PANES` stretches of time."""

    x: Floats
    y: NDArray[np.bool_]
    panes: Ints

    @property
    def counts(self) -> Ints:
        return self.panes.sum(axis=0)


def sample(truth: Apply, positives: int, rng: np.random.Generator) -> Rows:
    """Rows that hold `positives` positives on average."""
    n = round(positives / float(expit(truth(GRID)).mean()))
    x = rng.normal(MEAN, SPREAD, n)
    y = rng.random(n) < expit(truth(x))
    bins, values, _ = contributions(expit(x), y)
    panes = np.zeros((PANES * N_BINS, PLAIN), dtype=np.int64)
    np.add.at(panes, np.arange(n) * PANES // n * N_BINS + bins, values)
    return Rows(x, y, panes.reshape(PANES, N_BINS, PLAIN))


def excess(truth: Apply, served: Floats) -> float:
    """Expected log loss above the truth's, in % of it."""
    t = truth(GRID)
    rate = expit(t)
    least = -(rate * log_expit(t) + (1 - rate) * log_expit(-t)).mean()
    loss = -(rate * np.log(served) + (1 - rate) * np.log1p(-served)).mean()
    return 100.0 * float((loss - least) / least)


def ours(fit: Callable[[Rows, Map], Map | str]) -> Callable[[Rows], Floats]:
    """What a fit serves on the grid; the raw scores where it refuses."""

    def serve(rows: Rows) -> Floats:
        prior = fit_platt(rows.counts, FITS["identity"](rows.counts, None))
        map_ = fit(rows, prior if not isinstance(prior, str) else FITS["identity"](rows.counts, None))
        return expit(GRID) if isinstance(map_, str) else map_.apply(expit(GRID))

    return serve


def girb(**settings: object) -> Callable[[Rows, Map], Map | str]:
    return lambda rows, prior: fit_girb(rows.counts, prior, GirbSettings(**settings), rows.panes)


def sklearn_isotonic(rows: Rows) -> Floats:
    fit = IsotonicRegression(out_of_bounds="clip").fit(rows.x, rows.y)
    return np.clip(fit.predict(GRID), RATE_CLIP, 1 - RATE_CLIP)


def sklearn_sigmoid(rows: Rows) -> Floats:
    return _SigmoidCalibration().fit(rows.x, rows.y).predict(GRID)


def exact_beta(rows: Rows) -> Floats:
    """Maximum likelihood; a negative a or b is left out and the rest fitted again."""

    def features(x: Floats) -> Floats:
        return np.column_stack([log_expit(x), -log_expit(-x), np.ones_like(x)])

    used = [0, 1, 2]
    fit = sm.GLM(rows.y, features(rows.x), family=sm.families.Binomial()).fit().params
    if min(fit[:2]) < 0:
        used = [1, 2] if fit[0] < 0 else [0, 2]
        fit = sm.GLM(rows.y, features(rows.x)[:, used], family=sm.families.Binomial()).fit().params
    return expit(features(GRID)[:, used] @ fit)


METHODS: dict[str, Callable[[Rows], Floats]] = {
    **{name: ours(lambda rows, prior, fit=fit: fit(rows.counts, prior)) for name, fit in FITS.items()},
    "girb, cross-validated": ours(girb(groups="cross_validation")),
    "girb, not smoothed": ours(girb(strength=0.0)),
    "rows: sklearn isotonic": sklearn_isotonic,
    "rows: sklearn sigmoid": sklearn_sigmoid,
    "rows: beta, exact": exact_beta,
}


def table() -> dict[str, list[tuple[float, float]]]:
    """Method to mean and standard error for every truth and number of positives."""
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    for number, truth in enumerate(TRUTHS.values()):
        for positives in POSITIVES:
            rng = np.random.default_rng([5, number, positives])
            samples = [sample(truth, positives, rng) for _ in range(REPEATS[positives])]
            for name, serve in METHODS.items():
                costs = [excess(truth, serve(rows)) for rows in samples]
                results[name].append((float(np.mean(costs)), float(np.std(costs) / np.sqrt(len(costs)))))
    return results


def in_force(families: tuple[str, ...]) -> list[tuple[float, float]]:
    """As a row of `table`, of what the loop has in force after ten days of hourly attempts."""
    cells = []
    for number, truth in enumerate(TRUTHS.values()):
        for positives in POSITIVES:
            rng = np.random.default_rng([5, number, positives])
            n = round(positives / float(expit(truth(GRID)).mean()))
            costs = []
            for _ in range(REPEATS[positives]):
                rows = stream(rng, n, 10 * DAY, lambda x, _, truth=truth: truth(x), mean=MEAN, spread=SPREAD)
                loop = drive(rows, settings(families=families, horizon_ms=6 * HOUR)).loop
                costs.append(excess(truth, loop.champion.map_.apply(expit(GRID))))
            cells.append((float(np.mean(costs)), float(np.std(costs) / np.sqrt(len(costs)))))
    return cells


def calm_years(years: int, families: tuple[str, ...], segments: int = 0) -> None:
    """A calibrated model, 900 rows a day, labels up to six hours late: who promotes anything in a year?"""
    by = f", corrections of {segments} segments" if segments else ""
    print(f"\na calibrated model, {years} years of hourly attempts{by}")
    promoting = 0
    for year in range(years):
        rng = np.random.default_rng([9, year])
        rows = stream(rng, 365 * 900, 365 * DAY, lambda x, _: x, mean=-1.5, delay_ms=6 * HOUR)
        chosen = settings(families=families)
        if segments:
            names = Names(("place",))
            known = [names.profile((f"p{number}",)) for number in range(segments)]
            rows = replace(rows, profile=rng.choice(known, len(rows.y)).astype(np.int32), names=names)
            chosen = replace(chosen, dimensions=("place",))
        driven = drive(rows, chosen)
        promoting += bool(driven.documents)
        for document in driven.documents:
            what = f"{document.family}, {len(document.segments)} segments, version {document.version}"
            print(f"  year {year}, day {document.at_ms / DAY:.0f}: {what}", flush=True)
    print(f"  {promoting} of {years} promote anything")


def poisoned(families: tuple[str, ...]) -> None:
    """Labels flipped for 2 % of the stream in one burst; log loss above the raw scores', over everything."""
    print("\nlabels flipped for 2 % of the stream in one burst")
    print(f"{'a day':>8} {'days':>5} {'burst':>13} {'maps (day)':>44} {'log loss - raw':>15}")
    for per_day, mean in ((2_000, -1.5), (20_000, MEAN)):
        for days in (50, 100):
            for began in (0.3, 0.7):
                rng = np.random.default_rng([9, days])
                rows = stream(rng, days * per_day, days * DAY, lambda x, _: x, mean=mean, delay_ms=6 * HOUR)
                flipped = np.zeros(len(rows.y), dtype=np.bool_)
                flipped[int(began * len(flipped)) : int((began + 0.02) * len(flipped))] = True
                y = rows.y ^ flipped
                driven = drive(Labelled(rows.predicted_ms, rows.known_ms, rows.x, y), settings(families=families))
                served, raw = driven.served_at(rows.predicted_ms, rows.x), expit(rows.x)
                loss = float((np.where(y, np.log(raw / served), np.log1p(-raw) - np.log1p(-served))).mean())
                burst = " to ".join(f"{rows.known_ms[flipped][i] / DAY:.1f}" for i in (0, -1))
                maps = ", ".join(f"{d.family} ({d.at_ms / DAY:.2f})" for d in driven.documents) or "none"
                print(f"{per_day:8,} {days:5} {burst:>13} {maps:>44} {loss:15.5f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=int, default=20)
    parser.add_argument("--families", default=",".join(DEFAULT_FAMILIES))
    args = parser.parse_args()
    families = tuple(args.families.split(","))
    start = time.perf_counter()
    results = table()
    results[f"in force ({len(families)} families)"] = in_force(families)
    print(f"excess log loss in % of the truth's, {REPEATS} repetitions, (standard error)\n")
    print(f"{'':24}" + "".join(f"{name:>12} {n:>5,}" for name in TRUTHS for n in POSITIVES))
    for name, cells in results.items():
        print(f"{name:24}" + "".join(f"{mean:9.2f} ({error:5.2f}) " for mean, error in cells))
    poisoned(families)
    calm_years(args.years, families)
    calm_years(args.years, families, segments=20)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
