"""Alarms, evidence and what holds up sealing, as metric families."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streamcal.serve.exposition import ColumnFamily, LabelColumns, Labelled, label_value, labelled
from streamcal.snapshot import ModelSnapshot, Series, Snapshot

__all__ = ["FAULTS", "alarm_families"]

FAULTS = ("scores_too_high", "scores_too_low", "over_confident", "under_confident")
_WHOLE = Series("all", "all")


def alarm_families(snapshot: Snapshot, columns: LabelColumns | None = None) -> Iterator[Metric]:
    """One family per metric.

    The whole model has a sample for every fault, 0 or 1; other segments have one only while an alarm is in force, so
    that a thousand calm segments cost nothing. Evidence is left out before the first pane since a start.
    """
    columns = columns or LabelColumns()
    where = ("model", "cut", "segment")
    active = GaugeMetricFamily("streamcal_alarm_active", "1 while an alarm is in force.", labels=(*where, "fault"))
    evidence = ColumnFamily("streamcal_alarm_evidence", "Evidence of miscalibration, natural log.")
    threshold = ColumnFamily("streamcal_alarm_threshold", "Evidence at which an alarm is raised.")
    exceeded = GaugeMetricFamily(
        "streamcal_ece_threshold_exceeded", "1 while served ECE is beyond alarms.ece.", labels=(*where, "window")
    )
    for model in snapshot.models:
        states = sorted(model.alarms.items(), key=lambda held: (held[0].cut, held[0].segment))
        for series, state in states:
            if series == _WHOLE or state.active is not None:
                for fault in FAULTS:
                    if series == _WHOLE or state.active == fault:
                        active.add_metric((*_labels(model, series), fault), int(state.active == fault))
        watched = [series for series, _ in states]
        labels = columns.column((model.name, "alarms"), watched, _labels_of(where, model.name, watched))
        threshold.add(labels, [state.threshold for _, state in states])
        evidence.add(labels, [state.evidence if math.isfinite(state.evidence) else math.nan for _, state in states])
        for (series, window), beyond in sorted(model.ece_exceeded.items()):
            exceeded.add_metric((*_labels(model, series), window), int(beyond))
    yield from (active, evidence, threshold, exceeded)
    yield from _sealing_families(snapshot)


def _sealing_families(snapshot: Snapshot) -> Iterator[Metric]:
    changes = CounterMetricFamily(
        "streamcal_change_triggers", "Changes told by ADWIN or Page-Hinkley.", labels=("model", "trigger")
    )
    sealed = GaugeMetricFamily(
        "streamcal_sealed_timestamp_seconds", "Prediction time up to which panes are final.", labels=("model",)
    )
    blocking = GaugeMetricFamily(
        "streamcal_sealing_blocked_by_partition", "Partition that sealing waits for.", labels=("model",)
    )
    for model in snapshot.models:
        for trigger, count in sorted(model.changes.items()):
            changes.add_metric((label_value(model.name), trigger), count)
        if model.sealed_until_ms is not None:
            sealed.add_metric((label_value(model.name),), model.sealed_until_ms / 1000)
        if model.blocking_partition is not None:
            blocking.add_metric((label_value(model.name),), model.blocking_partition)
    yield from (changes, sealed, blocking)


def _labels_of(names: tuple[str, ...], model: str, watched: Sequence[Series]) -> Callable[[], list[Labelled]]:
    return lambda: [labelled(names, (model, series.cut, series.segment)) for series in watched]


def _labels(model: ModelSnapshot, series: Series) -> tuple[str, str, str]:
    return label_value(model.name), label_value(series.cut), label_value(series.segment)
