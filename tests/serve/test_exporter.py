"""Everything exported is read back with the official parser and compared with the snapshot it came from."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from streamcal.serve.exporter import BuildInfo, Exporter, ProcessCollector, SnapshotCollector, render
from streamcal.serve.exposition import ColumnFamily, LabelColumn, exposition, label_value, labelled
from streamcal.serve.live import COMMIT_BUCKETS, CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.metrics import BIN_FIGURES, CORE, FIGURES, MODEL_COUNTERS, TOTAL_COUNTERS, ExportSettings
from streamcal.snapshot import Series, Snapshot

ALL = Series("all", "all")
GB = Series("country", "country=GB")
DE = Series("country", "country=DE")
FULL = ExportSettings(export="full")
BINS = (
    {"lo": 0.0, "hi": 0.1, "n": 4, "positives": 1, "mean_score": 0.05, "observed_rate": 0.25,
     "observed_low": 0.01, "observed_high": 0.6},
    {"lo": 0.1, "hi": 0.2, "n": 0, "positives": 0},
)  # fmt: skip

# The contract, written out here a second time on purpose.
FIGURE_METRICS = {
    "n": "streamcal_labelled_predictions", "positives": "streamcal_positive_outcomes",
    "ratio": "streamcal_predicted_to_observed_ratio", "platt_slope_se": "streamcal_platt_slope_stderr",
    "platt_intercept_se": "streamcal_platt_intercept_stderr",
    "offset_intercept_se": "streamcal_offset_intercept_stderr",
} | {
    name: f"streamcal_{name}"
    for name in (
        "mean_score", "base_rate", "ece", "ece_noise_floor", "ece_z", "ece_equal_mass", "l2_debiased", "ecce",
        "ecce_sigma", "mce", "platt_slope", "platt_intercept", "offset_intercept", "brier", "log_loss",
        "normalized_entropy", "spiegelhalter_z", "effective_n", "phi",
        "l2_debiased_signed", "smooth_ece", "ecce_p_value",
        "brier_reliability", "brier_resolution", "brier_uncertainty",
    )
}  # fmt: skip


def parsed(text: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels; a sample that occurs twice is an error."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def figures_of(snapshot: Snapshot, names: Iterable[str]) -> dict[Any, float]:
    """What the figure gauges must be, walked the slow way."""
    expected = {}
    for model in snapshot.models:
        for window in model.windows:
            for kind in ("raw", "served"):
                figures = getattr(window, kind)
                for i, series in enumerate(window.series):
                    for name in set(names) & set(figures):
                        if not np.isnan(figures[name][i]):
                            labels = {
                                "model": model.name, "cut": series.cut, "segment": series.segment,
                                "window": window.window, "score_kind": kind,
                            }  # fmt: skip
                            expected[key(FIGURE_METRICS[name], **labels)] = float(figures[name][i])
    return expected


def one_scrape(text: bytes, names: Iterable[str]) -> dict[Any, float]:
    wanted = set(names)
    return {labelled: value for labelled, value in parsed(text).items() if labelled[0] in wanted}


@pytest.fixture
def rich_snapshot(window, model, snapshot):
    rng = np.random.default_rng(20130201)

    def figures(leave_out: set[str]) -> dict[str, float]:
        drawn = {name: float(rng.normal()) for name in FIGURES if name not in leave_out}
        return drawn | {"n": float(rng.integers(1, 10**12)), "positives": float(rng.integers(1, 10**7))}

    rows = {ALL: (figures(set()), figures({"phi"})), GB: (figures({"platt_slope", "platt_slope_se"}), figures({"ece"}))}
    windows = (window(rows, "1h", BINS), window({ALL: rows[ALL]}, "24h", BINS))
    return snapshot(
        model("default", windows),
        model("fraud:v2", windows[:1], champion=None, labels=None, early=None, score_shift={}),
    )


@pytest.fixture
def process():
    readiness, commits = Readiness(), CommitRecorder()
    return readiness, commits, ProcessCollector(BuildInfo("1.2.3", "layout-id", "abc"), readiness, commits)


def test_every_figure_reads_back_exactly_as_the_snapshot_has_it(rich_snapshot):
    expected = figures_of(rich_snapshot, FIGURE_METRICS)
    assert one_scrape(render(rich_snapshot, FULL), FIGURE_METRICS.values()) == expected


def test_figure_names_are_those_of_the_contract():
    assert {name: named.metric for name, named in FIGURES.items()} == FIGURE_METRICS


def test_core_exports_only_the_core_figures(rich_snapshot):
    text = render(rich_snapshot, ExportSettings())
    assert one_scrape(text, FIGURE_METRICS.values()) == figures_of(rich_snapshot, CORE)
    assert not one_scrape(text, [named.metric for named in BIN_FIGURES.values()])


def test_named_figures_are_exported_alone(rich_snapshot):
    text = render(rich_snapshot, ExportSettings(export=["brier", "ece"]))
    assert one_scrape(text, FIGURE_METRICS.values()) == figures_of(rich_snapshot, ("brier", "ece"))


@pytest.mark.parametrize("export", [["ecee"], "cores", ["core", "platt"]])
def test_an_unknown_figure_in_the_export_is_an_error(export):
    with pytest.raises(ValueError, match="no figure is called"):
        ExportSettings(export=export)


def test_absent_figures_leave_no_sample_and_nothing_is_nan(rich_snapshot):
    text = render(rich_snapshot, FULL)
    assert b"NaN" not in text
    assert key(
        "streamcal_phi", model="default", cut="all", segment="all", window="1h", score_kind="served"
    ) not in parsed(text)


def test_bins_are_gauges_of_all_with_their_bounds(rich_snapshot):
    samples = one_scrape(render(rich_snapshot, FULL), [named.metric for named in BIN_FIGURES.values()])
    labels = {"model": "default", "cut": "all", "segment": "all", "window": "24h", "score_kind": "raw"}
    first = {**labels, "lo": "0.0", "hi": "0.1"}
    assert samples[key("streamcal_bin_observed_rate", **first)] == 0.25
    assert samples[key("streamcal_bin_labelled_predictions", **labels, lo="0.1", hi="0.2")] == 0
    assert key("streamcal_bin_observed_rate", **labels, lo="0.1", hi="0.2") not in samples
    assert len(samples) == 3 * 2 * (6 + 2)  # three windows of two kinds, one full bin and one empty


def test_maps_refits_and_stream_state_read_back(rich_snapshot):
    samples = parsed(render(rich_snapshot, ExportSettings()))
    expected = {
        key("streamcal_map_info", model="default", map_version="3", family="platt"): 1,
        key("streamcal_map_promoted_timestamp_seconds", model="default"): 1_360_000_000.5,
        key("streamcal_refits_total", model="default", result="promoted", reason=""): 3,
        key("streamcal_refits_total", model="default", result="refused", reason="no_gain"): 2,
        key("streamcal_events_rejected_total", topic="predictions", reason="bad_score"): 2,
        key("streamcal_events_rejected_total", topic="outcomes", reason="malformed"): 5,
        key("streamcal_pending_predictions"): 7,
        key("streamcal_pending_bytes"): 1234,
        key("streamcal_watermark_timestamp_seconds", topic="predictions", partition="0"): 1_361_000_000.123,
        key("streamcal_watermark_timestamp_seconds", topic="outcomes", partition="11"): 1_360_999_999.0,
        key("streamcal_last_outcome_timestamp_seconds", model="default", cut="all", segment="all"): 1_361_000_000.001,
        key("streamcal_label_coverage_ratio", model="default"): 0.75,
        key("streamcal_consumer_lag", topic="predictions", partition="0"): 42,
        key("streamcal_ece_info", scheme="equal_width", bins="10"): 1,
        key("streamcal_series_dropped"): 0,
    }
    assert {name: samples[name] for name in expected} == expected
    absent = ("streamcal_map_info", "streamcal_label_coverage_ratio", "streamcal_map_promoted_timestamp_seconds")
    assert not [name for name, labels in samples if name in absent and ("model", "fraud:v2") in labels]


def test_every_counter_reads_back_under_its_name(rich_snapshot):
    names = {
        "accepted_prediction": "streamcal_predictions_accepted_total",
        "accepted_outcome": "streamcal_outcomes_accepted_total",
        "matched": "streamcal_predictions_matched_total", "expired": "streamcal_predictions_expired_total",
        "negative_at_maturity": "streamcal_predictions_negative_at_maturity_total",
        "duplicate_prediction": "streamcal_predictions_duplicate_total",
        "duplicate_outcome": "streamcal_outcomes_duplicate_total",
        "revised_outcome": "streamcal_outcomes_revised_total",
        "late_prediction": "streamcal_predictions_late_total", "late_outcome": "streamcal_outcomes_late_total",
        "orphan_outcome": "streamcal_outcomes_orphan_total", "without_raw": "streamcal_predictions_without_raw_total",
        "ignored": "streamcal_events_ignored_total", "clipped": "streamcal_scores_clipped_total",
        "extreme": "streamcal_scores_extreme_total",
    }  # fmt: skip
    assert set(MODEL_COUNTERS) | set(TOTAL_COUNTERS) == set(names) == set(rich_snapshot.counters)
    samples = parsed(render(rich_snapshot, ExportSettings()))
    for counter, name in names.items():
        labels = [{"model": "default"}, {"model": "fraud:v2"}] if counter in MODEL_COUNTERS else [{}]
        assert [samples[key(name, **given)] for given in labels] == [rich_snapshot.counters[counter]] * len(labels)


def test_a_segment_that_vanishes_leaves_no_sample(window, model, snapshot, process):
    figures = ({"n": 5.0, "ece": 0.1}, {"n": 5.0, "ece": 0.1})
    holder = SnapshotHolder()
    exporter = Exporter(holder, ExportSettings(), process[2])
    holder.publish(snapshot(model("m", [window({ALL: figures, GB: figures})]), sequence=1))
    assert b"country=GB" in exporter.text()
    holder.publish(snapshot(model("m", [window({ALL: figures})]), sequence=2))
    assert b"country=GB" not in exporter.text()
    holder.publish(snapshot(sequence=3))
    assert b'model="m"' not in exporter.text()


@pytest.mark.parametrize(
    "name",
    [
        'quo"te',
        "back\\slash",
        "line\nbreak",
        "\\n",
        "a\tb",
        '{x="1"} 5',
        "naïve 模型 🛫",
        " ",
        "x" * 10_000,
        "\r\n",
        "\u2028",
    ],
)
def test_hostile_names_read_back_as_they_are(name, window, model, snapshot):
    row = ({"n": 5.0, "ece": 0.1}, {"n": 5.0, "ece": 0.2})
    segment = Series("who", f"who={name}")
    hostile = snapshot(model(name, [window({ALL: row, segment: row})], last_outcome_ms={segment: 5000}))
    text = render(hostile, FULL)
    assert one_scrape(text, FIGURE_METRICS.values()) == figures_of(hostile, FIGURE_METRICS)
    assert text == generate_latest(SnapshotCollector(hostile, FULL))


@given(st.text(st.characters(codec=None), max_size=12))
def test_any_text_becomes_a_label_that_encodes_without_nul_and_stays_if_it_could(value):
    label = label_value(value)
    encoded = label.encode()
    assert b"\0" not in encoded
    if "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value):
        assert label == value


def test_nul_and_lone_surrogates_are_percent_encoded():
    assert label_value("a\0b\ud800") == "a%00b%ED%A0%80"


def test_the_text_is_byte_for_byte_that_of_the_library(rich_snapshot, process):
    _, commits, collector = process
    for seconds in (0.0, 0.004, 1e-7, 77.0):
        commits.observe(seconds)
    assert render(rich_snapshot, FULL) == generate_latest(SnapshotCollector(rich_snapshot, FULL))
    assert exposition(collector.collect()) == generate_latest(collector)


def many_segments(window, model, snapshot, sizes):
    rows = {Series("k", f"k={i:03d}"): ({"n": float(n), "ece": 0.1}, {"n": float(n)}) for i, n in enumerate(sizes)}
    rows[ALL] = ({"n": 1.0, "ece": 0.5}, {"n": 1.0, "ece": 0.4})
    return snapshot(model("m", [window(rows)], last_outcome_ms=dict.fromkeys(rows, 1000)))


def test_the_cap_keeps_all_then_the_largest_segments_and_counts_what_it_drops(window, model, snapshot):
    sizes = [50, 10, 90, 70, 30]
    capped = many_segments(window, model, snapshot, sizes)
    # `all` has 4 series, a segment 3 (its served ECE is absent); 4 + 2 * 3 fit into 12, a third does not.
    samples = parsed(render(capped, ExportSettings(export=["n", "ece"], max_series=12)))
    segments = {dict(labels)["segment"] for name, labels in samples if name == "streamcal_labelled_predictions"}
    assert segments == {"all", "k=002", "k=003"}
    assert samples[key("streamcal_series_dropped")] == 3 * 3
    last = {dict(labels)["segment"] for name, labels in samples if name == "streamcal_last_outcome_timestamp_seconds"}
    assert last == segments


def test_a_cap_that_is_just_met_drops_nothing(window, model, snapshot):
    whole = many_segments(window, model, snapshot, [1, 2])
    samples = parsed(render(whole, ExportSettings(export=["n", "ece"], max_series=10)))
    assert samples[key("streamcal_series_dropped")] == 0


def test_all_stays_however_small_the_cap(window, model, snapshot):
    samples = parsed(render(many_segments(window, model, snapshot, [8]), ExportSettings(export=["n"], max_series=1)))
    assert {dict(labels)["segment"] for name, labels in samples if name == "streamcal_labelled_predictions"} == {"all"}
    assert samples[key("streamcal_series_dropped")] == 2


def test_one_snapshot_is_rendered_once_for_many_scrapes_from_many_threads(rich_snapshot, process):
    holder = SnapshotHolder()
    exporter = Exporter(holder, FULL, process[2])
    holder.publish(rich_snapshot)
    texts: list[bytes] = []
    barrier = threading.Barrier(8)

    def scrape() -> None:
        barrier.wait()
        texts.append(exporter.text())
        texts.append(gzip.decompress(exporter.compressed()))

    threads = [threading.Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert exporter.rendered == 1
    assert len(texts) == 16
    assert len(set(texts)) == 1
    holder.publish(replace(rich_snapshot, sequence=2))
    exporter.text()
    assert exporter.rendered == 2


def test_readiness_and_commits_are_true_at_the_scrape_while_the_snapshot_stays(rich_snapshot, process):
    readiness, commits, collector = process
    holder = SnapshotHolder()
    holder.publish(rich_snapshot)
    exporter = Exporter(holder, ExportSettings(), collector)
    before = parsed(exporter.text())
    readiness.ready()
    commits.observe(0.25)
    commits.observe(60.0)
    for text in (exporter.text(), gzip.decompress(exporter.compressed())):
        after = parsed(text)
        assert (before[key("streamcal_ready")], after[key("streamcal_ready")]) == (0, 1)
        assert after[key("streamcal_commit_duration_seconds_bucket", le="0.1")] == 0
        assert after[key("streamcal_commit_duration_seconds_bucket", le="0.25")] == 1
        assert after[key("streamcal_commit_duration_seconds_bucket", le="+Inf")] == 2
        assert after[key("streamcal_commit_duration_seconds_count")] == 2
        assert after[key("streamcal_commit_duration_seconds_sum")] == 60.25
    assert exporter.rendered == 1


def test_before_the_first_snapshot_only_the_process_is_exported(process):
    samples = parsed(Exporter(SnapshotHolder(), FULL, process[2]).text())
    assert samples[key("streamcal_ready")] == 0
    names = {name for name, _ in samples}
    assert "streamcal_build_info" in names
    assert "streamcal_pending_predictions" not in names


def test_what_is_withdrawn_or_out_of_date_leaves_the_metrics_and_comes_back(rich_snapshot, process):
    holder = SnapshotHolder()
    exporter = Exporter(holder, FULL, process[2])
    alone = parsed(exporter.text())
    holder.publish(rich_snapshot)
    full = parsed(exporter.text())
    assert len(full) > len(alone)
    holder.withdraw()
    assert parsed(exporter.text()) == alone
    assert parsed(gzip.decompress(exporter.compressed())) == alone
    holder.publish(rich_snapshot, until_s=monotonic() + 3600)
    assert parsed(gzip.decompress(exporter.compressed())) == full
    holder.publish(rich_snapshot, until_s=monotonic() - 1)
    assert holder.latest is None
    assert holder.age_s() is None
    assert parsed(exporter.text()) == alone
    assert parsed(gzip.decompress(exporter.compressed())) == alone


def test_readiness_ends_by_itself_when_its_time_is_over_and_the_process_is_still_declared():
    readiness = Readiness()
    assert not readiness.declared
    readiness.ready(until_s=monotonic() + 3600)
    assert readiness.reason is None
    readiness.ready(until_s=monotonic() - 1)
    assert "no commit has gone through" in readiness.reason
    assert readiness.declared
    readiness.ready()
    assert readiness.reason is None


@given(st.lists(st.floats(0, 100), max_size=40))
def test_commit_buckets_count_what_is_not_above_each_bound(seconds):
    commits = CommitRecorder()
    for one in seconds:
        commits.observe(one)
    taken = commits.taken()
    assert list(taken.at_most) == [sum(one <= bound for one in seconds) for bound in COMMIT_BUCKETS]
    assert taken.count == len(seconds)
    assert taken.total_s == pytest.approx(sum(seconds))


def test_columns_of_any_numbers_are_written_as_the_library_writes_them():
    rng = np.random.default_rng(11)
    sizes = 10.0 ** rng.integers(-12, 22, 5000)
    values = np.concatenate(
        [rng.normal(size=5000) * sizes, [0.0, -0.0, 1e-4, 9.99e-5, 1e6, 999_999.5, -1e6, 5.0, 1e300]]
    )
    values = np.concatenate([values, [np.inf, -np.inf, np.nan, 5e-324, 123_456_789.0]])
    family = ColumnFamily("x", "Help.")
    family.add(LabelColumn([labelled(("i",), (str(i),)) for i in range(len(values))]), values)
    family.add(LabelColumn([]), [])

    class Only(Collector):
        def collect(self):
            yield family

    text = exposition([family])
    assert text == generate_latest(Only())
    assert text.count(b"\n") == 2 + len(values) - 1  # NaN is absent
