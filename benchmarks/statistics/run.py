"""What the alarms do on streams whose truth is known: false alarms, delays, faults, phi; printed as tables.

Seeded, without network: ``python benchmarks/statistics/run.py [part ...]``, some minutes in all on one core. Each row
has the measured value, what it is held to, and a mark where it does not hold; beside the alarm stands what a
threshold on z or ECE would have done on the same rows. The suite runs the same measurements with fewer runs.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tests")  # the streams; and this folder must not shadow the standard `statistics`

import numpy as np  # noqa: E402
from alarm_events import calibrated_events  # noqa: E402
from alarm_streams import (  # noqa: E402
    Rows,
    Scores,
    cells,
    delayed,
    feed,
    first_raised,
    information,
    panes,
    scores,
    settings,
    shocks,
    watch,
)
from engine_streams import DAY_MS, engine, slices  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from recount_events import Labels, Rules  # noqa: E402
from scipy.special import expit  # noqa: E402

from streamcal.detect.bets import FAULTS  # noqa: E402
from streamcal.detect.detector import Detector, DetectorSettings  # noqa: E402
from streamcal.detect.triggers import ChangeTriggers  # noqa: E402
from streamcal.stats.counts import contributions  # noqa: E402
from streamcal.stats.layout import N_BINS  # noqa: E402
from streamcal.stats.platt import fit_platt  # noqa: E402

Floats = NDArray[np.float64]
ROWS_PER_PANE = {0.5: 50, 0.01: 200, 0.001: 1000}


def line(what: str, measured: str, held_to: str = "", *, good: bool = True) -> None:
    print(f"  {what:58s} {measured:>34s}   {held_to}{'' if good else '   DOES NOT HOLD'}", flush=True)


def calibrated() -> None:
    print("calibrated streams, A = 2,000 panes: alarms within 200 panes, mean run length; every pane looked at")
    for base, rows in ROWS_PER_PANE.items():
        grid = scores(base)
        for name, changes in (
            ("phi 1, no tolerance", {"dispersion": 1.0, "tolerance": 0.0}),
            ("phi estimated, no tolerance", {"tolerance": 0.0}),
            ("as shipped", {}),
        ):
            runs = 400
            detector = Detector(settings(panes=2000, **changes))
            share = (
                len(first_raised(watch(detector, grid, panes(grid, runs, rows, 1, itertools.repeat(grid.p, 200)))))
                / runs
            )
            most = 0.1 + 2 * np.sqrt(0.1 * 0.9 / runs)
            line(f"base rate {base}, {name}: alarm within 200", f"{share:.4f}", f"<= {most:.3f}", good=share <= most)
            runs, count = 60, 12_000
            detector = Detector(settings(panes=2000, clear_after=1, **changes))
            restarts = run_lengths(detector, panes(grid, runs, rows, 2, itertools.repeat(grid.p, count)), grid)
            length = runs * count / max(restarts, 1)
            line(
                f"base rate {base}, {name}: mean run length",
                f"{length:.0f} ({restarts} alarms)",
                ">= 2000",
                good=length >= 2000,
            )
        own, all_so_far = peeking(grid, 400, rows, 200)
        line(
            f"base rate {base}: |z| > 1.96 at some of 200 panes",
            f"{own:.3f}; of all rows so far {all_so_far:.3f}",
            "compare",
        )


def run_lengths(detector: Detector, stream: Iterable[Rows], grid: Scores) -> int:
    """Times the evidence crossed, over all runs; each time it starts afresh."""
    crossed = 0
    for pane, rows in enumerate(stream):
        detector.update_cells(pane, *cells(grid, rows))
        crossed += int((detector.panes[: len(rows.n)] == 0).sum())
    return crossed


def peeking(grid: Scores, runs: int, rows: int, count: int) -> tuple[float, float]:
    """Share of runs in which z of a pane, or of all rows so far, is ever beyond 1.96."""
    total, fired = np.zeros((2, runs)), np.zeros((2, runs), dtype=bool)
    for pane in panes(grid, runs, rows, 3, itertools.repeat(grid.p, count)):
        now = np.stack([(pane.y - pane.n * grid.p).sum(axis=1), (pane.n * grid.p * (1 - grid.p)).sum(axis=1)])
        total += now
        fired |= [gap * gap > 1.96**2 * variance for gap, variance in (now, total)]
    return float(fired[0].mean()), float(fired[1].mean())


def small() -> None:
    print("few rows in all (5 panes), base rate .3: runs of 1,000 with an alarm, and with ECE > .05")
    grid, runs = scores(0.3), 1000
    tenths = np.ceil(grid.p * 10).astype(int)
    for total in (35, 50, 200):
        stream = list(panes(grid, runs, total / 5, 4, itertools.repeat(grid.p, 5)))
        alarms = len(first_raised(watch(Detector(settings(panes=43_200)), grid, stream)))
        n, y = sum(pane.n for pane in stream), sum(pane.y for pane in stream)
        gap = np.abs(np.stack([(y - n * grid.p)[:, tenths == k].sum(axis=1) for k in range(1, 11)])).sum(axis=0)
        line(f"{total} rows: alarm", f"{alarms / runs:.3f}", "<= .01", good=alarms <= runs / 100)
        line(f"{total} rows: ECE (10 bins) > .05", f"{(gap > 0.05 * n.sum(axis=1)).mean():.3f}", "compare")


def delays() -> None:
    print("calibrated, positives 6 h late, negatives 1 h, daily cycle, 4 days: alarms in 8 runs (phi 1; estimated)")
    for name, order in (
        ("sealed prediction-time panes (both modes)", lambda r: r.made),
        ("both, by arrival of the outcome", lambda r: r.known),
        ("positives_only, positives on arrival", lambda r: np.where(r.y == 1, r.known, r.made + 24)),
    ):
        hits = [0, 0]
        for seed in range(8):
            rows = delayed(seed, days=4, per_hour=2000)
            for at, phi in enumerate((1.0, None)):
                detector = Detector(DetectorSettings(96, 1.0, 1, 96, dispersion=phi))
                hits[at] += bool(first_raised(feed(detector, order(rows), rows.p, rows.y, 0.25)))
        sealed = name.startswith("sealed")
        line(name, f"{hits[0]} / 8; {hits[1]} / 8", "0" if sealed else "compare", good=not sealed or not any(hits))
    for labels in ("both", "positives_only"):
        hits = [sum(machine_alarms(seed, labels, phi) for seed in range(8)) for phi in (1.0, None)]
        line(f"events through the engine, labels: {labels}", f"{hits[0]} / 8; {hits[1]} / 8", "0", good=not any(hits))


def machine_alarms(seed: int, labels: Labels, phi: float | None) -> bool:
    """Whether any alarm comes of the events, in batches of some thousands, as the daemon would take them."""
    rules = Rules(horizon_ms=DAY_MS, out_of_order_ms=60_000, pane_ms=900_000, labels=labels)
    events = calibrated_events(seed, 4, 1000, positives_only=labels == "positives_only")
    machine = engine(rules, refit={"mode": "off"}, alarms={"dispersion": phi})
    for start in range(0, len(events), 5000):
        machine.handle(slices(events[start : start + 5000]))
    (watch,) = machine.watches.values()
    return bool(watch.alarms)


def correlated() -> None:
    print("shared shocks, phi estimated, A = 518,400, 3,000 panes: runs of 200 with an alarm (with phi 1)")
    for base, rows in ((0.01, 500), (0.01, 5000), (0.001, 1000), (0.1, 1000)):
        grid, runs, count = scores(base), 200, 3000
        for name, sd, memory in (("independent shocks, sd .5", 0.5, 0.0), ("AR(.9) shocks, sd .2", 0.2, 0.9)):
            for tolerance in (0.1, 0.0):
                alarms = {}
                for phi in (None, 1.0):
                    rates = shocks(grid, runs, count, 5, sd=sd, memory=memory)
                    detector = Detector(settings(dispersion=phi, tolerance=tolerance))
                    found = first_raised(watch(detector, grid, panes(grid, runs, rows, 6, rates)))
                    alarms[phi] = found
                early = sum(event.pane < 20 for event in alarms[None].values())
                share = len(alarms[None]) / runs
                line(
                    f"base rate {base}, {rows} rows, {name}, tolerance {tolerance}",
                    f"{share:.3f} (first 20 panes: {early / runs:.3f}; phi 1: {len(alarms[1.0]) / runs:.2f})",
                    "<= .05",
                    good=share <= 0.05,
                )


def detection() -> None:
    print("detection delay over its formula (ln A + ln K) / D, base rate .0105, 500 rows a pane, A = 518,400, 200 runs")
    grid, runs = scores(0.0105), 200
    x, m = grid.x, grid.pivot
    faults = {
        "+.2": (expit(x + 0.2), "scores_too_low"),
        "+.5": (expit(x + 0.5), "scores_too_low"),
        "-.5": (expit(x - 0.5), "scores_too_high"),
        "slope .8": (expit(m + 0.8 * (x - m)), "over_confident"),
        "slope .6": (expit(m + 0.6 * (x - m)), "over_confident"),
    }
    for calm, phi in ((0, 1.0), (0, None), (200, None), (2000, 1.0), (2000, None)):
        for name, (rate, fault) in faults.items():
            detector = Detector(settings(tolerance=0.0, dispersion=phi))
            expected = (detector.threshold + np.log(14)) / information(grid, rate)
            rates = itertools.chain(
                itertools.repeat(grid.p, calm), itertools.repeat(rate, int(4 * expected / 500) + 50)
            )
            late = [e for e in watch(detector, grid, panes(grid, runs, 500, 7, rates)) if e.pane >= calm]
            first = first_raised(late)
            delay = np.mean([event.pane - calm + 1 for event in first.values()]) * 500
            right = np.mean([event.fault == fault for event in first.values()])
            line(
                f"{name}, after {calm} calm panes, phi {'1' if phi else 'estimated'}",
                f"{delay:.0f} / {expected:.0f} = {delay / expected:.2f}, fault {right:.2f}",
                "<= 1.3, >= .9",
                good=delay <= 1.3 * expected and right >= 0.9 and len(first) == runs,
            )


def triple() -> None:
    print(
        "triple over-prediction, base rate .01, 20,000 rows, as shipped, A = 43,200 x 1,000: runs of 100 with an alarm"
    )
    grid, runs = scores(0.03), 100
    tenths = np.ceil(grid.p * 10).astype(int)
    ece = sum(abs((grid.share * grid.p * 2 / 3)[tenths == k].sum()) for k in range(1, 11))
    for count in (1, 40):
        detector = Detector(settings(panes=43_200_000))
        stream = panes(grid, runs, 20_000 / count, 8, itertools.repeat(grid.p / 3, count))
        first = first_raised(watch(detector, grid, stream))
        named = sum(event.fault == "scores_too_high" for event in first.values())
        line(
            f"in {count} panes (ECE {ece:.3f})",
            f"{len(first)}, {named} named scores_too_high",
            "100",
            good=named == runs,
        )


def rarest() -> None:
    print("calibrated, base rate 1e-5, logit sd 1.5, 5,000,000 rows: slope in standard errors from 1")
    grid, draw = scores(1e-5), np.random.default_rng(9)
    off = []
    for _ in range(5):
        x = grid.x[0] + (grid.x[-1] - grid.x[0]) / 2 + 1.5 * draw.normal(size=5_000_000)
        p = expit(x)
        bins, values, _ = contributions(p, (draw.random(len(p)) < p).astype(np.int64))
        counts = np.zeros((N_BINS, values.shape[1]), dtype=np.int64)
        np.add.at(counts, bins, values)
        fit = fit_platt(counts[None])
        off.append(float((fit.slope[0] - 1) / fit.slope_se[0]))
    line("5 seeds", " ".join(f"{z:+.2f}" for z in off), "within 3", good=max(map(abs, off)) < 3)


def triggers() -> None:
    print("river's triggers on 500 panes of 500 rows, base rate .0105, changed half way: 20 runs")
    grid, runs = scores(0.0105), 20
    for name, before, after in (
        ("no change", 0.0, 0.0),
        ("+.5 half way", 0.0, 0.5),
        ("+.2 half way", 0.0, 0.2),
        ("+.5 from the start: no change to see", 0.5, 0.5),
    ):
        rates = [expit(grid.x + before)] * 250 + [expit(grid.x + after)] * 250
        watched: list[ChangeTriggers] = [ChangeTriggers() for _ in range(runs)]
        fired: list[tuple[int, int, str]] = []
        for pane, rows in enumerate(panes(grid, runs, 500, 10, rates)):
            of, bins, values = cells(grid, rows)
            for run, watcher in enumerate(watched):
                told = watcher.update(bins[of == run], values[of == run])
                fired += [(pane, run, trigger) for trigger in told]
        for trigger in ("adwin", "page_hinkley"):
            mine = [(pane, run) for pane, run, name_ in fired if name_ == trigger]
            early = len({run for pane, run in mine if pane < 250})
            firsts: dict[int, int] = {}
            for pane, run in mine:
                if pane >= 250:
                    firsts.setdefault(run, pane - 249)
            delay = f"{np.median(list(firsts.values())) * 500:.0f} rows" if firsts else "-"
            line(f"{name}, {trigger}", f"before {early}, after {len(firsts)} of {runs}, median {delay}", "no promise")


def flights() -> None:
    with gzip.open(ROOT / "examples" / "flights" / "flights.csv.gz", "rt", encoding="ascii") as lines:
        rows = list(csv.DictReader(lines))
    made, p, y = (np.array([float(row[name]) for row in rows]) for name in ("scored_ms", "score", "label"))
    for pane_ms, name in ((900_000, "15 min"), (60_000, "60 s")):
        per_day = 86_400_000 // pane_ms
        print(f"flights of 2013, raw score, panes of {name}, budget shared by 1,000; days since the first row")
        fixed = Detector(DetectorSettings(per_day, 1.0, 1000, per_day, dispersion=1.0))
        events = feed(fixed, made / 3.6e6, p, y.astype(np.int64), pane_ms / 3.6e6)
        # A pane is used a horizon after its end.
        first = ((events[0].pane + 1) * pane_ms - made.min()) / 86_400_000 + 1.0
        line(f"phi 1: first alarm, {events[0].fault}", f"day {first:.2f}", "<= 4", good=first <= 4)
        line("phi 1: alarms in the year", str(sum(e.raised for e in events)))
        flights_by_month(made, p, y.astype(np.int64), pane_ms)


def flights_by_month(made: Floats, p: Floats, y: NDArray[np.int64], pane_ms: int) -> None:
    per_day = 86_400_000 // pane_ms
    detector = Detector(DetectorSettings(per_day, 1.0, 1000, per_day))
    month = made.astype("datetime64[ms]").astype("datetime64[M]")
    alarms = []
    for each in np.unique(month):
        mine = month == each
        alarms += feed(detector, made[mine] / 3.6e6, p[mine], y[mine], pane_ms / 3.6e6)
        now = detector.evidence(np.array([0]))
        leading = FAULTS[now.leading[0]] if now.leading[0] >= 0 else "-"
        line(
            f"{each} phi estimated",
            f"phi {now.phi[0]:.1f}, evidence {now.evidence[0]:.1f} of {now.threshold[0]:.1f}, {leading}",
        )
    for event in alarms:
        day = ((event.pane + 1) * pane_ms - made.min()) / 86_400_000 + 1.0
        line("raised" if event.raised else "cleared", f"day {day:.1f}: {event.fault}, phi {event.phi:.1f}")


def speed() -> None:
    print("one pane of 1,000 segments, one core, milliseconds (median of 30)")
    draw = np.random.default_rng(11)
    for rows in (10, 50, 200, 2000):
        p = expit(draw.normal(-2, 1.5, 1000 * rows))
        bins, values, _ = contributions(p, (draw.random(len(p)) < p).astype(np.int64))
        counts = np.zeros((1000, N_BINS, values.shape[1]), dtype=np.int64)
        np.add.at(counts, (np.repeat(np.arange(1000), rows), bins), values)
        of, held = np.nonzero(counts[:, :, 0])
        sparse = counts[of, held]
        detector, series = Detector(DetectorSettings(1440, 1.0, 1000, 1440)), np.arange(1000)
        dense = [clock(detector.update, t, series, counts) for t in range(30)]
        thin = [clock(detector.update_cells, t, of, held, sparse) for t in range(30, 60)]
        worst = np.median(dense) * 1e3
        line(
            f"{rows} rows a segment, {len(of)} bins in use",
            f"dense {worst:.1f}, sparse {np.median(thin) * 1e3:.1f}",
            "< 10 at 200 rows",
            good=rows > 200 or worst < 10,
        )


def clock(work: Callable[..., object], *given: object) -> float:
    begin = time.process_time()
    work(*given)
    return time.process_time() - begin


PARTS = {
    part.__name__: part
    for part in (calibrated, small, delays, correlated, detection, triple, rarest, triggers, flights, speed)
}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        begin = time.perf_counter()
        PARTS[name]()
        print(f"  ({time.perf_counter() - begin:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
