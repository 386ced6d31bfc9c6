"""The page of metrics, from the families that the exporter yields."""

from __future__ import annotations

from typing import Final

import numpy as np
from prometheus_client.metrics_core import Metric
from tables import escaped, table

from streamcal.serve.exporter import BuildInfo, ProcessCollector, SnapshotCollector
from streamcal.serve.live import CommitRecorder, Readiness
from streamcal.serve.metrics import BIN_FIGURES, CORE, FIGURES, ExportSettings
from streamcal.snapshot import ModelSnapshot, Series, Snapshot, WindowFigures

__all__ = ["metrics_page"]

_HEAD: Final = """\
# Metrics

What `/metrics` of the daemon holds. A series is absent while its value cannot be known, never 0 instead. Counters
begin at 0 with the process.

## Figures

`metrics.export` decides which of them there are: `core`, `full` or a list of names. [figures.md](../figures.md) has how
each is computed and how to read it. Bins are those of the series `all`.
"""


def metrics_page() -> str:
    """Markdown of all metric families."""
    of_figures = {named.metric for named in (*FIGURES.values(), *BIN_FIGURES.values())}
    families = _families()
    figures = [family for family in families if family.name in of_figures]
    core = {FIGURES[key].metric for key in CORE}
    rows = [(*_row(family), "core" if family.name in core else "full") for family in figures]
    rest = [_row(family, kind=True) for family in families if family.name not in of_figures]
    return "\n".join(
        [
            _HEAD,
            table(("metric", "labels", "meaning", "in"), rows),
            "## Everything else\n",
            table(("metric", "type", "labels", "meaning"), rest),
        ]
    )


def _families() -> list[Metric]:
    """Every family once, with a sample where only that tells its labels."""
    every = {key: np.array([1.0]) for key in FIGURES}
    table_of_bins = [{"lo": 0.0, "hi": 1.0, **dict.fromkeys(BIN_FIGURES, 1.0)}]
    window = WindowFigures("24h", [Series("all", "all")], every, every, table_of_bins, table_of_bins)
    model = ModelSnapshot("default", 0, [window], {}, 0, None, {}, {})
    snapshot = Snapshot(1, 0, [model], {}, {}, {}, {}, 0, 0)
    process = ProcessCollector(BuildInfo("", ""), Readiness(), CommitRecorder())
    collectors = SnapshotCollector(snapshot, ExportSettings(export="full")), process
    return [family for collector in collectors for family in collector.collect()]


def _row(family: Metric, *, kind: bool = False) -> tuple[str, ...]:
    labels = getattr(family, "_labelnames", ()) or (family.samples[0].labels if family.samples else ())
    shown = ", ".join(f"`{label}`" for label in labels if label != "le")
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return (f"`{name}`", *((family.type,) if kind else ()), shown, escaped(family.documentation))
