from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from served_snapshots import model_of, snapshot_of, window_of

from streamcal.serve.trace import CAPACITY, FigureTrace

MODEL = model_of(segments=3, windows=[window_of("1h", ())])


def record(trace, at_ms, **figures):
    (window,) = MODEL.windows
    served = dict(window.served) | {name: np.array([value]) for name, value in figures.items()}
    model = replace(MODEL, event_time_ms=at_ms, windows=(replace(window, served=served),))
    trace.record(snapshot_of(model))


def test_a_point_holds_the_figures_of_the_whole_model():
    trace = FigureTrace()
    record(trace, 1000)
    record(trace, 2000, ece=0.5, platt_slope=np.nan)
    track = trace.track("default", "1h")
    assert track.at_ms.tolist() == [1000, 2000]
    assert track.served["ece"].tolist() == [MODEL.windows[0].served["ece"][0], 0.5]
    assert np.isnan(track.served["platt_slope"][1])
    assert track.raw["n"].tolist() == [MODEL.windows[0].raw["n"][0]] * 2
    assert (track.evidence.tolist(), track.threshold.tolist()) == ([11.5] * 2, [14.9] * 2)
    assert trace.windows("default") == ["1h"]
    assert trace.track("default", "24h") is None


@pytest.mark.parametrize("points", [CAPACITY, CAPACITY + 1, 5000, 100_000])
def test_a_track_is_bounded_and_reaches_from_the_first_to_the_newest(points):
    trace = FigureTrace()
    snapshot = snapshot_of(MODEL)
    for i in range(points):
        object.__setattr__(snapshot.models[0], "event_time_ms", i * 1000)  # a new snapshot each would take minutes
        trace.record(snapshot)
    track = trace.track("default", "1h")
    at = track.at_ms
    assert (at[0], at[-1]) == (0, (points - 1) * 1000)
    assert CAPACITY // 2 <= len(at) <= CAPACITY
    assert np.diff(at).min() > 0
    assert np.diff(at).max() <= max(1000, 2 * track.step_ms)
    if track.step_ms:  # one point of each step, the oldest apart
        assert len(np.unique(at[1:] // track.step_ms)) == len(at) - 1


def test_a_moment_told_twice_is_one_point_as_it_was_last():
    trace = FigureTrace()
    record(trace, 1000, ece=0.1)
    record(trace, 1000, ece=0.2)
    assert trace.track("default", "1h").served["ece"].tolist() == [0.2]


def test_what_was_said_of_later_times_goes_when_event_time_goes_back():
    trace = FigureTrace()
    for at_ms in (1000, 2000, 3000, 1500):
        record(trace, at_ms)
    assert trace.track("default", "1h").at_ms.tolist() == [1000, 1500]


def test_a_model_without_event_time_or_rows_has_no_track():
    trace = FigureTrace()
    trace.record(snapshot_of(replace(MODEL, event_time_ms=None)))
    empty = replace(MODEL.windows[0], series=(), raw_bins=(), served_bins=())
    trace.record(snapshot_of(replace(MODEL, windows=(empty,))))
    assert trace.windows("default") == []
