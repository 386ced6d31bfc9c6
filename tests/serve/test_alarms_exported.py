"""Alarms on /metrics, read back with the official parser."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamcal.serve.exporter import render
from streamcal.serve.metrics import ExportSettings
from streamcal.snapshot import AlarmState, Series

ALL = Series("all", "all")
GB = Series("country", "country=GB")
ODD = Series("country", 'country=a"b%3D\\c\nd')
FAULTS = ("scores_too_high", "scores_too_low", "over_confident", "under_confident")


def calm(**changes):
    return AlarmState(**({"evidence": 2.5, "threshold": 17.58, "leading": None, "active": None, "phi": 1.0} | changes))


def read(text):
    """Family to {labels: value}, and the families' types."""
    families = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in families}) == len(families)
    samples = {}
    for family in families:
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in samples.setdefault(sample.name, {})
            samples[sample.name][labels] = sample.value
    return samples, {family.name: family.type for family in families}


def labels(**given):
    return frozenset(given.items())


@pytest.fixture
def exported(model, snapshot):
    def export(**fields):
        return read(render(snapshot(model("churn", **fields)), ExportSettings()))

    return export


def test_the_whole_model_has_a_sample_of_every_fault_and_segments_only_alarms_in_force(exported):
    alarms = {ALL: calm(active="scores_too_low"), GB: calm(), ODD: calm(active="over_confident")}
    samples, types = exported(alarms=alarms)
    whole = {"model": "churn", "cut": "all", "segment": "all"}
    expected = {labels(**whole, fault=fault): float(fault == "scores_too_low") for fault in FAULTS}
    expected[labels(model="churn", cut="country", segment=ODD.segment, fault="over_confident")] = 1.0
    assert samples["streamcal_alarm_active"] == expected
    assert types["streamcal_alarm_active"] == "gauge"


def test_without_alarms_all_faults_of_the_whole_model_are_0(exported):
    samples, _ = exported(alarms={ALL: calm(), GB: calm()})
    assert set(samples["streamcal_alarm_active"].values()) == {0.0}
    assert len(samples["streamcal_alarm_active"]) == len(FAULTS)


def test_evidence_and_threshold_of_every_series_watched(exported):
    samples, types = exported(
        alarms={ALL: calm(), GB: calm(evidence=-1.25, threshold=70.0), ODD: calm(evidence=-math.inf)}
    )
    where = {
        series: labels(model="churn", cut=series.cut, segment=series.segment) for series in (ALL, GB, ODD)
    }  # fmt: skip
    assert samples["streamcal_alarm_evidence"] == {where[ALL]: 2.5, where[GB]: -1.25}, "none before the first pane"
    assert samples["streamcal_alarm_threshold"] == {where[ALL]: 17.58, where[GB]: 70.0, where[ODD]: 17.58}
    assert types["streamcal_alarm_evidence"] == types["streamcal_alarm_threshold"] == "gauge"


def test_plain_ece_thresholds_per_window(exported):
    samples, _ = exported(ece_exceeded={(ALL, "24h"): True, (GB, "1h"): False})
    assert samples["streamcal_ece_threshold_exceeded"] == {
        labels(model="churn", cut="all", segment="all", window="24h"): 1.0,
        labels(model="churn", cut="country", segment="country=GB", window="1h"): 0.0,
    }


def test_change_triggers_are_counters(exported):
    samples, types = exported(changes={"adwin": 2, "page_hinkley": 1})
    assert samples["streamcal_change_triggers_total"] == {
        labels(model="churn", trigger="adwin"): 2.0,
        labels(model="churn", trigger="page_hinkley"): 1.0,
    }
    assert types["streamcal_change_triggers"] == "counter"


def test_how_far_sealing_is_and_which_partition_it_waits_for(exported):
    samples, _ = exported(sealed_until_ms=1_361_000_060_000, blocking_partition=11)
    assert samples["streamcal_sealed_timestamp_seconds"] == {labels(model="churn"): 1_361_000_060.0}
    assert samples["streamcal_sealing_blocked_by_partition"] == {labels(model="churn"): 11.0}


def test_what_is_not_known_has_no_sample(exported):
    samples, _ = exported()
    for name in (
        "streamcal_alarm_active", "streamcal_alarm_evidence", "streamcal_alarm_threshold",
        "streamcal_ece_threshold_exceeded", "streamcal_change_triggers_total",
        "streamcal_sealed_timestamp_seconds", "streamcal_sealing_blocked_by_partition",
    ):  # fmt: skip
        assert name not in samples
