"""Alarms of the flights through `replay`: the raw score is wrong within days; weather makes that hard to say."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import Any

import jsonschema
import pytest
from flights_year import CONFIG, FlightFiles, ReplayedYear

from streamcal.runtime.config import load_config
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.serve.report import report_document, report_schema

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FAULTS = {"scores_too_high", "scores_too_low", "over_confident", "under_confident"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ten_days(flight_files: FlightFiles, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Report of the first ten days at phi 1, without refits: served is raw."""
    folder = tmp_path_factory.mktemp("ten_days")
    text = CONFIG.read_text(encoding="utf-8").replace("mode: auto", "mode: off") + "alarms: {dispersion: 1}\n"
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    config = load_config(folder / "config.yaml", environ={}, require_kafka=False)
    start = replay_start(flight_files)
    files = flight_files.until(folder, start + 10 * DAY_MS, start + 10 * DAY_MS)
    return report_document(replay(config, ReplayOptions(files.predictions, files.outcomes, apply=False)))


def replay_start(files: FlightFiles) -> int:

    with gzip.open(files.predictions, "rb") as lines:
        return int(json.loads(next(lines))["ts"])


def of_whole(model: dict[str, Any]) -> list[dict[str, Any]]:
    return [alarm for alarm in model["alarms"] if alarm["segment"] == "all"]


def test_at_phi_1_the_raw_score_alarms_within_four_days_of_event_time(ten_days: dict[str, Any]) -> None:
    first = of_whole(ten_days["models"]["default"])[0]
    assert first["at_ms"] - ten_days["from_ms"] <= 4 * DAY_MS
    assert first["fault"] in FAULTS
    assert first["phi"] == 1.0


def test_the_report_with_alarms_is_of_the_shipped_schema(ten_days: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(report_schema()).validate(ten_days)
    assert len({alarm["segment"] for alarm in ten_days["models"]["default"]["alarms"]}) > 3


def test_the_history_agrees_with_the_alarms(ten_days: dict[str, Any]) -> None:
    model = ten_days["models"]["default"]
    stands = {entry["at_ms"]: entry["alarm"] for entry in model["history"] if entry["window"] == "24h"}
    alarms = of_whole(model)
    assert all(later["at_ms"] >= alarm["ended_at_ms"] for alarm, later in itertools.pairwise(alarms))
    active = 0
    for hour, stand in stands.items():
        assert stand["phi"] == 1.0
        # An hour before and after each change what is in force is left open: the hour is event time, an alarm is
        # known at the end of its pane and the horizon.
        changes = [time for alarm in alarms for time in (alarm["at_ms"], alarm["ended_at_ms"]) if time is not None]
        if all(abs(hour - time) > HOUR_MS for time in changes):
            in_force = [a for a in alarms if a["at_ms"] <= hour and not (a["ended_at_ms"] or hour) < hour]
            assert stand.get("active") == (in_force[0]["fault"] if in_force else None)
            active += bool(in_force)
    assert active > 24


def test_through_the_year_the_report_lists_phi_evidence_and_leading_fault(flights_year: ReplayedYear) -> None:
    model = flights_year.report["models"]["default"]
    stands = [entry["alarm"] for entry in model["history"] if entry["window"] == "24h"]
    told = [stand for stand in stands if "evidence" in stand]
    assert len(told) > 0.98 * len(stands)
    assert {stand["leading"] for stand in told} <= FAULTS
    assert len({stand["leading"] for stand in told}) > 1
    # Weather: days differ so much that a thousand flights say what a few dozen independent ones would.
    half = len(stands) // 2
    assert min(stand["phi"] for stand in stands[half:]) > 20
    assert stands[0]["phi"] == 1.0
    for alarm in model["alarms"]:
        assert alarm["fault"] in FAULTS
        assert alarm["ended_at_ms"] is None or alarm["ended_at_ms"] > alarm["at_ms"]
