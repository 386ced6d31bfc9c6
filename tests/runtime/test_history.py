"""Entries of the hourly history are the figures of the windows as they stood at the hour."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from streamcal.engine import Engine, Slice
from streamcal.runtime.config import Config
from streamcal.runtime.history import HistoryRecorder
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.wiring import engine_settings
from streamcal.serve.report import figure_dict
from streamcal.snapshot import AlarmState, Series

HOUR_MS = 3_600_000
T = 1_700_000_400_000 // HOUR_MS * HOUR_MS


def records(topic: str, values: Sequence[dict[str, Any]]) -> Slice:
    return Slice(topic, 0, [LogRecord(json.dumps(value).encode()) for value in values])


def events(hours: int, *, weight_from: int | None = None) -> list[Slice]:
    """Two models, ten predictions an hour each, labelled at once; the second one pauses for hours 3 to 5."""
    predictions, outcomes = [], []
    for i in range(hours * 10):
        ts = T + i * HOUR_MS // 10
        for model in ("a", "b"):
            if model == "b" and 3 <= i // 10 < 6:
                continue
            event = {"id": f"{i}", "model": model, "ts": ts, "score": (i % 7 + 1) / 9}
            if weight_from is not None and i >= weight_from:
                event["weight"] = 2.5
            predictions.append(event)
        outcomes.append({"id": f"{i}", "ts": ts, "label": i % 3 % 2})
    return [records("predictions", predictions), records("outcomes", outcomes)]


def recorded(slices: Sequence[Slice]) -> tuple[HistoryRecorder, list[dict[str, Any]]]:
    """A recorder, and what the snapshot says at each hour, both as the engine passes it."""
    config = Config.model_validate(
        {"segments": {"cuts": []}, "windows": {"lengths": ["1h", "2h"]}, "refit": {"mode": "off"}}
    )
    settings = engine_settings(config)
    history = HistoryRecorder(ece_bins=settings.ece_bins, min_count=settings.min_count)
    seen: list[dict[str, Any]] = []

    def at_hour(at_ms: int) -> None:
        history.record(at_ms)
        for model in engine.snapshot().models:
            for window in model.windows:
                if window.window != "all":
                    pair = {"raw": figure_dict(window.raw, 0), "served": figure_dict(window.served, 0)}
                    alarm = stand(model.alarms[Series("all", "all")])
                    seen.append({"model": model.name, "at_ms": at_ms, "window": window.window, "alarm": alarm, **pair})

    engine = Engine(settings, [0], on_history=at_hour)
    history.attach(engine)
    engine.handle(slices)
    return history, seen


def stand(state: AlarmState) -> dict[str, Any]:
    found: dict[str, Any] = {"threshold": state.threshold, "phi": state.phi}
    if state.evidence > -math.inf:
        found |= {"evidence": state.evidence, "leading": state.leading}
    return found if state.active is None else found | {"active": state.active}


def by_model(seen: Sequence[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    mine = [{key: value for key, value in entry.items() if key != "model"} for entry in seen if entry["model"] == model]
    return sorted(mine, key=lambda entry: (entry["at_ms"], entry["window"]))


@pytest.mark.parametrize("batch", [1, 5, 256])
@pytest.mark.parametrize("weight_from", [None, 37], ids=["plain", "weighted on the way"])
def test_entries_are_the_windows_at_the_hour_however_many_are_computed_at_once(
    monkeypatch: pytest.MonkeyPatch, batch: int, weight_from: int | None
) -> None:
    monkeypatch.setattr("streamcal.runtime.history._BATCH", batch)
    history, seen = recorded(events(10, weight_from=weight_from))
    assert set(history.entries) == {"a", "b"}
    for model, entries in history.entries.items():
        assert entries == by_model(seen, model)


def test_each_hour_is_there_once_and_an_empty_window_is_left_out() -> None:
    history, _ = recorded(events(10))
    hours = {model: [(e["at_ms"] - T) // HOUR_MS for e in entries if e["window"] == "1h"]
             for model, entries in history.entries.items()}  # fmt: skip
    assert hours["a"] == list(range(1, 10))
    assert hours["b"] == [1, 2, 3, 7, 8, 9]  # at 4, 5 and 6 its last hour is empty


def test_reading_the_entries_twice_adds_nothing() -> None:
    history, _ = recorded(events(3))
    assert {model: len(entries) for model, entries in history.entries.items()} == {
        model: len(entries) for model, entries in history.entries.items()
    }
