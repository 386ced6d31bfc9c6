"""The year of flights through `replay`: published figures of the raw scores, what refits make of them, no leak."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from flights_year import CONFIG, FlightFiles, ReplayedYear

from streamcal.runtime.config import load_config
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.serve.report import report_schema

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

pytestmark = pytest.mark.slow

# Recounted from the table with numpy and scikit-learn 1.9.1 (unpenalised logistic fit).
WHOLE = {"n": 300_948, "positives": 71_629, "ece": 0.047048, "platt_slope": 0.55003, "platt_intercept": -0.43660}
BRIER = 0.179263
MONTHS = {
    "2013-02": (0.04117, 0.5799),
    "2013-03": (0.04326, 0.5468),
    "2013-04": (0.06918, 0.6335),
    "2013-05": (0.02157, 0.7189),
    "2013-06": (0.10382, 0.6243),
    "2013-07": (0.10462, 0.5269),
    "2013-08": (0.04295, 0.6301),
    "2013-09": (0.08944, 0.4180),
    "2013-10": (0.06271, 0.6020),
    "2013-11": (0.05228, 0.4942),
    "2013-12": (0.11317, 0.4708),
}


def month_start(name: str) -> int:
    return int(np.datetime64(name, "M").astype("datetime64[ms]").astype(np.int64))


@pytest.fixture(scope="session")
def whole(flights_year: ReplayedYear) -> dict[str, Any]:
    segment: dict[str, Any] = flights_year.report["models"]["default"]["segments"]["all"]
    return segment


def test_raw_figures_over_everything(whole: dict[str, Any]) -> None:
    raw = whole["windows"]["all"]["raw"]
    assert {name: raw[name] for name in ("n", "positives")} == {"n": WHOLE["n"], "positives": WHOLE["positives"]}
    assert raw["ece"] == pytest.approx(WHOLE["ece"], abs=5e-7)
    assert raw["brier"] == pytest.approx(BRIER, abs=5e-7)
    assert raw["platt_slope"] == pytest.approx(WHOLE["platt_slope"], abs=5e-6)
    assert raw["platt_intercept"] == pytest.approx(WHOLE["platt_intercept"], abs=5e-6)


def test_raw_figures_by_month_of_the_prediction(whole: dict[str, Any]) -> None:
    periods = whole["periods"]
    assert [period["from_ms"] for period in periods] == [month_start(name) for name in MONTHS]
    assert [period["to_ms"] for period in periods] == [
        month_start(str(np.datetime64(name, "M") + 1)) for name in MONTHS
    ]
    assert [period["raw"]["ece"] for period in periods] == pytest.approx([ece for ece, _ in MONTHS.values()], abs=1e-4)
    assert [period["raw"]["platt_slope"] for period in periods] == pytest.approx(
        [slope for _, slope in MONTHS.values()], abs=1e-4
    )
    assert sum(period["raw"]["n"] for period in periods) == WHOLE["n"]
    assert np.mean([period["raw"]["ece"] for period in periods]) == pytest.approx(0.06765, abs=1e-5)


def test_hourly_refits_more_than_halve_the_mean_monthly_ece(whole: dict[str, Any]) -> None:
    assert np.mean([period["served"]["ece"] for period in whole["periods"]]) <= 0.030


def test_from_june_on_served_scores_beat_every_rival_of_the_benchmark(whole: dict[str, Any]) -> None:
    served = [period["served"] for period in whole["periods"] if period["from_ms"] >= month_start("2013-06")]
    assert sum(figures["n"] for figures in served) == 193_743
    assert np.mean([figures["ece"] for figures in served]) <= 0.026
    rows = [figures["n"] for figures in served]
    assert np.average([figures["log_loss"] for figures in served], weights=rows) <= 0.5160


def test_served_scores_cover_the_same_rows(whole: dict[str, Any]) -> None:
    for pair in (*whole["windows"].values(), *whole["periods"]):
        assert pair["raw"]["n"] == pair["served"]["n"]
        assert pair["raw"].get("positives") == pair["served"].get("positives")


def test_segments_of_a_cut_add_up_to_the_whole(flights_year: ReplayedYear) -> None:
    segments = flights_year.report["models"]["default"]["segments"]
    for dimensions in (["carrier"], ["carrier", "origin"]):
        keys = [key for key in segments if [part.split("=")[0] for part in key.split(",")] == dimensions]
        assert sum(segments[key]["windows"]["all"]["raw"]["n"] for key in keys) == WHOLE["n"]


def test_the_report_is_of_the_shipped_schema(flights_year: ReplayedYear) -> None:
    jsonschema.Draft202012Validator(report_schema()).validate(flights_year.report)


def test_the_report_says_what_was_read(flights_year: ReplayedYear, flight_files: FlightFiles) -> None:
    report = flights_year.report
    assert report["inputs"] == [
        {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in (flight_files.predictions, flight_files.outcomes)
    ]
    assert report["config_hash"] == load_config(CONFIG, environ={}, require_kafka=False).hash()
    counters = report["counters"]
    assert counters["accepted_prediction"] == counters["matched"] == counters["accepted_outcome"] == WHOLE["n"]
    assert report["pending"] == counters["expired"] == counters["duplicate_outcome"] == 0
    assert counters["rejected"] == {}


def test_history_has_each_hour_once_and_in_order(flights_year: ReplayedYear) -> None:
    history = flights_year.report["models"]["default"]["history"]
    for window in ("24h", "7d"):
        hours = [entry["at_ms"] for entry in history if entry["window"] == window]
        assert all(hour % HOUR_MS == 0 for hour in hours)
        assert np.diff(hours).tolist() == [HOUR_MS] * (len(hours) - 1)
        assert len(hours) > 8000


def test_maps_are_numbered_in_order_and_decided_on_the_hour(flights_year: ReplayedYear) -> None:
    promoted = [entry for entry in flights_year.report["models"]["default"]["maps"] if entry["promoted"]]
    versions = [entry["version"] for entry in promoted]
    assert versions == sorted(set(versions))
    # What a tracking filter publishes between two promotions shares one entry, which has its last document.
    assert sum(entry["attempts"] for entry in promoted) == versions[-1]
    times = [entry["at_ms"] for entry in promoted]
    assert times == sorted(times)
    assert {time % HOUR_MS for time in times} == {0}
    assert [entry["document"]["at_ms"] for entry in promoted] == [entry["until_ms"] for entry in promoted]
    assert "tracking" in {entry["family"] for entry in promoted}


def test_the_page_needs_nothing_from_elsewhere(flights_year: ReplayedYear) -> None:
    # What it draws, and that it asks for nothing, is seen in a browser (tests/browser); here no tag names an address.
    assert not re.search(r"""<(script|link|img|iframe)[^>]*\s(src|href)=["']?(https?:)?//""", flights_year.page)
    assert "<script src" not in flights_year.page


