"""Cost of `/metrics`: rendering a snapshot beside prometheus_client's own renderer, and scraping it again; and what
the status page, the API and a scrape together cost the process while a snapshot comes every second.

    python benchmarks/scrape.py [--segments 1000] [--windows 2] [--export core] [--runs 5] [--seconds 20]

Seeded; medians in ms. The library renders the very same families, so the ratio is that of the two renderers on the
same bytes. The second part serves over loopback: once a second a program of its own loads the page, asks everything an
open page asks (status, model, segments, history, maps) and scrapes. CPU is that of the whole serving process, less
that of as many seconds in which snapshots are published and nobody asks. A share of a core is the share of throughput
that this costs a loop with one core and no rest, and at most what it costs any other.

The third part looks at that share itself: an engine of this process decodes, joins, counts and refits as fast as it
can, and every other second all of the above is asked. What is lost is one less the median ratio of a second with to
the seconds without around it; on a machine with anything else to do it is known to a percent or two, as printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
from prometheus_client.exposition import generate_latest

from streamcal.maps.document import Counts, new_document
from streamcal.maps.families import Platt
from streamcal.serve.app import application
from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector, SnapshotCollector, render
from streamcal.serve.http import HttpServer
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import FIGURES, ExportSettings
from streamcal.serve.packing import packed
from streamcal.serve.sources import Sources
from streamcal.serve.trace import CAPACITY
from streamcal.snapshot import AlarmState, MapEntry, MapState, ModelSnapshot, Series, Snapshot, WindowFigures

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from engine_streams import engine, over_confident, slices
from recount_events import Rules

PAGE = ("/", "/api/v1/status", "/api/v1/model?model=default", "/api/v1/segments?model=default&limit=25",
        "/api/v1/history?model=default", "/api/v1/maps?model=default")  # fmt: skip

CLIENT = """
import sys, time, urllib.request
base, start, rounds, every, *paths = sys.argv[1:]
worst, start = 0.0, float(start) or time.monotonic() + 0.5  # one clock for all processes of the machine
for number in range(int(rounds)):
    time.sleep(max(0.0, start + number * float(every) - time.monotonic()))
    for path in paths:
        asked = time.monotonic()
        request = urllib.request.Request(base + path, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        worst = max(worst, time.monotonic() - asked)
print(f"{worst * 1000:.0f}")
"""


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
    alarms = dict.fromkeys(series, AlarmState(3.0, 14.9, "scores_too_high", None, 1.2))
    maps = [map_entry(version) for version in range(1, 101)]
    model = ModelSnapshot("default", 0, panes, {}, 0, MapState(100, "platt", 0), {}, last, alarms=alarms, map_log=maps)
    return Snapshot(1, 0, [model], {}, {}, {}, {}, 0, 0)


def map_entry(version: int) -> MapEntry:
    map_ = Platt(slope=0.5 + version / 200, intercept=-0.1)
    document = new_document("default", version, map_, at_ms=0, counts=Counts(n=9, positives=3), evidence={"gain": 5.0})
    return MapEntry(version, "platt", 0, 0, 1, True, "", document)


def serving(snapshot: Snapshot, settings: ExportSettings, seconds: int) -> None:
    """Print what the page, the API and a scrape cost while snapshots come."""
    holder, readiness = SnapshotHolder(), Readiness()
    exporter = Exporter(holder, settings, ProcessCollector(BuildInfo("bench", ""), readiness, CommitRecorder()))
    (model,) = snapshot.models
    for i in range(CAPACITY):  # a full trace
        holder.publish(replace(snapshot, sequence=i + 1, models=[replace(model, event_time_ms=i * 1000)]))

    def publish_until(stopped: Event) -> None:
        sequence = CAPACITY
        while not stopped.wait(1.0):
            sequence += 1
            holder.publish(replace(snapshot, sequence=sequence, models=[replace(model, event_time_ms=sequence * 1000)]))

    with HttpServer(application(Sources(exporter, holder, readiness, "bench")), port=0) as server:
        shares = {}
        for name, paths in (("nobody", ()), ("scrape alone", ("/metrics",)), ("all", (*PAGE, "/metrics"))):
            stopped = Event()
            publisher = Thread(target=publish_until, args=(stopped,))
            publisher.start()
            before, begun = time.process_time(), time.monotonic()
            worst = asked(server.url, 0.0, seconds, 1, paths)
            shares[name] = (time.process_time() - before) / (time.monotonic() - begun)
            stopped.set()
            publisher.join()
            print(f"{name:27} {100 * (shares[name] - shares['nobody']):6.2f} % of a core, slowest answer {worst} ms")
        stopped = Event()
        publisher = Thread(target=publish_until, args=(stopped,))
        publisher.start()
        throughput(server.url, seconds)
        stopped.set()
        publisher.join()


def asked(url: str, start_s: float, rounds: int, every_s: int, paths: Sequence[str]) -> str:
    """Have all paths asked so often by a process of its own, and wait for it; the slowest answer in ms."""
    command = [sys.executable, "-c", CLIENT, url, str(start_s), str(rounds), str(every_s), *paths]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def throughput(url: str, rounds: int) -> None:
    """Print what an engine at full speed loses while everything is asked once a second."""
    stopped, marks = Event(), [(time.monotonic(), 0)]
    engine_thread = Thread(target=run_engines, args=(stopped, marks))
    engine_thread.start()
    start = time.monotonic() + 3.0  # the first is slower
    worst = asked(url, start + 1.0, rounds, 2, (*PAGE, "/metrics"))
    stopped.wait(max(0.0, start + 2.0 * rounds + 1.2 - time.monotonic()))
    stopped.set()
    engine_thread.join()
    done = np.interp(start + np.arange(2 * rounds + 2), *np.array(marks).T)
    rates = np.diff(done)  # quiet, asked, quiet, ..., quiet
    lost = 100 * (1 - rates[1::2] / ((rates[:-1:2] + rates[2::2]) / 2))
    error = 1.25 * lost.std(ddof=1) / np.sqrt(len(lost))  # of a median
    told = f"{np.median(lost):6.2f} % of {np.median(rates[::2]):,.0f} records a second, standard error {error:.2f}"
    print(f"{'throughput lost to all':27} {told}, slowest answer {worst} ms")


def run_engines(stopped: Event, marks: list[tuple[float, int]]) -> None:
    """Handle the same two days again and again; notes when how many records were done."""
    events, done = over_confident(7, hours=48, per_hour=1500), 0
    batches = [slices(events[i : i + 1000]) for i in range(0, len(events), 1000)]
    while not stopped.is_set():
        machine = engine(Rules(horizon_ms=10_800_000))
        for batch in batches:
            machine.handle(batch)
            done += 1000
            marks.append((time.monotonic(), done))
            if stopped.is_set():
                return


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
    parser.add_argument("--seconds", type=int, default=20)
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
    started = time.thread_time()
    packed(text)
    packing = 1000 * (time.thread_time() - started)
    print(f"compression alone           {packing:8.1f} ms, mostly without the interpreter lock")
    print(f"once a second each, over {args.seconds} s, less what publishing costs alone:")
    serving(snapshot, settings, args.seconds)


if __name__ == "__main__":
    main()
