from __future__ import annotations

import math
from dataclasses import replace

import pytest
from served_snapshots import HOUR_MS, NOW_MS, WHOLE, model_of, window_of

from streamcal.serve.verdict import verdict
from streamcal.snapshot import AlarmEntry, AlarmState, MapEntry, Series

UK, FR = Series("country", "country=GB"), Series("country", "country=FR")
CALM = AlarmState(3.0, 15.0, "over_confident", None, 1.0)
MODEL = replace(model_of(segments=1, windows=[window_of("1h", ())]), alarms={WHOLE: CALM}, alarm_log=(), map_log=())


def raised(series, fault="scores_too_high", hours=3):
    return AlarmEntry(NOW_MS - hours * HOUR_MS, None, series, fault, 16.0, 1.0)


def in_alarm(fault="scores_too_high"):
    return replace(CALM, active=fault)


def test_a_calm_model_is_trusted_and_says_how_far_it_is_from_an_alarm():
    found = verdict(MODEL)
    assert (found.state, found.sentence) == ("ok", "No alarm: evidence 3.0 of the 15.0 that raise an alarm.")
    assert (found.done, found.since_ms) == ("", None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"alarms": {}}, "partition 3"), ({"alarms": {}, "blocking_partition": None, "sealed_until_ms": None}, "horizon"),
     ({"alarms": {WHOLE: replace(CALM, evidence=-math.inf)}, "blocking_partition": None}, "map in force")],
)  # fmt: skip
def test_without_evidence_there_is_no_verdict_and_the_reason_is_given(fields, words):
    found = verdict(replace(MODEL, **fields))
    assert found.state == "unknown"
    assert words in found.sentence


def test_evidence_near_its_threshold_is_to_be_watched():
    assert verdict(replace(MODEL, alarms={WHOLE: replace(CALM, evidence=10.4)})).state == "ok"
    found = verdict(replace(MODEL, alarms={WHOLE: replace(CALM, evidence=10.6)}))
    assert (found.state, "the whole model" in found.sentence) == ("watch", True)
    found = verdict(replace(MODEL, alarms={WHOLE: CALM, UK: replace(CALM, evidence=14.0)}))
    assert (found.state, "1 segment;" in found.sentence) == ("watch", True)


def test_a_plain_threshold_on_ece_is_to_be_watched():
    assert verdict(replace(MODEL, ece_exceeded={(WHOLE, "1h"): False})).state == "ok"
    assert verdict(replace(MODEL, ece_exceeded={(WHOLE, "1h"): True})).state == "watch"


def test_an_alarm_says_which_fault_where_and_since_when():
    found = verdict(replace(MODEL, alarms={WHOLE: in_alarm(), UK: CALM}, alarm_log=[raised(WHOLE)]))
    assert found.state == "alarm"
    assert found.sentence == "Alarm: scores are too high for the whole model since 2026-07-25 14:20 UTC."
    assert found.since_ms == NOW_MS - 3 * HOUR_MS


def test_alarms_of_segments_are_counted_by_fault_with_the_oldest():
    alarms = {WHOLE: CALM, UK: in_alarm(), FR: in_alarm("over_confident")}
    log = [raised(UK, hours=9), raised(FR, "over_confident", hours=2)]
    found = verdict(replace(MODEL, alarms=alarms, alarm_log=log))
    assert found.sentence == (
        "Alarm in 2 segments: scores are too high in 1, scores are over-confident in 1; "
        "the oldest since 2026-07-25 08:20 UTC."
    )


def promoted(version, at_ms, reason=""):
    return MapEntry(version, "platt", at_ms, at_ms, 1, True, reason)


REFUSED = MapEntry(None, "platt", NOW_MS - 9 * HOUR_MS, NOW_MS - HOUR_MS, 8, False, "no_gain")


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([], "No refit was attempted since."),
        ([promoted(2, NOW_MS - HOUR_MS)], "Maps since: 1 promoted, the newest version 2."),
        ([REFUSED], "Maps since: refused 8 times for no_gain."),
        ([promoted(2, NOW_MS - 9 * HOUR_MS)], "No refit was attempted since."),
        ([promoted(3, NOW_MS, "worse_than_parent")], "Maps since: 1 rolled back."),
    ],
)
def test_what_the_loop_did_since_the_alarm_is_told(log, words):
    found = verdict(replace(MODEL, alarms={WHOLE: in_alarm()}, alarm_log=[raised(WHOLE)], map_log=log))
    assert found.done == words