# --- no leak -------------------------------------------------------------------------------------------------

SLICE_END = month_start("2013-04")
KNOWN_UNTIL = month_start("2013-03") + 9 * DAY_MS


def served_by_day(files: FlightFiles) -> dict[int, dict[str, Any]]:
    """Per day of the prediction and segment: what the served scores are, whatever the labels."""
    config = load_config(CONFIG, environ={}, require_kafka=False)
    result = replay(config, ReplayOptions(files.predictions, files.outcomes, by="day", drain=True))
    days: dict[int, dict[str, Any]] = {}
    for key, segment in result.models["default"].segments.items():
        for period in segment["periods"]:
            served = period["served"]
            bins = [(bin_["n"], bin_.get("mean_score")) for bin_ in served.get("bins", [])]
            days.setdefault(period["from_ms"], {})[key] = served["n"], served["mean_score"], bins
    return days


def permuted_after(source: Path, target: Path, time_ms: int) -> Path:
    """The outcomes with the labels known from `time_ms` on dealt out anew among themselves."""
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    later = [event for event in events if event["ts"] >= time_ms]
    labels = [event["label"] for event in later]
    random.Random(5).shuffle(labels)
    for event, label in zip(later, labels, strict=True):
        event["label"] = label
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=1) as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return target


def test_labels_known_later_change_no_served_score_before(flight_files: FlightFiles, tmp_path: Path) -> None:
    files = flight_files.until(tmp_path, SLICE_END, SLICE_END)
    shuffled = FlightFiles(files.predictions, permuted_after(files.outcomes, tmp_path / "p.jsonl.gz", KNOWN_UNTIL))
    one, other = served_by_day(files), served_by_day(shuffled)
    same = {start for start in one if one[start] == other[start]}  # floats from exact sums: to the bit
    before = {start for start in one if start + DAY_MS <= KNOWN_UNTIL}
    assert len(before) == 37
    assert before <= same
    assert sum(len(one[start]) for start in before) > 1000  # carriers and their airports, each day
    assert len(one.keys() - same) > 14  # later ones do follow the labels


# --- as recorded ---------------------------------------------------------------------------------------------


def test_without_applying_refits_run_in_shadow_and_scores_stay(flight_files: FlightFiles, tmp_path: Path) -> None:
    end = month_start("2013-02") + 12 * DAY_MS
    files = flight_files.until(tmp_path, end, end)
    config = load_config(CONFIG, environ={}, require_kafka=False)
    model = replay(config, ReplayOptions(files.predictions, files.outcomes, apply=False)).models["default"]
    shadows = [entry for entry in model.maps if entry["reason"] == "shadow"]
    assert shadows
    assert not any(entry["promoted"] for entry in model.maps)
    for pair in model.segments["all"]["windows"].values():
        assert pair["served"] == pair["raw"]
