"""What alarms promise, on streams whose truth is known: the quick form of `benchmarks/statistics/run.py`."""

import csv
import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from alarm_streams import (
    delayed,
    feed,
    first_raised,
    information,
    panes,
    scores,
    settings,
    shocks,
    watch,
)
from scipy.special import expit

from streamcal.detect.detector import Detector, DetectorSettings

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights" / "flights.csv.gz"


@pytest.mark.parametrize("phi", [1.0, None])
@pytest.mark.parametrize(("base", "rows"), [(0.5, 50), (0.01, 200), (0.001, 1000)])
def test_calibrated_streams_alarm_within_n_panes_with_probability_n_over_a(base, rows, phi):
    grid, runs = scores(base), 200
    detector = Detector(settings(panes=2000, tolerance=0.0, dispersion=phi))
    alarmed = first_raised(watch(detector, grid, panes(grid, runs, rows, 1, [grid.p] * 200)))
    assert len(alarmed) / runs <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / runs)


def test_the_mean_run_length_of_a_calibrated_stream_is_at_least_a():
    grid, runs, count, crossed = scores(0.01), 60, 1000, 0
    detector = Detector(settings(panes=200, tolerance=0.0, dispersion=1.0))
    for pane, rows in enumerate(panes(grid, runs, 200, 2, [grid.p] * count)):
        watch(detector, grid, [rows], pane)
        crossed += int((detector.panes[:runs] == 0).sum())
    assert runs * count / crossed >= 200


def test_looking_at_z_at_every_pane_fires_on_nearly_all_calibrated_streams():
    grid, runs, fired = scores(0.01), 200, np.zeros(200, dtype=bool)
    for pane in panes(grid, runs, 200, 1, [grid.p] * 200):
        gap, variance = (pane.y - pane.n * grid.p).sum(axis=1), (pane.n * grid.p * (1 - grid.p)).sum(axis=1)
        fired |= gap * gap > 1.96**2 * variance
    assert fired.mean() > 0.95


@pytest.mark.parametrize("total", [35, 50, 200])
def test_few_rows_raise_no_alarm_where_a_threshold_on_ece_does(total):
    grid, runs = scores(0.3), 100
    stream = list(panes(grid, runs, total / 5, 4, [grid.p] * 5))
    assert len(first_raised(watch(Detector(settings(panes=43_200)), grid, stream))) <= 1
    n, y = sum(pane.n for pane in stream), sum(pane.y for pane in stream)
    tenth = np.ceil(grid.p * 10).astype(int)
    ece = sum(np.abs((y - n * grid.p)[:, tenth == k].sum(axis=1)) for k in range(1, 11)) / n.sum(axis=1)
    assert (ece > 0.05).mean() > 0.5


@pytest.mark.parametrize("phi", [1.0, None])
def test_slow_positives_and_a_daily_cycle_alarm_by_arrival_but_not_by_sealed_panes(phi):
    def alarms(order):
        detector = Detector(DetectorSettings(96, 1.0, 1, 96, dispersion=phi))
        return bool(first_raised(feed(detector, order, rows.p, rows.y, 0.25)))

    for seed in range(3):
        rows = delayed(seed, days=4, per_hour=1000)
        assert not alarms(rows.made)
        assert alarms(rows.known), "labels: both, panes of outcome time"
        assert alarms(np.where(rows.y == 1, rows.known, rows.made + 24)), "positives_only, positives on arrival"


@pytest.mark.parametrize(("sd", "memory"), [(0.5, 0.0), (0.2, 0.9)])
def test_shared_shocks_alarm_with_phi_one_and_hardly_ever_with_phi_estimated(sd, memory):
    grid, runs = scores(0.01), 40
    alarmed = {}
    for phi in (None, 1.0):
        rates = shocks(grid, runs, 2000, 5, sd=sd, memory=memory)
        detector = Detector(settings(dispersion=phi))
        alarmed[phi] = len(first_raised(watch(detector, grid, panes(grid, runs, 500, 6, rates)))) / runs
    assert alarmed[None] <= 1 / 20
    assert alarmed[1.0] > 5 / 20


def faults():
    x, m = scores(0.0105).x, scores(0.0105).pivot
    return {
        "+.2": (expit(x + 0.2), "scores_too_low"),
        "+.5": (expit(x + 0.5), "scores_too_low"),
        "-.5": (expit(x - 0.5), "scores_too_high"),
        ".8": (expit(m + 0.8 * (x - m)), "over_confident"),
        ".6": (expit(m + 0.6 * (x - m)), "over_confident"),
    }


@pytest.mark.parametrize("phi", [1.0, None])
@pytest.mark.parametrize("fault", list(faults()))
def test_a_fault_is_told_and_named_within_1_3_times_the_expected_delay(fault, phi):
    grid, runs = scores(0.0105), 40
    rate, name = faults()[fault]
    detector = Detector(settings(tolerance=0.0, dispersion=phi))
    expected = (detector.threshold + np.log(14)) / information(grid, rate)
    stream = panes(grid, runs, 500, 7, itertools.repeat(rate, int(3 * expected / 500)))
    first = first_raised(watch(detector, grid, stream))
    assert len(first) == runs
    assert np.mean([event.pane + 1 for event in first.values()]) * 500 <= 1.3 * expected
    assert np.mean([event.fault == name for event in first.values()]) >= 0.9


@pytest.mark.parametrize("count", [1, 40])
def test_triple_over_prediction_alarms_whether_its_rows_come_in_one_pane_or_forty(count):
    grid, runs = scores(0.03), 20
    detector = Detector(settings(panes=43_200_000))
    first = first_raised(watch(detector, grid, panes(grid, runs, 20_000 / count, 8, [grid.p / 3] * count)))
    assert [event.fault for event in first.values()] == ["scores_too_high"] * runs


def test_within_the_tolerance_band_nothing_alarms_however_busy():
    grid = scores(0.1)
    detector = Detector(settings(dispersion=1.0, tolerance=0.1))
    assert watch(detector, grid, panes(grid, 4, 100_000, 9, [expit(grid.x + 0.09)] * 200)) == []
    assert watch(detector, grid, panes(grid, 4, 100_000, 9, [expit(grid.x + 0.25)] * 20), 200)


def test_the_raw_flight_score_alarms_within_four_days_at_phi_one_and_weather_makes_phi_large():
    with gzip.open(FLIGHTS, "rt", encoding="ascii") as lines:
        rows = list(itertools.islice(csv.DictReader(lines), 70_000))
    hours = np.array([int(row["scored_ms"]) for row in rows]) / 3.6e6
    p, y = np.array([float(row["score"]) for row in rows]), np.array([int(row["label"]) for row in rows])
    early = hours < hours[0] + 96
    fixed = Detector(DetectorSettings(96, 1.0, 1000, 96, dispersion=1.0))
    (first, *_) = feed(fixed, hours[early], p[early], y[early], 0.25)
    assert (first.pane + 1) * 0.25 + 24 <= hours[0] + 96
    estimated = Detector(DetectorSettings(96, 1.0, 1000, 96))
    assert sum(event.raised for event in feed(estimated, hours, p, y, 0.25)) <= 2
    assert estimated.evidence(np.array([0])).phi[0] > 20
