"""Cost of applying maps to live scores, beside scikit-learn's fitted calibrators in the same run.

`CalibrationTransformer.transform` (check, clip, map, version, count) is timed on single floats, with and without
corrections per segment, and on arrays; the rivals are ``_SigmoidCalibration.predict`` for Platt and
``IsotonicRegression.predict`` for isotonic, on the same scores, which clip and check less. CPU time of this thread,
best of several rounds: other work on the machine only ever adds. A ratio above 1 means streamcal is faster.

Before: what the import costs above numpy's, and the first map, in fresh interpreters. After: memory over ten million
calls, and changes of maps under load, read by several threads.

    python benchmarks/transform.py [--quick]
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Isotonic, Map, Platt
from streamcal.transform import CalibrationTransformer, MemorySource

QUICK = "--quick" in sys.argv[1:]
SIZES = (1, 10, 1_000, 100_000, 1_000_000)
REPEATS = 5 if QUICK else 15
SECONDS = 0.02
CALLS = 200_000 if QUICK else 10_000_000
TRACED_CALLS = CALLS // 10
SWAPS = 200 if QUICK else 2_000
READERS = 3
SEGMENTS = {
    **{f"country=c{i}": {"offset": i / 300} for i in range(200)},
    **{f"country=c{i},device=ios": {"offset": -i / 300} for i in range(0, 200, 2)},
}
ROW = {"country": "c7", "device": "web"}

IMPORT = """
import time
start = time.process_time(); import numpy
after = time.process_time(); import streamcal.transform
done = time.process_time(); import streamcal.maps.document
print(1000 * (after - start), 1000 * (done - after), 1000 * (time.process_time() - done))
"""


def report_import() -> None:
    """Print the processor time of the imports, ms: medians."""
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", IMPORT], check=True, env=cached, capture_output=True)
    runs = [
        subprocess.check_output([sys.executable, "-c", IMPORT], text=True, env=cached).split() for _ in range(REPEATS)
    ]
    numpy_ms, own_ms, map_ms = (statistics.median(float(run[part]) for run in runs) for part in range(3))
    print(
        f"import  streamcal.transform {own_ms:.1f} ms of CPU time above numpy, {map_ms:.1f} ms more with the first "
        f"map; numpy {numpy_ms:.1f} ms"
    )


def per_call(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    call()
    start = time.thread_time()
    call()
    loops = max(1, int(SECONDS / max(time.thread_time() - start, 1e-7)))
    results = []
    for _ in range(REPEATS):
        start = time.thread_time()
        for _ in range(loops):
            call()
        results.append((time.thread_time() - start) / loops)
    return min(results)


def report(name: str, scores: int, ours: float, theirs: float) -> None:
    """Print one line: microseconds of either, their ratio, and our scores per second and core."""
    print(
        f"{name:28} streamcal {ours * 1e6:9.2f} us   scikit-learn {theirs * 1e6:9.2f} us   "
        f"ratio {theirs / ours:6.2f}   {scores / ours / 1e6:7.2f} M scores/s"
    )


def report_speed(scores: np.ndarray, labels: np.ndarray) -> None:
    sigmoid = _SigmoidCalibration().fit(scores[:100_000], labels[:100_000])
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(scores[:100_000], labels[:100_000])
    knots = dict(zip(isotonic.X_thresholds_.tolist(), isotonic.y_thresholds_.tolist(), strict=True))
    xs = [x for x in knots if 1e-7 <= x <= 1 - 1e-7]
    curve = Isotonic(xs, np.clip([knots[x] for x in xs], 1e-6, 1 - 1e-6).tolist())
    source = MemorySource()
    maps: dict[str, tuple[Map, object]] = {"platt": (Platt(0.55, -0.43), sigmoid), "isotonic": (curve, isotonic)}
    for name, (map_, _) in maps.items():
        source.publish(name, encode(new_document(name, 1, map_, at_ms=0)))
        cut = f"{name} cut"
        source.publish(cut, encode(new_document(cut, 1, map_, at_ms=0, segments=SEGMENTS)))
    one = float(scores[0])
    with CalibrationTransformer(source) as transformer:
        for name, (_, rival) in maps.items():
            theirs = per_call(lambda rival=rival: rival.predict([one]))
            report(f"{name}, one float", 1, per_call(lambda name=name: transformer.transform(one, model=name)), theirs)
            cut = f"{name} cut"
            ours = per_call(lambda cut=cut: transformer.transform(one, model=cut, segments=ROW))
            report(f"{name}, one with segments", 1, ours, theirs)
            for size in SIZES:
                part = scores[:size]
                ours = per_call(lambda part=part, name=name: transformer.transform(part, model=name))
                report(f"{name}, array of {size:,}", size, ours, per_call(lambda p=part, r=rival: r.predict(p)))


def resident_kib() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def report_memory() -> None:
    source = MemorySource()
    source.publish("plain", encode(new_document("plain", 1, Platt(0.55, -0.43), at_ms=0)))
    source.publish("cut", encode(new_document("cut", 1, Platt(0.55, -0.43), at_ms=0, segments=SEGMENTS)))
    with CalibrationTransformer(source) as transformer:

        def calls(count: int) -> None:
            for i in range(count // 2):
                transformer.transform(i % 997 / 997, "plain")
                transformer.transform(0.3, "cut", ROW)

        calls(10_000)
        gc.collect()
        before = resident_kib()
        calls(CALLS)
        gc.collect()
        print(f"memory  {CALLS:,} calls: resident {before:,} KiB before, {resident_kib():,} KiB after")
        tracemalloc.start()
        calls(10_000)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
        calls(TRACED_CALLS)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - traced
        tracemalloc.stop()
        counted = sum(transformer.status().scores.values())
        print(f"        {TRACED_CALLS:,} more under tracemalloc: {grown:,} bytes more held; {counted:,} scores counted")


def report_swaps() -> None:
    """Every score must be that of the version returned with it, and versions must never go back in a thread."""
    source = MemorySource()
    expected = [0.5, *(Platt(1.0, -version / 1000).apply_one(0.5) for version in range(1, SWAPS + 1))]
    found = {"reads": 0, "torn": 0, "older": 0}
    lock = threading.Lock()
    with CalibrationTransformer(source) as transformer:

        def read() -> None:
            reads = torn = older = last = 0
            while last < SWAPS:
                served, version = transformer.transform(0.5)
                reads, torn, older = reads + 1, torn + (served != expected[version]), older + (version < last)
                last = version
            with lock:
                for name, count in (("reads", reads), ("torn", torn), ("older", older)):
                    found[name] += count

        threads = [threading.Thread(target=read) for _ in range(READERS)]
        for thread in threads:
            thread.start()
        for version in range(1, SWAPS + 1):
            source.publish("default", encode(new_document("default", version, Platt(1.0, -version / 1000), at_ms=0)))
        for thread in threads:
            thread.join()
    print(
        f"swaps   {SWAPS:,} maps under {READERS} reading threads: {found['reads']:,} scores, "
        f"{found['torn']} torn, {found['older']} of an older version"
    )


def main() -> None:
    report_import()
    rng = np.random.default_rng(1)
    scores = 1 / (1 + np.exp(-rng.normal(-1, 1.5, max(SIZES))))
    report_speed(scores, rng.random(len(scores)) < scores)
    report_memory()
    report_swaps()


if __name__ == "__main__":
    main()
