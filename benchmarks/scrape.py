"""Cost of `/metrics`: rendering a snapshot beside prometheus_client's own renderer, and scraping it again.

    python benchmarks/scrape.py [--segments 1000] [--windows 2] [--export core] [--runs 5]

Seeded and without network; medians in ms. The library renders the very same families, so the ratio is
that of the two renderers on the same bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from prometheus_client.exposition import generate_latest

from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector, SnapshotCollector, render
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import FIGURES, ExportSettings
from streamcal.snapshot import MapState, ModelSnapshot, Series, Snapshot, WindowFigures


def synthetic(segments: int, windows: int) -> Snapshot:
    """One model with `segments` segments beside `all`, every figure present in each of `windows` windows."""
    rng = np.random.default_rng(7)
    series = [Series("all", "all")]
    series += [Series("carrier,origin", f"carrier=C{i:04d},origin=EWR") for i in range(segments)]

    def figures() -> dict[str, np.ndarray]:
        drawn = {name: rng.normal(size=len(series)) for name in FIGURES}
        return drawn | {"n": rng.integers(1, 10**6, len(series)).astype(float)}

    panes = [WindowFigures(f"{i + 1}h", series, figures(), figures(), (), ()) for i in range(windows)]
    last = dict.fromkeys(series, 1_361_000_000_000)
    model = ModelSnapshot("default", 0, panes, {}, 0, MapState(1, "platt", 0), {}, last)
    return Snapshot(1, 0, [model], {}, {}, {}, {}, 0, 0)


def median_ms(run: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--export", default="core")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()

    snapshot = synthetic(args.segments, args.windows)
    settings = ExportSettings(export=args.export, max_series=10**9)
    collector = SnapshotCollector(snapshot, settings)
    text = render(snapshot, settings)
    assert text == generate_latest(collector)

    holder = SnapshotHolder()
    exporter = Exporter(holder, settings, ProcessCollector(BuildInfo("bench", ""), Readiness(), CommitRecorder()))
    sequence = iter(range(10**9))

    def first(scrape: Callable[[], bytes]) -> Callable[[], object]:
        def run() -> None:
            holder.publish(replace(snapshot, sequence=next(sequence)))
            scrape()

        return run

    ours = median_ms(lambda: render(snapshot, settings), args.runs)
    library = median_ms(lambda: generate_latest(collector), args.runs)
    holder.publish(replace(snapshot, sequence=next(sequence)))
    lines = sum(not line.startswith(b"#") for line in text.splitlines())
    print(f"{lines:,} series, {len(text) / 1e6:.2f} MB, gzip {len(exporter.compressed()) / 1e6:.2f} MB")
    print(f"render                      {ours:8.1f} ms")
    print(f"prometheus_client, the same {library:8.1f} ms, ratio {library / ours:.1f}")
    print(f"first scrape, plain         {median_ms(first(exporter.text), args.runs):8.1f} ms")
    print(f"first scrape, gzip          {median_ms(first(exporter.compressed), args.runs):8.1f} ms")
    print(f"scrape again, plain         {median_ms(exporter.text, args.runs):8.1f} ms")
    print(f"scrape again, gzip          {median_ms(exporter.compressed, args.runs):8.1f} ms")


if __name__ == "__main__":
    main()
