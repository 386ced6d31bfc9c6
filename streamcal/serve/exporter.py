"""The snapshot as Prometheus metrics: one collector, rendered once per snapshot however often it is scraped.

Rules
-----
- What a snapshot does not hold leaves no sample: an absent figure (NaN), a segment that disappeared.
- Everything about the stream comes from one snapshot; only readiness, build and commit times are read
  at the scrape, so that they stay true while no snapshot comes.
- Figures are capped by whole segments: ``all`` of each model stays, then the segments with most labelled
  predictions, so a dashboard never sees half of a segment and the count of what is missing is exported.
- No figure carries a map version: an alert on it would change series at every refit.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamcal.serve.alarms import alarm_families
from streamcal.serve.early import early_families
from streamcal.serve.exposition import LabelColumns, exposition, label_value
from streamcal.serve.figures import figure_families
from streamcal.serve.live import COMMIT_BUCKETS, CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import MODEL_COUNTERS, TOTAL_COUNTERS, ExportSettings
from streamcal.serve.packing import PackedHead
from streamcal.serve.process_counters import ProcessCounters
from streamcal.snapshot import Snapshot

__all__ = ["BuildInfo", "Exporter", "ProcessCollector", "SnapshotCollector", "render"]


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What is running: product version, id of the bin layout, hash of the configuration."""

    version: str
    layout: str
    config_hash: str = ""


class SnapshotCollector(Collector):
    """Everything one snapshot says, as metric families; `columns` are labels kept of the snapshot before."""

    def __init__(self, snapshot: Snapshot, settings: ExportSettings, columns: LabelColumns | None = None) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._columns = columns or LabelColumns()

    def collect(self) -> Iterator[Metric]:
        """Families in a fixed order: figures, maps, counters, state of the stream."""
        yield from figure_families(self._snapshot, self._settings, self._columns)
        yield from alarm_families(self._snapshot, self._columns)
        yield from early_families(self._snapshot)
        yield from _map_families(self._snapshot)
        yield from _counter_families(self._snapshot)
        yield from _stream_families(self._snapshot)


class ProcessCollector(Collector):
    """What is true of the process whether or not there is a snapshot."""

    def __init__(
        self,
        build: BuildInfo,
        readiness: Readiness,
        commits: CommitRecorder,
        counters: ProcessCounters | None = None,
    ) -> None:
        self._counters = counters or ProcessCounters()
        self._build = build
        self._readiness = readiness
        self._commits = commits

    def collect(self) -> Iterator[Metric]:
        """Readiness, build and commit times as of now."""
        ready = self._readiness.reason is None
        yield GaugeMetricFamily("streamcal_ready", "1 while the process takes part in the work.", value=int(ready))
        yield from self._recovery()
        build = GaugeMetricFamily(
            "streamcal_build_info", "What is running.", labels=("version", "layout", "config_hash", "python")
        )
        build.add_metric(
            (self._build.version, self._build.layout, self._build.config_hash, platform.python_version()), 1
        )
        yield build
        taken = self._commits.taken()
        bounds = [(repr(bound), float(count)) for bound, count in zip(COMMIT_BUCKETS, taken.at_most, strict=True)]
        yield HistogramMetricFamily(
            "streamcal_commit_duration_seconds",
            "Time from the start of a commit to its acknowledgement.",
            buckets=[*bounds, ("+Inf", float(taken.count))],
            sum_value=taken.total_s,
        )
        yield from self._counters.families()

    def _recovery(self) -> Iterator[Metric]:
        """How far a recovery is; no sample without one."""
        remaining = GaugeMetricFamily(
            "streamcal_recovery_remaining_records",
            "Records of a partition of the state still to be read and applied, at most.",
            labels=("partition",),
        )
        started = GaugeMetricFamily(
            "streamcal_recovery_started_timestamp_seconds", "When the recovery under way began.", labels=()
        )
        if (recovery := self._readiness.recovery) is not None:
            for partition, records in sorted(recovery.remaining.items()):
                remaining.add_metric((str(partition),), records)
            started.add_metric((), recovery.started_s)
        yield from (remaining, started)


def render(snapshot: Snapshot, settings: ExportSettings) -> bytes:
    """Text format of `snapshot`; see `Exporter` for what is cached."""
    return exposition(SnapshotCollector(snapshot, settings).collect())


