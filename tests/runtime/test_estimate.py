import json

import numpy as np
import pytest

from streamcal.engine import Engine, Slice
from streamcal.runtime.config import Config, load_config
from streamcal.runtime.estimate import CELL_BYTES, REMEMBERED_BYTES, WINDOW_BYTES, Load, estimate
from streamcal.runtime.logs.base import LogRecord
from streamcal.runtime.wiring import engine_settings


def config(tmp_path, text: str) -> Config:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, environ={}, require_kafka=False)


ONE_SERIES = (
    "{segments: {cuts: []}, windows: {pane: 60s, lengths: [1h]}, refit: {fit_window: 1h}, metrics: {export: [ece]}}"
)


def test_series_are_segments_by_figures_by_windows_by_score_kinds(tmp_path):
    settings = config(
        tmp_path, "{segments: {cuts: [[a], [a, b]]}, windows: {lengths: [1h, 24h]}, metrics: {export: [n, ece, ratio]}}"
    )
    got = estimate(settings, Load(10, {("a",): 3, ("a", "b"): 12}, models=2))
    assert got.figure_series == 2 * (1 + 3 + 12) * 3 * 2 * 2


def test_reliability_bins_are_exported_for_the_uncut_stream_alone(tmp_path):
    text = "{{segments: {{cuts: [[a]]}}, windows: {{lengths: [1h]}}, metrics: {{export: [ece{}], ece_bins: 5}}}}"
    without = estimate(config(tmp_path, text.format("")), Load(10, 7))
    with_bins = estimate(config(tmp_path, text.format(", bins")), Load(10, 7))
    assert with_bins.figure_series - without.figure_series == 5 * 6 * 2


def test_segments_are_capped_with_one_more_for_the_rest(tmp_path):
    settings = config(tmp_path, "{segments: {cuts: [[a]], max_segments: 10}, metrics: {export: [ece], max_series: 30}}")
    got = estimate(settings, Load(10, 500))
    assert got.figure_series == (1 + 10 + 1) * 2 * 2
    assert got.exported_series == 30


def test_the_join_remembers_two_of_the_longest_horizon(tmp_path):
    settings = config(
        tmp_path, "{join: {horizon: 1h, out_of_order: 60s}, models: {slow: {horizon: 2h}}, events: {sample_rate: 0.5}}"
    )
    got = estimate(settings, Load(100))
    assert got.remembered == 50 * (2 * 7200 + 60)
    assert got.join_bytes == got.remembered * REMEMBERED_BYTES


def test_dense_windows_are_284_bins_of_nine_sums_per_series_and_kind(tmp_path):
    got = estimate(config(tmp_path, ONE_SERIES), Load(10))
    assert WINDOW_BYTES == 284 * 9 * 8
    assert got.window_bytes == 1 * 1 * 2 * 284 * 9 * 8
    assert got.state_bytes == got.join_bytes + got.pane_bytes + got.window_bytes + got.early_bytes


def test_early_signs_cost_no_less_than_an_engine_keeps_of_them(tmp_path):
    settings = config(tmp_path, "{segments: {cuts: []}, windows: {pane: 60s, lengths: [1h, 6h]}, join: {horizon: 1h}}")
    engine = Engine(engine_settings(settings), [0])
    logs = {"predictions": [], "outcomes": []}
    start = 1_700_000_000_000
    rng = np.random.default_rng(1)
    for i in range(40_000):
        t = start + 1000 * i
        logs["predictions"].append({"id": f"i{i}", "ts": t, "score": float(1 / (1 + np.exp(-rng.uniform(-6, 6))))})
        logs["outcomes"].append({"id": f"i{i}", "ts": t + int(rng.integers(0, 3_600_000)), "label": i % 2})
    logs["outcomes"].sort(key=lambda event: event["ts"])
    for topic, events in logs.items():
        engine.handle([Slice(topic, 0, [LogRecord(json.dumps(event).encode()) for event in events])])
    estimated = estimate(settings, Load(1)).early_bytes
    assert estimated / 2 < engine.signs.nbytes <= estimated


def test_cells_of_a_busy_stream_are_every_reached_bin_of_every_pane(tmp_path):
    got = estimate(config(tmp_path, ONE_SERIES), Load(10_000))
    # 60 panes, two pane families, two score kinds, 124 bins between the logits -6 and 6
    assert got.pane_bytes == pytest.approx(60 * 2 * 2 * 124 * CELL_BYTES, rel=1e-6)


def test_cells_of_a_quiet_stream_agree_with_a_simulation(tmp_path):
    rng = np.random.default_rng(3)
    rows = 120  # a minute of two per second
    panes = [len(np.unique(rng.integers(0, 124, rows))) for _ in range(4000)]
    got = estimate(config(tmp_path, ONE_SERIES), Load(2))
    assert got.pane_bytes / CELL_BYTES == pytest.approx(60 * 2 * 2 * np.mean(panes), rel=0.005)


def test_reached_bins_are_those_of_the_layout():
    logits = np.arange(-48, 49) / 8
    edges = 1 / (1 + np.exp(-logits))
    cut = np.unique(np.concatenate([np.arange(1, 20) / 20, np.arange(1, 15) / 15]).round(12))
    apart = [edge for edge in cut if np.min(np.abs(edges - edge)) > 1e-9]
    from streamcal.runtime.estimate import REACHED_BINS

    assert len(edges) - 1 + len(apart) == REACHED_BINS


def test_a_longer_look_back_of_fits_adds_cells_of_the_uncut_stream_only(tmp_path):
    longer = ONE_SERIES.replace("fit_window: 1h", "fit_window: 3h")
    short, long = (estimate(config(tmp_path, text), Load(10_000)) for text in (ONE_SERIES, longer))
    assert (long.pane_bytes - short.pane_bytes) / CELL_BYTES == pytest.approx(120 * 2 * 124, rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"predictions_per_second": 0},
        {"predictions_per_second": float("nan")},
        {"predictions_per_second": float("inf")},
        {"predictions_per_second": 1, "segments": 0},
        {"predictions_per_second": 1, "segments": {("a",): 0}},
        {"predictions_per_second": 1, "models": 0},
    ],
)
def test_a_load_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Load(**wrong)
