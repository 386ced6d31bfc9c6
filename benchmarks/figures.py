"""Cost of the figures: every series of a snapshot at once from counts, beside a loop over the usual libraries.

    python benchmarks/figures.py [--segments 1000] [--windows 2] [--compared 20] [--runs 5]

Seeded, without network, pinned to one core (medians in CPU seconds: others may share it). The loop does per series what
a notebook does from the rows: scikit-learn's calibration curve, Brier score, log loss and isotonic regression,
statsmodels' logistic fit with standard errors and the one with the slope held at 1. It covers less than half of the
figures; its time for a few series is scaled to all. The rows it reads are those counted, and the values are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import statsmodels.api as sm
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

from streamcal.stats.counts import contributions, promote
from streamcal.stats.figures import FIGURES, figures
from streamcal.stats.smooth import smooth_ece

ROWS = (300, 30_000)
"""Smallest and largest segment; sizes between are uniform in the logarithm."""
BASE_RATES = (0.5, 0.1, 0.02)
ENOUGH = 20


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of one slightly over-confident series."""
    rng = np.random.default_rng(seed)
    n = int(np.exp(rng.uniform(*np.log(ROWS))))
    rate = rng.choice(BASE_RATES)
    x = rng.normal(np.log(rate / (1 - rate)), 1.3, n)
    return 1 / (1 + np.exp(-x)), (rng.random(n) < 1 / (1 + np.exp(-(0.9 * x - 0.05)))).astype(np.int64)


def counted(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    bins, values, _ = contributions(p, y)
    counts = np.zeros((284, values.shape[1]), dtype=np.int64)
    np.add.at(counts, bins, values)
    return counts


def by_libraries(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Figures of one series from its rows."""
    observed, predicted = calibration_curve(y, p, n_bins=10)
    n = np.bincount(np.searchsorted(np.linspace(0, 1, 11)[1:-1], p), minlength=10)
    gap = np.abs(observed - predicted)
    brier = brier_score_loss(y, p)
    isotonic = IsotonicRegression().fit(p, y)
    result = {
        "ece": float((gap * n[n > 0]).sum() / len(p)),
        "mce": float(gap.max()),
        "brier": brier,
        "brier_reliability": brier - brier_score_loss(y, isotonic.predict(p)),
        "log_loss": log_loss(y, p),
        "ratio": p.sum() / max(y.sum(), 1),
    }
    if ENOUGH <= y.sum() <= len(y) - ENOUGH:
        x = np.log(p / (1 - p))
        binomial = sm.families.Binomial()
        fit = sm.GLM(y, sm.add_constant(x), family=binomial).fit()
        offset = sm.GLM(y, np.ones(len(y)), family=binomial, offset=x).fit()
        result |= {"platt_intercept": fit.params[0], "platt_slope": fit.params[1]}
        result |= {"platt_intercept_se": fit.bse[0], "platt_slope_se": fit.bse[1]}
        result |= {"offset_intercept": offset.params[0]}
    return result


def median_s(run: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--compared", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    total = args.segments * args.windows * 2
    counts = np.stack([counted(*drawn(seed)) for seed in range(total)])
    rows = [drawn(seed) for seed in range(args.compared)]
    plain = median_s(lambda: figures(counts), args.runs)
    weighted = promote(counts)
    heavy = median_s(lambda: figures(weighted), args.runs)
    smooth = median_s(lambda: smooth_ece(counts[0]), args.runs)

    start = time.process_time()
    expected = [by_libraries(p, y) for p, y in rows]
    loop = (time.process_time() - start) * total / args.compared

    found = figures(counts[: args.compared])
    worst = {
        name: max(abs(found[name][i] - one[name]) for i, one in enumerate(expected) if name in one)
        for name in expected[0]
        if name != "brier_reliability"  # isotonic over rows overfits them and is larger
    }
    print(f"{total} series ({args.segments} segments x {args.windows} windows x 2 score kinds), {len(FIGURES)} figures")
    print(f"from counts            {plain:8.3f} s")
    print(f"from weighted counts   {heavy:8.3f} s")
    print(f"libraries, extrapolated{loop:8.1f} s   ({args.compared} series measured, {len(expected[0])} figures)")
    print(f"ratio                  {loop / plain:8.0f}")
    print(f"smooth ECE, one series {smooth:8.3f} s   (on demand for `all`)")
    print("largest differences    " + ", ".join(f"{name} {value:.0e}" for name, value in worst.items()))


if __name__ == "__main__":
    main()
