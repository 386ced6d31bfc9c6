"""Snapshots as the plain documents of ``/api/v1``; `streamcal.serve.api_models` describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from streamcal.serve.exposition import label_value
from streamcal.serve.figure_row import figure_dict
from streamcal.serve.trace import CAPACITY, TRACED, Track
from streamcal.serve.verdict import verdict
from streamcal.snapshot import AlarmState, Figures, MapState, ModelSnapshot, Series, Snapshot, WindowFigures

__all__ = ["find_model", "find_window", "history_view", "model_view", "status_view", "summaries_view", "whole_of"]

_WHOLE = Series("all", "all")


def find_model(snapshot: Snapshot, name: str) -> ModelSnapshot | None:
    """The model shown under `name`."""
    return next((model for model in snapshot.models if label_value(model.name) == name), None)


def find_window(model: ModelSnapshot, window: str | None) -> WindowFigures | None:
    """The window of that name; None asks for the first. None where there is none."""
    return next((held for held in model.windows if window in {None, held.window}), None)


def status_view(snapshot: Snapshot | None, *, now_ms: int) -> dict[str, Any]:
    """What one snapshot says of the stream."""
    if snapshot is None:
        empty: dict[str, Any] = {"sequence": 0, "event_time_ms": None, "pending": 0, "pending_bytes": 0}
        return empty | {"counters": {"rejected": {}}, "partitions": []}
    rejected: dict[str, dict[str, int]] = {}
    for (topic, reason), count in sorted(snapshot.rejected.items()):
        rejected.setdefault(topic, {})[reason] = count
    return {
        "sequence": snapshot.sequence,
        "event_time_ms": snapshot.event_time_ms,
        "pending": snapshot.pending,
        "pending_bytes": snapshot.pending_bytes,
        "counters": {**snapshot.counters, "rejected": rejected},
        "partitions": _partitions(snapshot, now_ms),
    }


def _partitions(snapshot: Snapshot, now_ms: int) -> list[dict[str, Any]]:
    newest = max(snapshot.watermarks.values(), default=0)
    return [
        {
            "topic": topic,
            "partition": partition,
            "watermark_ms": at,
            "delay_ms": None if at is None else now_ms - at,
            "behind_ms": None if at is None else newest - at,
            "lag": snapshot.lag.get((topic, partition)),
        }
        for topic, partition in sorted(snapshot.watermarks.keys() | snapshot.lag.keys())
        for at in (snapshot.watermarks.get((topic, partition)),)
    ]


def summaries_view(snapshot: Snapshot) -> list[dict[str, Any]]:
    """A line per model; looks at every segment."""
    return [_summary(model) for model in snapshot.models]


def _summary(model: ModelSnapshot) -> dict[str, Any]:
    return {
        "name": label_value(model.name),
        "verdict": asdict(verdict(model)),
        "event_time_ms": model.event_time_ms,
        "pending": model.pending,
        "alarms": sum(state.active is not None for state in model.alarms.values()),
        "champion": champion_view(model.champion),
        "pinned": model.maps.pinned,
    }


def champion_view(champion: MapState | None) -> dict[str, Any] | None:
    """The map in force."""
    return None if champion is None else asdict(champion)


def model_view(snapshot: Snapshot, model: ModelSnapshot) -> dict[str, Any]:
    """Everything of a model but its segments, history and maps."""
    return {
        "sequence": snapshot.sequence,
        "name": label_value(model.name),
        "verdict": asdict(verdict(model)),
        "event_time_ms": model.event_time_ms,
        "windows": [_window(window) for window in model.windows],
        "standing": _standing(model.alarms.get(_WHOLE)),
        "alarms": _alarms(model),
        "labels": _labels(model),
        "early": None if model.early is None else asdict(model.early),
        "score_shift": [
            {"window": window, "index": shift.index, "noise_floor": shift.noise_floor}
            for (series, window), shift in model.score_shift.items()
            if series == _WHOLE
        ],
        "champion": champion_view(model.champion),
        "refits": [
            {"result": result, "reason": reason, "count": count}
            for (result, reason), count in sorted(model.refits.items())
        ],
        "changes": dict(model.changes),
        "sealed_until_ms": model.sealed_until_ms,
        "blocking_partition": model.blocking_partition,
        "last_outcome_ms": model.last_outcome_ms.get(_WHOLE),
        "counters": dict(model.counters),
        "pending": model.pending,
    }


def whole_of(window: WindowFigures) -> int | None:
    """Position of the whole model among the series of a window; None where it has no row."""
    return 0 if window.series and window.series[0] == _WHOLE else None


def _window(window: WindowFigures) -> dict[str, Any]:
    place = whole_of(window)
    raw, served = ({} if place is None else figure_dict(kind, place) for kind in (window.raw, window.served))
    return {
        "window": window.window,
        "segments": len(window.series) - (place is not None),
        "raw": raw,
        "served": served,
        "raw_bins": [dict(entry) for entry in window.raw_bins],
        "served_bins": [dict(entry) for entry in window.served_bins],
    }


def _standing(state: AlarmState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return asdict(state) | {"evidence": state.evidence if math.isfinite(state.evidence) else None}


def _alarms(model: ModelSnapshot) -> list[dict[str, Any]]:
    return [
        {
            "at_ms": entry.at_ms,
            "ended_ms": entry.ended_ms,
            "cut": label_value(entry.series.cut),
            "segment": label_value(entry.series.segment),
            "fault": entry.fault,
            "evidence": entry.evidence,
            "phi": entry.phi,
        }
        for entry in reversed(model.alarm_log)
    ]


def _labels(model: ModelSnapshot) -> dict[str, Any] | None:
    if model.labels is None:
        return None
    return {
        "coverage": model.labels.coverage,
        "delays": [{"share": share, "seconds": delay} for share, delay in sorted(model.labels.delay_seconds.items())],
        "unmatched": [asdict(band) for band in model.labels.unmatched],
    }


def history_view(sequence: int, model: str, window: str, track: Track) -> dict[str, Any]:
    """A track, one list per figure."""
    return {
        "sequence": sequence,
        "model": model,
        "window": window,
        "step_ms": track.step_ms,
        "capacity": CAPACITY,
        "at_ms": track.at_ms.tolist(),
        "raw": lines(track.raw),
        "served": lines(track.served),
        "evidence": line(track.evidence.tolist()),
        "threshold": line(track.threshold.tolist()),
    }


def lines(figures: Figures) -> Mapping[str, list[float | None]]:
    """The traced figures, each as a list over time."""
    return {name: line(np.asarray(figures[name]).tolist()) for name in TRACED}


def line(values: Sequence[float]) -> list[float | None]:
    """Values with what is absent as None.

    >>> line([1.0, float("nan")])
    [1.0, None]
    """
    return [value if value == value else None for value in values]  # noqa: PLR0124 - false for NaN
