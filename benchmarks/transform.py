"""Speed of applying a map to live scores, beside scikit-learn's sigmoid calibration in the same run.

`CalibrationTransformer.transform` (clip, check, logit, map, version) is timed on single floats and on arrays;
scikit-learn's fitted ``_SigmoidCalibration.predict`` on the same values, one at a time and as arrays. Its map works
on the score itself and clips and checks less. Median of seven; a ratio above 1 means streamcal is faster. First what
the import costs beside numpy's, in fresh interpreters.

    python benchmarks/transform.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from sklearn.calibration import _SigmoidCalibration

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.transform import CalibrationTransformer, MemorySource

SIZES = (1, 10, 1_000, 100_000)
REPEATS = 7
SECONDS = 0.1


IMPORT = """
import time
start = time.process_time(); import numpy
after = time.process_time(); import streamcal.transform
print(1000 * (after - start), 1000 * (time.process_time() - after))
"""


def report_import() -> None:
    """Print the processor time of the import above numpy, ms, and of numpy itself: medians."""
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", "import streamcal.transform"], check=True, env=cached)
    runs = [
        subprocess.check_output([sys.executable, "-c", IMPORT], text=True, env=cached).split() for _ in range(REPEATS)
    ]
    numpy_ms, own_ms = (statistics.median(float(run[part]) for run in runs) for part in (0, 1))
    print(f"import           streamcal.transform {own_ms:5.1f} ms CPU above numpy   numpy {numpy_ms:5.1f} ms")


def per_call(call: Callable[[], object]) -> float:
    """Median seconds of one call."""
    call()
    start = time.perf_counter()
    call()
    loops = max(1, int(SECONDS / max(time.perf_counter() - start, 1e-9) / 4))
    results = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(loops):
            call()
        results.append((time.perf_counter() - start) / loops)
    return statistics.median(results)


def report(name: str, scores: int, ours: float, theirs: float) -> None:
    """Print one line: microseconds of either, their ratio, and our scores per second."""
    print(
        f"{name:16} streamcal {ours * 1e6:9.2f} us   scikit-learn {theirs * 1e6:9.2f} us   "
        f"ratio {theirs / ours:6.2f}   {scores / ours / 1e6:6.2f} M scores/s"
    )


def main() -> None:
    report_import()
    rng = np.random.default_rng(1)
    scores = 1 / (1 + np.exp(-rng.normal(-1, 1.5, max(SIZES))))
    reference = _SigmoidCalibration().fit(scores, rng.random(len(scores)) < scores)
    source = MemorySource()
    source.publish("default", encode(new_document("default", 1, Platt(0.55, -0.43), at_ms=0)))
    with CalibrationTransformer(source) as transformer:
        one = float(scores[0])
        report("one float", 1, per_call(lambda: transformer.transform(one)), per_call(lambda: reference.predict([one])))
        for size in SIZES:
            part = scores[:size]
            ours = per_call(lambda part=part: transformer.transform(part))
            theirs = per_call(lambda part=part: reference.predict(part))
            report(f"array {size:,}", size, ours, theirs)


if __name__ == "__main__":
    main()
