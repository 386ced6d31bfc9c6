"""ECCE/sigma from 284 bins against the walk over single rows, with and without what bins are expected to hide.

    python benchmarks/ecce.py [--streams 60]

Seeded. For each kind of stream: mean of the row-level figure (ties moving together), then bias and root mean square
error of both estimates in percent of it. `slope 1, shift 0` is a calibrated stream.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

from streamcal.stats.counts import contributions
from streamcal.stats.figures import figures

BASE_RATES = (0.5, 0.1, 0.01, 0.001)
ROWS = (1_000, 5_000, 50_000)
MAPS = ((1.0, 0.0), (0.8, 0.0), (1.0, 0.2))
DECIMALS = (None, 3, 2)


def counted(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    bins, values, _ = contributions(p, y)
    counts = np.zeros((284, values.shape[1]), dtype=np.int64)
    np.add.at(counts, bins, values)
    return counts


def by_rows(p: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Range of the walk in standard deviations, and one standard deviation."""
    order = np.argsort(p, kind="stable")
    p, y = p[order], y[order]
    walk = np.append(0.0, np.cumsum(y - p)[np.append(p[1:] != p[:-1], True)]) / len(p)
    sd = float(np.sqrt((p * (1 - p)).sum()) / len(p))
    return float(walk.max() - walk.min()) / sd, sd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=60)
    args = parser.parse_args()
    rng = np.random.default_rng(7)
    print("  base     rows  slope shift decimals |  rows   bin ends: bias  rmse   with bridges: bias  rmse")
    for base, n, (slope, shift), decimals in itertools.product(BASE_RATES, ROWS, MAPS, DECIMALS):
        if decimals is not None and (base < 0.05 or n > 5_000):
            continue  # rounded to nothing, or ties only
        exact, sds, counts = [], [], []
        for _ in range(args.streams):
            x = rng.normal(np.log(base / (1 - base)), 1.5, n)
            p = 1 / (1 + np.exp(-x))
            y = (rng.random(n) < 1 / (1 + np.exp(-(slope * x + shift)))).astype(np.int64)
            p = p if decimals is None else np.round(p, decimals)
            span, sd = by_rows(p, y)
            exact.append(span)
            sds.append(sd)
            counts.append(counted(p, y))
        found = figures(np.stack(counts))
        truth = np.array(exact)
        cells = []
        for estimate in (found["ecce"] / np.array(sds), found["ecce_sigma"]):
            error = (estimate - truth) / truth.mean()
            cells.append(f"{100 * error.mean():6.1f} {100 * np.sqrt(np.mean(error**2)):5.1f}")
        kind = f"{base:6} {n:8} {slope:6} {shift:5} {decimals or '':>8}"
        print(f"{kind} | {truth.mean():5.2f}         {cells[0]}              {cells[1]}")


if __name__ == "__main__":
    main()
