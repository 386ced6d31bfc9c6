"""Snapshots with everything in them that the status page shows, from real counts of seeded scores and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamcal.maps.document import Counts, FitWindow, new_document
from streamcal.maps.families import Platt
from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import ExportSettings
from streamcal.serve.sources import Sources
from streamcal.snapshot import (
    AlarmEntry,
    AlarmState,
    EarlyEstimate,
    LabelState,
    MapEntry,
    MapState,
    ModelSnapshot,
    ScoreShift,
    Series,
    Snapshot,
    UnmatchedBand,
    WindowFigures,
)
from streamcal.stats.counts import contributions
from streamcal.stats.figures import figures
from streamcal.stats.reliability import reliability

WHOLE = Series("all", "all")
NOW_MS = 1_785_000_000_000
HOUR_MS = 3_600_000


def counted(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int64[284, 9]"""
    counts = np.zeros((284, 9), dtype=np.int64)
    bins, values, _ = contributions(scores, labels)
    np.add.at(counts, bins, values)
    return counts


def window_of(name: str, segments: Sequence[Series], *, rows: int = 300, seed: int = 1) -> WindowFigures:
    """Over-confident raw scores, served ones nearly right; every twentieth segment is far off."""
    rng = np.random.default_rng(seed)
    raw, served = [], []
    for i in range(max(1, len(segments))):
        x = rng.normal(-1.0, 1.5, rows)
        off = 1.5 if i % 20 == 7 else 0.0
        labels = (rng.random(rows) < 1 / (1 + np.exp(-(0.6 * x - 0.2 + off)))).astype(np.int64)
        raw.append(counted(1 / (1 + np.exp(-x)), labels))
        served.append(counted(1 / (1 + np.exp(-(0.62 * x - 0.15))), labels))
    kinds = [np.stack([np.sum(kind, axis=0), *kind[: len(segments)]]) for kind in (raw, served)]
    phi = np.full(len(segments) + 1, 1.44)
    return WindowFigures(
        name,
        (WHOLE, *segments),
        *(figures(counts, phi=phi) for counts in kinds),
        *(reliability(counts[0], phi=1.44) for counts in kinds),
    )


def document_of(version: int, slope: float, intercept: float) -> Any:
    return new_document(
        "default",
        version,
        Platt(slope=slope, intercept=intercept),
        at_ms=NOW_MS - (10 - version) * HOUR_MS,
        fit_window=FitWindow(NOW_MS - 400 * HOUR_MS, NOW_MS - 24 * HOUR_MS),
        counts=Counts(n=12_600, positives=3_000),
        evidence={"gain": 41.5, "holdout_n": 900.0},
        parent=version - 1 or None,
    )


def model_of(
    name: str = "default",
    names: Sequence[str] = (),
    *,
    segments: int = 200,
    windows: Sequence[WindowFigures] = (),
    **fields: Any,
) -> ModelSnapshot:
    """One model whose whole and one segment are in alarm."""
    held = [Series("country", f"country={given}") for given in names]
    held += [Series("country", f"country=C{i:03d}") for i in range(segments - len(held))]
    windows = windows or [window_of("1h", held), window_of("24h", held, seed=2)]
    alarms = {one: AlarmState(2.0 + i % 5, 14.9, "over_confident", None, 1.44) for i, one in enumerate(held)}
    alarms[WHOLE] = AlarmState(11.5, 14.9, "scores_too_high", "scores_too_high", 1.44)
    if held:
        alarms[held[0]] = AlarmState(3.0, 14.9, "scores_too_low", "scores_too_low", 1.44)
    log = [
        MapEntry(
            v,
            "platt",
            NOW_MS - (10 - v) * HOUR_MS,
            NOW_MS - (10 - v) * HOUR_MS,
            1,
            True,
            "",
            document_of(v, 0.5 + v / 20, -0.1),
        )
        for v in (1, 2, 3)
    ]
    log.append(MapEntry(None, "platt", NOW_MS - 6 * HOUR_MS, NOW_MS - HOUR_MS, 5, False, "no_gain"))
    log.append(
        MapEntry(
            4, "platt", NOW_MS - HOUR_MS, NOW_MS - HOUR_MS, 1, True, "worse_than_parent", document_of(4, 0.6, -0.1)
        )
    )
    given: dict[str, Any] = {
        "event_time_ms": NOW_MS,
        "counters": {"accepted_prediction": 60_000, "matched": 59_000, "expired": 900},
        "pending": 100,
        "champion": MapState(4, "platt", NOW_MS - HOUR_MS),
        "refits": {("promoted", ""): 4, ("refused", "no_gain"): 5},
        "last_outcome_ms": {WHOLE: NOW_MS - 1000},
        "alarms": alarms,
        "alarm_log": [
            AlarmEntry(NOW_MS - 90 * HOUR_MS, NOW_MS - 80 * HOUR_MS, WHOLE, "over_confident", 15.2, 1.44),
            AlarmEntry(NOW_MS - 7 * HOUR_MS, None, WHOLE, "scores_too_high", 15.0, 1.44),
            *(AlarmEntry(NOW_MS - 2 * HOUR_MS, None, one, "scores_too_low", 15.9, 1.44) for one in held[:1]),
        ],
        "map_log": log,
        "changes": {"adwin": 2},
        "sealed_until_ms": NOW_MS - 25 * HOUR_MS,
        "blocking_partition": 3,
        "labels": LabelState(0.9375, {0.5: 120.0, 0.9: 7200.0}, (UnmatchedBand(0.0, 0.1, 0.05),)),
        "early": EarlyEstimate(1000, 40, 50.5, 1.2625, 0.2),
        "score_shift": {(WHOLE, "1h"): ScoreShift(0.125, 0.0625)},
    }
    return ModelSnapshot(name=name, windows=tuple(windows), **(given | fields))


def snapshot_of(*models: ModelSnapshot, sequence: int = 1, **fields: Any) -> Snapshot:
    given: dict[str, Any] = {
        "event_time_ms": NOW_MS,
        "counters": {"accepted_prediction": 60_000, "accepted_outcome": 59_500, "matched": 59_000, "expired": 900},
        "rejected": {("predictions", "bad_score"): 2, ("outcomes", "malformed"): 5},
        "watermarks": {("predictions", 0): NOW_MS, ("outcomes", 0): NOW_MS - 90_000},
        "lag": {("predictions", 0): 42, ("outcomes", 0): 0},
        "pending": 100,
        "pending_bytes": 123_456,
    }
    return Snapshot(sequence=sequence, models=models, **(given | fields))


def sources_of(holder: SnapshotHolder, **fields: Any) -> Sources:
    """What the application reads, ready."""
    readiness = Readiness()
    readiness.ready()
    exporter = Exporter(holder, ExportSettings(), ProcessCollector(BuildInfo("1", "l"), readiness, CommitRecorder()))
    return Sources(exporter, holder, readiness, "1.2.3", **fields)
