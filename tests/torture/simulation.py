"""Schedules of processes and faults on a cluster in memory, each compared with a recount and an undisturbed run.

`tests/test_simulation.py` runs some of them and catches mutants; this runs many, and prints which faults were hit. A
seed that fails is named, and fails again by itself.

    python tests/torture/simulation.py --seeds 10000
    python tests/torture/simulation.py --first 4711 --seeds 1
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import structlog
from simulated_cluster import FAULTS
from simulated_runs import differences

EVERY = 500


def judged(seed: int) -> tuple[int, list[str], Counter[str]]:
    """What differs under a seed, and the faults hit; an exception is a difference too."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        found, hit = differences(seed)
    except Exception as error:  # noqa: BLE001, any at all fails this seed, and the others go on
        return seed, [repr(error)], Counter()
    return seed, found, hit


def main(argv: Sequence[str] | None = None) -> int:
    """Run them; fails where any differs, or where a kind of fault was never hit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(argv)
    hit, wrong, began = Counter[str](), 0, time.monotonic()
    seeds = range(given.first, given.first + given.seeds)
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for done, (seed, found, faults) in enumerate(pool.imap_unordered(judged, seeds, chunksize=4), start=1):
            hit.update(faults)
            if found:
                wrong += 1
                print(f"seed {seed}: {found}", flush=True)
            if done % EVERY == 0:
                print(f"{done} seeds, {wrong} differ, {time.monotonic() - began:.0f} s", flush=True)
    missing = [fault for fault in FAULTS if not hit[fault]]
    print(f"{given.seeds} seeds from {given.first} on: {wrong} differ from the recount or from an undisturbed run")
    print("faults hit:", {fault: hit[fault] for fault in FAULTS}, f"never hit: {missing}" if missing else "")
    return 1 if wrong or (missing and given.seeds >= EVERY) else 0


if __name__ == "__main__":
    sys.exit(main())