class Exporter:
    """Serves `/metrics` from the newest snapshot of a holder.

    Guarantees that one snapshot is rendered (and compressed) at most once, whatever the number of scrapes
    and threads, and that no scrape goes back to an older one. While the holder has none, the process is all there is.

    Parameters
    ----------
    holder : SnapshotHolder
    settings : ExportSettings
    process : ProcessCollector
    """

    def __init__(self, holder: SnapshotHolder, settings: ExportSettings, process: ProcessCollector) -> None:
        self._holder = holder
        self._settings = settings
        self._process = process
        self._lock = Lock()
        self._sequence: int | None = None
        self._columns = LabelColumns()
        self._body = b""
        self._packed: PackedHead | None = None
        self.rendered = 0
        """Snapshots rendered so far."""

    def text(self) -> bytes:
        """Text format of the newest snapshot and the process."""
        with self._lock:
            self._refresh()
            body = self._body
        return body + exposition(self._process.collect())

    def compressed(self) -> bytes:
        """`text` as one gzip member; only the process part is compressed anew while the snapshot stays."""
        with self._lock:
            self._refresh()
            if self._packed is None:
                self._packed = PackedHead.of(self._body)
            head = self._packed
        return head.member(exposition(self._process.collect()))

    def _refresh(self) -> None:
        snapshot = self._holder.latest
        if snapshot is None:
            self._body, self._sequence, self._packed = b"", None, None
            return
        if snapshot.sequence == self._sequence:
            return
        self._body = exposition(SnapshotCollector(snapshot, self._settings, self._columns).collect())
        self._columns.turn()
        self._sequence, self._packed = snapshot.sequence, None
        self.rendered += 1


def _map_families(snapshot: Snapshot) -> Iterator[Metric]:
    info = GaugeMetricFamily("streamcal_map_info", "The map in force.", labels=("model", "map_version", "family"))
    promoted = GaugeMetricFamily(
        "streamcal_map_promoted_timestamp_seconds",
        "Event time at which the map in force was promoted.",
        labels=("model",),
    )
    refits = CounterMetricFamily("streamcal_refits", "Attempts to refit the map.", labels=("model", "result", "reason"))
    for model in snapshot.models:
        name = label_value(model.name)
        if model.champion is not None:
            info.add_metric((name, str(model.champion.version), model.champion.family), 1)
            promoted.add_metric((name,), model.champion.promoted_ms / 1000)
        for (result, reason), count in sorted(model.refits.items()):
            refits.add_metric((name, result, reason), count)
    yield from (info, promoted, refits)


def _counter_families(snapshot: Snapshot) -> Iterator[Metric]:
    for key, named in MODEL_COUNTERS.items():
        family = CounterMetricFamily(named.metric, named.says, labels=("model",))
        for model in snapshot.models:
            if key in model.counters:
                family.add_metric((label_value(model.name),), model.counters[key])
        yield family
    for key, named in TOTAL_COUNTERS.items():
        if key in snapshot.counters:
            yield CounterMetricFamily(named.metric, named.says, value=snapshot.counters[key])
    rejected = CounterMetricFamily(
        "streamcal_events_rejected", "Events set aside as unusable.", labels=("topic", "reason")
    )
    for (topic, reason), count in sorted(snapshot.rejected.items()):
        rejected.add_metric((topic, reason), count)
    yield rejected


def _stream_families(snapshot: Snapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("streamcal_pending_predictions", "Predictions not yet released.", value=snapshot.pending)
    yield GaugeMetricFamily("streamcal_pending_bytes", "Memory of the join.", value=snapshot.pending_bytes)
    where = ("topic", "partition")
    watermarks = GaugeMetricFamily("streamcal_watermark_timestamp_seconds", "Event time of a partition.", labels=where)
    for (topic, partition), time_ms in sorted(snapshot.watermarks.items()):
        watermarks.add_metric((topic, str(partition)), time_ms / 1000)
    lag = GaugeMetricFamily("streamcal_consumer_lag", "Records of a partition not yet read.", labels=where)
    for (topic, partition), records in sorted(snapshot.lag.items()):
        lag.add_metric((topic, str(partition)), records)
    incomplete = GaugeMetricFamily(
        "streamcal_windows_incomplete",
        "Records that were deleted unread and given up, as long as a window may lack them.",
        labels=where,
    )
    for (topic, partition), records in sorted(snapshot.incomplete.items()):
        incomplete.add_metric((topic, str(partition)), records)
    yield from (watermarks, lag, incomplete)
