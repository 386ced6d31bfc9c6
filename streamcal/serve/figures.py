"""Figures of a snapshot as gauge families, within the cap on their number.

A *block* is the series of one (model, window, score kind); its figures share one column of labels, which is kept from
one snapshot to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from streamcal.serve.exposition import ColumnFamily, LabelColumns, Labelled, labelled
from streamcal.serve.metrics import BIN_FIGURES, FIGURES, ExportSettings
from streamcal.snapshot import Figures, ModelSnapshot, Series, Snapshot

__all__ = ["figure_families"]

_Segment = tuple[int, Series]
"""Place of the model in the snapshot, and the series: what the cap keeps or drops whole."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Figures of one model, window and score kind: its series, arrays beside them."""

    place: int
    model: str
    window: str
    kind: str
    series: Sequence[Series]
    figures: Figures

    def segments(self) -> Iterator[_Segment]:
        return ((self.place, series) for series in self.series)

    def within(self, kept: frozenset[_Segment]) -> _Block:
        """What is left of it."""
        inside = [i for i, segment in enumerate(self.segments()) if segment in kept]
        figures = {name: values[inside] for name, values in self.figures.items()}
        return replace(self, series=[self.series[i] for i in inside], figures=figures)

    def labels(self) -> list[Labelled]:
        return [_labels(self.model, series, self.window, self.kind) for series in self.series]


def figure_families(
    snapshot: Snapshot, settings: ExportSettings, columns: LabelColumns | None = None
) -> Iterator[Metric]:
    """Gauges of the exported figures, last outcome times, bins of ``all``, and how many series the cap dropped."""
    columns = columns or LabelColumns()
    blocks = [
        _Block(place, model.name, window.window, kind, window.series, figures)
        for place, model in enumerate(snapshot.models)
        for window in model.windows
        for kind, figures in (("raw", window.raw), ("served", window.served))
    ]
    names = settings.figures
    kept, dropped = _within_cap(blocks, names, settings.max_series)
    if kept is not None:
        blocks = [block.within(kept) for block in blocks]
    labels = [columns.column((block.model, block.window, block.kind), block.series, block.labels) for block in blocks]
    for name in names:
        family = ColumnFamily(*FIGURES[name])
        for block, column in zip(blocks, labels, strict=True):
            if name in block.figures:
                family.add(column, block.figures[name])
        yield family
    yield _last_outcomes(snapshot, kept, columns)
    if settings.bins:
        yield from _bins(snapshot)
    yield GaugeMetricFamily(
        "streamcal_series_dropped", "Series of figures left out because of metrics.max_series.", value=dropped
    )
    scheme = GaugeMetricFamily("streamcal_ece_info", "How streamcal_ece is binned.", labels=("scheme", "bins"))
    scheme.add_metric((settings.ece_scheme, str(settings.ece_bins)), 1)
    yield scheme


_FIGURE_LABELS: Final = ("model", "cut", "segment", "window", "score_kind")
_SERIES_LABELS: Final = ("model", "cut", "segment")


def _labels(model: str, series: Series, window: str, kind: str) -> Labelled:
    return labelled(_FIGURE_LABELS, (model, series.cut, series.segment, window, kind))


def _within_cap(
    blocks: list[_Block], names: tuple[str, ...], max_series: int
) -> tuple[frozenset[_Segment] | None, int]:
    """Segments to export (None: all of them) and the number of series that drops."""
    present = [_present(block, names) for block in blocks]
    total = sum(int(counts.sum()) for counts in present)
    if total <= max_series:
        return None, 0
    cost: dict[_Segment, int] = {}
    size: dict[_Segment, float] = {}
    for block, counts in zip(blocks, present, strict=True):
        n = np.nan_to_num(block.figures["n"])
        for segment, count, rows in zip(block.segments(), counts.tolist(), n.tolist(), strict=True):
            cost[segment] = cost.get(segment, 0) + count
            size[segment] = max(size.get(segment, 0.0), rows)
    kept, used = set(), 0
    for segment in sorted(cost, key=lambda one: (one[1].cut != "all", -size[one], one)):
        used += cost[segment]
        # `all` stays whatever the cap: a monitor that exports nothing is worse than one over its cap.
        if used > max_series and segment[1].cut != "all":
            break
        kept.add(segment)
    return frozenset(kept), total - sum(cost[segment] for segment in kept)


def _present(block: _Block, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Number of figures that each series of the block has."""
    counts = np.zeros(len(block.series), dtype=np.int64)
    for name in names:
        if name in block.figures:
            counts += ~np.isnan(block.figures[name])
    return counts


def _last_outcomes(snapshot: Snapshot, kept: frozenset[_Segment] | None, columns: LabelColumns) -> Metric:
    family = ColumnFamily("streamcal_last_outcome_timestamp_seconds", "Event time of the latest outcome.")
    for place, model in enumerate(snapshot.models):
        held = {
            series: time_ms / 1000
            for series, time_ms in model.last_outcome_ms.items()
            if kept is None or (place, series) in kept
        }
        family.add(columns.column((model.name, "last"), list(held), _by_series(model.name, held)), list(held.values()))
    return family


def _by_series(model: str, series: Iterable[Series]) -> Callable[[], list[Labelled]]:
    return lambda: [labelled(_SERIES_LABELS, (model, one.cut, one.segment)) for one in series]


def _bins(snapshot: Snapshot) -> Iterator[Metric]:
    rows = [
        (_bin_labels(model, window.window, kind, entry), entry)
        for model in snapshot.models
        for window in model.windows
        for kind, bins in (("raw", window.raw_bins), ("served", window.served_bins))
        for entry in bins
    ]
    for field, (metric, says) in BIN_FIGURES.items():
        family = GaugeMetricFamily(metric, says)
        family.samples.extend(Sample(metric, labels, entry[field]) for labels, entry in rows if field in entry)
        yield family


def _bin_labels(model: ModelSnapshot, window: str, kind: str, entry: Mapping[str, Any]) -> dict[str, str]:
    labels = _labels(model.name, Series("all", "all"), window, kind).labels
    return {**labels, "lo": repr(float(entry["lo"])), "hi": repr(float(entry["hi"]))}
