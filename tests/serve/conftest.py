from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from streamcal.snapshot import (
    EarlyEstimate,
    LabelState,
    MapState,
    ModelSnapshot,
    ScoreShift,
    Series,
    Snapshot,
    UnmatchedBand,
    WindowFigures,
)

ALL = Series("all", "all")
COUNTERS = {
    "accepted_prediction": 100, "accepted_outcome": 90, "matched": 70, "expired": 20, "negative_at_maturity": 3,
    "duplicate_prediction": 4, "duplicate_outcome": 5, "revised_outcome": 6, "late_prediction": 7, "late_outcome": 8,
    "orphan_outcome": 9, "without_raw": 10, "ignored": 11, "clipped": 12, "extreme": 13,
}  # fmt: skip


def make_window(
    rows: Mapping[Series, tuple[Mapping[str, float], Mapping[str, float]]],
    window: str = "24h",
    bins: Sequence[Mapping[str, Any]] = (),
) -> WindowFigures:
    """One window; each series has its raw and its served figures, what a row leaves out is absent."""
    names = {name for pair in rows.values() for kind in pair for name in kind} | {"n"}
    columns = [
        {name: np.array([pair[kind].get(name, np.nan) for pair in rows.values()]) for name in names} for kind in (0, 1)
    ]
    return WindowFigures(window, tuple(rows), columns[0], columns[1], tuple(bins), tuple(bins))


def make_model(name: str = "default", windows: Sequence[WindowFigures] = (), **fields: Any) -> ModelSnapshot:
    per_model = (
        "accepted_prediction", "matched", "expired", "negative_at_maturity", "duplicate_prediction",
        "late_prediction", "without_raw", "extreme",
    )  # fmt: skip
    given: dict[str, Any] = {
        "event_time_ms": 1_361_000_000_123,
        "counters": {key: COUNTERS[key] for key in per_model},
        "pending": 7,
        "labels": LabelState(
            0.75, {0.5: 1.5, 0.99: 3600.25}, (UnmatchedBand(0.0, 0.1, 0.2), UnmatchedBand(0.9, 1.0, 0.0))
        ),
        "early": EarlyEstimate(1000, 40, 50.5, 1.2625, 0.2),
        "score_shift": {(ALL, "1h"): ScoreShift(0.125, 0.0625)},
        "champion": MapState(3, "platt", 1_360_000_000_500),
        "refits": {("promoted", ""): 3, ("refused", "no_gain"): 2},
        "last_outcome_ms": {ALL: 1_361_000_000_001},
    }
    return ModelSnapshot(name=name, windows=tuple(windows), **(given | fields))


def make_snapshot(*models: ModelSnapshot, sequence: int = 1, **fields: Any) -> Snapshot:
    given: dict[str, Any] = {
        "event_time_ms": 1_361_000_000_123,
        "counters": COUNTERS,
        "rejected": {("predictions", "bad_score"): 2, ("outcomes", "malformed"): 5},
        "watermarks": {("predictions", 0): 1_361_000_000_123, ("outcomes", 11): 1_360_999_999_000},
        "lag": {("predictions", 0): 42},
        "pending": 7,
        "pending_bytes": 1234,
    }
    return Snapshot(sequence=sequence, models=models, **(given | fields))


@pytest.fixture
def window() -> Callable[..., WindowFigures]:
    return make_window


@pytest.fixture
def model() -> Callable[..., ModelSnapshot]:
    return make_model


@pytest.fixture
def snapshot() -> Callable[..., Snapshot]:
    return make_snapshot
