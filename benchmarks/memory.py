"""Resident bytes per remembered prediction: inside its horizon, and as a mark after it.

Fills one join with a million predictions of one model, half of them matched, and reads the process's
resident size; then lets the first horizon pass, so that only marks remain (kept for the second horizon to
tell late outcomes from orphans). Beside it: what a dict of tuples takes for the same, the usual hand-written join.
Linux only (reads /proc).

Usage: python benchmarks/memory.py [PREDICTIONS]
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np

from streamcal.stream.events import NO_MODEL, NO_VERSION, OutcomeBatch, PredictionBatch
from streamcal.stream.join import JoinTask, ModelRules
from streamcal.stream.tally import Tally

HORIZON_MS = 86_400_000
BATCH = 10_000
START_MS = 1_700_000_000_000


def resident_bytes() -> int:
    """Resident size of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def predictions(first: int, rng: np.random.Generator) -> PredictionBatch:
    """A batch of predictions, one a millisecond."""
    row = np.arange(BATCH)
    score = rng.random(BATCH)
    return PredictionBatch(
        row=row,
        id_hi=ids(first),
        id_lo=ids(first) * np.uint64(0x9E3779B97F4A7C15),
        time_ms=START_MS + first + row,
        raw=score,
        served=score,
        map_version=np.full(BATCH, NO_VERSION),
        model=np.zeros(BATCH, dtype=np.int32),
        profile=np.zeros(BATCH, dtype=np.int32),
        weight=None,
        clock_row=row,
        clock_ms=START_MS + first + row,
        rejected=(),
        ignored=0,
        clipped=0,
    )


def ids(first: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Scattered ids, a function of the running number."""
    return (np.arange(first, first + BATCH, dtype=np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95)


def outcomes(first: int) -> OutcomeBatch:
    """Outcomes for every second prediction of the batch, one second later."""
    row = np.arange(BATCH // 2)
    hi = ids(first)[::2]
    time = START_MS + first + 2 * row + 1000
    return OutcomeBatch(
        row=row,
        id_hi=hi,
        id_lo=hi * np.uint64(0x9E3779B97F4A7C15),
        time_ms=time,
        label=np.zeros(len(row), dtype=np.int8),
        model=np.full(len(row), NO_MODEL, dtype=np.int32),
        clock_row=row,
        clock_ms=time,
        rejected=(),
        ignored=0,
    )


def measure(count: int) -> None:
    """Print the two figures."""
    rng = np.random.default_rng(1)
    task = JoinTask(
        skew_ms=0,
        pane_ms=60_000,
        score_clip=1e-7,
        rules=lambda _: ModelRules(HORIZON_MS, positives_only=False),
        tally=Tally(),
    )
    before = resident_bytes()
    run(task, 0, count, rng)
    full = resident_bytes() - before
    held = task.remembered
    print(f"inside the horizon: {full / held:.0f} resident bytes per prediction, {held:,} remembered")
    # The same number again, one horizon later: as many inside, and a mark for each of before.
    run(task, HORIZON_MS + 2 * count, count, rng)
    marks = task.remembered - held
    grown = resident_bytes() - before - full
    print(f"mark after it: {grown / marks:.0f} resident bytes per mark, {marks:,} marks beside {held:,} inside")


def run(task: JoinTask, start: int, count: int, rng: np.random.Generator) -> None:
    """Feed `count` predictions from running number `start` on, every second one with its outcome."""
    for first in range(start, start + count, BATCH):
        now = START_MS + first
        watermark = np.full(BATCH, now)
        task.predictions(predictions(first, rng), watermark)
        task.outcomes(outcomes(first), watermark[: BATCH // 2], now)
        # Time of the first run's horizon passes in steps while the second comes in.
        task.advance(now, now if start == 0 else START_MS + HORIZON_MS + first - start + 1)
        task.take_changes()
        task.take_arrivals()


def measure_dict(count: int) -> None:
    """The hand-written join: a dict from id to a tuple."""
    rng = np.random.default_rng(1)
    before = resident_bytes()
    held = {f"{i:036d}": (START_MS + i, float(s), "GB", None) for i, s in enumerate(rng.random(count))}
    print(f"dict of id to tuple: {(resident_bytes() - before) / len(held):.0f} resident bytes per prediction")


if __name__ == "__main__":
    if sys.argv[1:2] == ["dict"]:
        measure_dict(int(sys.argv[2]))
    else:
        number = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
        measure(number)
        # In a process of its own, so that neither inherits the other's freed memory.
        subprocess.run([sys.executable, __file__, "dict", str(number)], check=True)
