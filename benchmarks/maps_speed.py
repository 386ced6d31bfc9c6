"""Scores per second of every map family on one core, beside scikit-learn's calibrators on the same scores.

Maps are fitted on 200,000 rows, then applied to fresh scores: single floats with and without segments, and arrays.
The rivals are scikit-learn's isotonic regression (`predict`) for isotonic, girb and cir, and its fitted sigmoid for the
others; that one is given probabilities as if they were logits, which spares it a logarithm. The last line is the least
that a map of probabilities by their logit can take: one logarithm, one exponential and two divisions per score, without
any of what goes between them. CPU time of this thread, best of seven rounds, both in the same run; a ratio above 1
means streamcal is faster.

    python benchmarks/maps_speed.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from streamcal.maps.compiled import CompiledMap
from streamcal.maps.families import Map
from streamcal.maps.fit import FITS
from streamcal.maps.knots import CHUNK
from streamcal.stats.counts import PLAIN, contributions
from streamcal.stats.layout import N_BINS

SIZES = (1_000, 100_000, 1_000_000)
REPEATS = 7
SECONDS = 0.05
CURVES = ("isotonic", "girb", "cir")
TABLE = {
    **{f"country=c{i}": {"offset": i / 300} for i in range(200)},
    **{f"country=c{i},device=ios": {"offset": -i / 300} for i in range(0, 200, 2)},
}


def per_call(call: Callable[[], object]) -> float:
    """Seconds of one call, the best of several rounds: other work on the machine only ever adds."""
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


def fitted(p: np.ndarray, y: np.ndarray) -> dict[str, Map]:
    bins, values, _ = contributions(p, y)
    counts = np.zeros((N_BINS, PLAIN), dtype=np.int64)
    np.add.at(counts, bins, values)
    identity = FITS["identity"](counts, None)
    platt = FITS["platt"](counts, identity)
    maps = {name: fit(counts, platt) for name, fit in FITS.items()}
    return {name: map_ for name, map_ in maps.items() if not isinstance(map_, str)}


def line(map_: Map, rival: object, scores: np.ndarray) -> str:
    compiled = CompiledMap(map_, TABLE)
    one, row = float(scores[0]), {"country": "c7", "device": "web"}
    text = "".join(
        f"{per_call(call) * 1e6:7.2f} us"
        for call in (lambda: map_.apply_one(one), lambda: compiled.apply_one(one, row))
    )
    for size in SIZES:
        ours, theirs = (per_call(partial(apply, scores[:size])) for apply in (map_.apply, rival.predict))
        text += f"{size / ours / 1e6:12.1f} M/s ({theirs / ours:5.1f} x rival)"
    return text


def floor(rival: object, scores: np.ndarray) -> str:
    """The four slow operations of a sigmoid of a logit, over chunks that stay in the cache, into memory at hand."""
    text = ""
    for size in SIZES:
        given, into = scores[:size], np.empty(min(size, CHUNK))

        def least(given: np.ndarray = given, into: np.ndarray = into) -> None:
            for start in range(0, len(given), CHUNK):
                part = given[start : start + CHUNK]
                held = into[: len(part)]
                np.divide(part, part, out=held)
                np.log(part, out=held)
                np.exp(part, out=held)
                np.divide(1.0, part, out=held)

        ours, theirs = per_call(least), per_call(partial(rival.predict, given))
        text += f"{size / ours / 1e6:12.1f} M/s ({theirs / ours:5.1f} x rival)"
    return text


def main() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(-3, 1.5, 200_000 + max(SIZES))
    p, y = 1 / (1 + np.exp(-x)), rng.random(len(x)) < 1 / (1 + np.exp(0.2 - 0.8 * x))
    maps = fitted(p[:200_000], y[:200_000])
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(p[:200_000], y[:200_000])
    sigmoid = _SigmoidCalibration().fit(x[:200_000], y[:200_000])
    print(f"{'':12}{'one':>10}{'segment':>10}" + "".join(f"{f'array of {size:,}':>32}" for size in SIZES))
    for name, map_ in maps.items():
        print(f"{name:12}" + line(map_, isotonic if name in CURVES else sigmoid, p[200_000:]))
    print(f"{'log, exp, two divisions':32}" + floor(sigmoid, p[200_000:]))


if __name__ == "__main__":
    main()
