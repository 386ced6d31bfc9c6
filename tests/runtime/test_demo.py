"""The demo on its first weeks: live figures from every place agree, and agree with a replay; it ends when told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from flights_year import CONFIG, FlightFiles
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from streamcal.errors import InputFileError
from streamcal.runtime.config import Config, load_config
from streamcal.runtime.demo import Demo
from streamcal.runtime.flights import Flights, flights_folder, read_flights
from streamcal.runtime.months import everything_row, month_rows
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.serve.http import HttpServer
from streamcal.serve.table import MonthRow, MonthTable
from streamcal.snapshot import Snapshot

DAY_MS = 86_400_000
MARCH = int(np.datetime64("2013-03").astype("datetime64[ms]").astype(np.int64))
END = MARCH + 10 * DAY_MS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(CONFIG, environ={}, require_kafka=False)


@pytest.fixture(scope="module")
def flights() -> Flights:
    return read_flights(flights_folder()).until(END)


@pytest.fixture(scope="module")
def finished(config: Config, flights: Flights) -> tuple[Demo, list[Snapshot]]:
    """A demo that ran to its end, and the snapshots it showed on the way."""
    demo, shown = Demo(config, flights), []
    assert demo.run(on_picture=shown.append)
    return demo, shown


def rows_of(snapshot: Snapshot) -> list[MonthRow]:
    (model,) = snapshot.models
    return month_rows(model, horizon_ms=DAY_MS)


def scraped(demo: Demo) -> dict[tuple[str, str, str], float]:
    """(metric, window, score kind) to value, of the segment ``all``, over HTTP."""
    with HttpServer(demo.app, port=0) as server, urlopen(f"{server.url}/metrics") as response:
        text = response.read().decode()
    return {
        (sample.name, sample.labels["window"], sample.labels["score_kind"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("segment") == "all" and {"window", "score_kind"} <= sample.labels.keys()
    }


def test_the_table_and_a_scrape_show_the_same_figures(finished: tuple[Demo, list[Snapshot]]) -> None:
    demo, shown = finished
    scrape = scraped(demo)
    rows = rows_of(shown[-1])
    assert [row.month for row in rows] == ["2013-02", "2013-03"]
    for row in rows:
        for kind, ece, slope in (("raw", row.ece_raw, row.slope_raw), ("served", row.ece_served, row.slope_served)):
            assert scrape["streamcal_ece", row.month, kind] == ece
            assert scrape["streamcal_platt_slope", row.month, kind] == slope
            assert scrape["streamcal_labelled_predictions", row.month, kind] == row.n
    assert {window for _, window, _ in scrape} == {"24h", "7d", "all", "2013-02", "2013-03"}


def test_what_is_printed_is_what_is_scraped(finished: tuple[Demo, list[Snapshot]]) -> None:
    demo, shown = finished
    console = Console(file=StringIO(), force_terminal=False)
    with MonthTable(console) as table:
        table.update(rows_of(shown[-1]))
    scrape = scraped(demo)
    printed = [line.split() for line in console.file.getvalue().splitlines()]
    for cells in printed[1:3]:
        figures = [
            f"{scrape[metric, cells[0], kind]:.4f}"
            for metric in ("streamcal_ece", "streamcal_platt_slope")
            for kind in ("raw", "served")
        ]
        assert cells[2:] == figures


def test_raw_figures_and_maps_are_those_of_a_replay(
    finished: tuple[Demo, list[Snapshot]], config: Config, flight_files: FlightFiles, tmp_path: Path
) -> None:
    _, shown = finished
    (model,) = shown[-1].models
    # The demo ends with the outcomes of its flights, some of them known after its last day.
    files = flight_files.until(tmp_path, END, END + DAY_MS)
    result = replay(config, ReplayOptions(files.predictions, files.outcomes, by="month"))
    periods = result.models["default"].segments["all"]["periods"]
    for row, period in zip(rows_of(shown[-1]), periods, strict=True):
        raw = period["raw"]
        assert (row.n, row.ece_raw, row.slope_raw) == (raw["n"], raw["ece"], raw["platt_slope"])
    # Served ones depend on when a map arrived; they are of the same maps.
    last = [entry for entry in result.models["default"].maps if entry["promoted"]][-1]["document"]
    assert model.champion is not None
    assert (model.champion.version, model.champion.family) == (last["version"], last["family"])


def test_live_scores_went_through_the_published_maps(finished: tuple[Demo, list[Snapshot]]) -> None:
    demo, shown = finished
    (model,) = shown[-1].models
    assert demo.maps_published >= 3
    assert model.champion is not None
    assert model.champion.version == demo.maps_published
    february = rows_of(shown[-1])[0]
    assert february.ece_served is not None
    assert february.ece_raw is not None
    # The first map waits for evidence, so February is served raw at first; the year is judged in test_replay_flights.
    assert february.ece_served < 0.7 * february.ece_raw


def test_every_flight_is_counted_once(finished: tuple[Demo, list[Snapshot]], flights: Flights) -> None:
    demo, shown = finished
    (model,) = shown[-1].models
    whole = everything_row(model)
    assert whole is not None
    assert whole.n == len(flights) == sum(row.n for row in rows_of(shown[-1]))
    assert demo.read == demo.events == 2 * len(flights)
    assert shown[-1].rejected == {}
    assert shown[-1].counters["matched"] == len(flights)


def test_a_month_is_finished_once_no_outcome_can_reach_it(finished: tuple[Demo, list[Snapshot]]) -> None:
    _, shown = finished
    (model,) = shown[-1].models
    assert [row.finished for row in month_rows(model, horizon_ms=DAY_MS)] == [True, False]
    assert [row.finished for row in month_rows(model, horizon_ms=30 * DAY_MS)] == [False, False]
    assert [row.finished for row in month_rows(model, horizon_ms=DAY_MS, ended=True)] == [True, True]


def test_its_threads_are_gone_when_it_has_run(finished: tuple[Demo, list[Snapshot]]) -> None:
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"flights", "streamcal-maps"})


@pytest.mark.parametrize("after", [0, 1, 7])
def test_it_ends_when_told_and_shows_what_it_saw(config: Config, flights: Flights, after: int) -> None:
    looks: list[int] = []
    shown: list[Snapshot] = []

    def should_stop() -> bool:
        looks.append(1)
        return len(looks) > after

    demo = Demo(config, flights)
    assert not demo.run(should_stop, shown.append)
    assert 0 <= demo.read < demo.events
    assert len(shown) >= 1
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"flights", "streamcal-maps"})


def test_a_failure_of_the_producer_is_not_lost(config: Config, flights: Flights) -> None:
    broken = Flights(
        flights.id,
        flights.scored_ms,
        flights.known_ms,
        flights.carrier,
        flights.origin,
        flights.score + 1,
        flights.label,
    )
    with pytest.raises(ValueError, match=r"is not in \[0, 1\]"):
        Demo(config, broken).run()


def test_events_come_by_time_and_predictions_first_on_ties() -> None:
    def column(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array(values, dtype=np.int64)

    flights = Flights(
        ["a", "b", "c"], column(5, 7, 7), column(9, 7, 30), ["x"] * 3, ["y"] * 3, column(0, 0, 0) / 2, column(0, 1, 0)
    )
    assert flights.events().tolist() == [0, 1, 2, 4, 3, 5]


def test_the_flights_are_all_there() -> None:
    flights = read_flights(flights_folder())
    assert (len(flights), int(flights.label.sum())) == (300_948, 71_629)


@pytest.mark.parametrize("content", [b"", b"id,score\n1,2\n", b"\x1f\x8b\x08broken"], ids=["empty", "other", "damaged"])
def test_a_table_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "flights.csv.gz").write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read_flights(tmp_path)
    assert caught.value.where == str(tmp_path / "flights.csv.gz")


def months(snapshots: Sequence[Snapshot]) -> list[int]:
    return [len(rows_of(snapshot)) for snapshot in snapshots if snapshot.models]


def test_months_appear_as_they_begin(finished: tuple[Demo, list[Snapshot]]) -> None:
    counts = months(finished[1])
    assert counts == sorted(counts)
    assert counts[-1] == 2
