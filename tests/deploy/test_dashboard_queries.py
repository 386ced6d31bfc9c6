"""Every query of the dashboards, asked of a real Prometheus that scraped the demo, has an answer."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from flights_year import CONFIG
from prometheus_server import DEPLOY, Prometheus, wait_until

from streamcal.runtime.config import load_config
from streamcal.runtime.demo import Demo
from streamcal.runtime.flights import flights_folder, read_flights
from streamcal.runtime.serving import http_application
from streamcal.serve.http import HttpServer

pytestmark = pytest.mark.slow

DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
DAYS = 40
DAYS_PER_SECOND = 4.0
"""Scraped once a second for ten seconds: enough for every rate, and past the first map and the first sealed panes."""

EMPTY_WHERE_ALL_IS_WELL = {
    # The demo's transformer exports nothing; these rows are for producers that do.
    ("streamcal: overview", "Map version served"),
    ("streamcal: overview", "Scores transformed"),
    ("streamcal: overview", "Updates not taken"),
}
"""Panels that may have no data; their queries must be valid all the same."""

WITH_BINS = {
    ("streamcal: one model", "Observed less predicted, by score"),
    ("streamcal: one model", "Rows by score"),
}
"""Panels that need more than the default export, as their row says."""

CHOICES = [
    {"model": "default", "cut": "all", "segment": "all", "window": "24h"},
    {"model": "default", "cut": "all", "segment": "all", "window": "7d"},
    {"model": "default", "cut": "carrier", "segment": "carrier=UA", "window": "7d"},
]


@dataclass(frozen=True)
class Scraped:
    """A Prometheus with the default export, one with bins as well, and the seconds they saw."""

    core: Prometheus
    bins: Prometheus
    start: float
    end: float


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    config = load_config(CONFIG, environ={}, require_kafka=False)
    more = load_config(CONFIG, environ={"STREAMCAL_METRICS__EXPORT": "[core, bins]"}, require_kafka=False)
    flights = read_flights(flights_folder())
    demo = Demo(
        config, flights.until(int(flights.scored_ms.min()) + DAYS * 86_400_000), days_per_second=DAYS_PER_SECOND
    )
    app = http_application(more, demo._holder, demo._readers.readiness, demo._readers.commits)
    thread = threading.Thread(target=demo.run, daemon=True)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(HttpServer(each, port=0)) for each in (demo.app, app)]
        folders = [tmp_path_factory.mktemp(name) for name in ("core", "bins")]
        core, bins = (
            stack.enter_context(Prometheus.running(folder, f"127.0.0.1:{server.port}"))
            for folder, server in zip(folders, servers, strict=True)
        )
        start = time.time()
        thread.start()
        thread.join()
        # the last snapshot scraped and seen by the rules, and then for two seconds more: whatever it shows lasts
        for seconds_more in (0, 2):
            moment = time.time() + seconds_more
            for prometheus in (core, bins):
                wait_until(lambda: seen_since(prometheus, moment), "the last snapshot in Prometheus")  # noqa: B023
        yield Scraped(core, bins, start, time.time())


def seen_since(prometheus: Prometheus, moment: float) -> bool:
    """Whether both a scrape and the recording rules have come after `moment`."""
    found = prometheus.query("timestamp(streamcal_ready) or timestamp(streamcal:map_age_seconds)")
    return len(found) == 2 and all(float(series["value"][1]) > moment for series in found)


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All but the rows, those inside collapsed rows included."""
    for panel in dashboard["panels"]:
        yield from panel.get("panels", [])
        if panel["type"] != "row":
            yield panel


def queries() -> list[Any]:
    return [
        pytest.param(dashboard["title"], panel, target["expr"], id=f"{path.stem}-{panel['title']}-{target['refId']}")
        for path in DASHBOARDS
        for dashboard in [read(path)]
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


def filled(expr: str, choice: dict[str, str]) -> str:
    text = re.sub(r"\$(\w+)", lambda found: choice[found[1]], expr)
    assert "$" not in text
    return text


@pytest.mark.parametrize(("dashboard", "panel", "expr"), queries())
def test_a_panel_has_data(scraped: Scraped, dashboard: str, panel: dict[str, Any], expr: str) -> None:
    name = (dashboard, panel["title"])
    for choice in CHOICES:
        query = filled(expr, choice)
        found = scraped.core.query(query)
        if name in EMPTY_WHERE_ALL_IS_WELL:
            assert found == []
            continue
        if name in WITH_BINS:
            assert found == []
            found = scraped.bins.query(query)
        assert found, query
        # NaN and infinity are drawn as nothing, or as a line off the scale
        assert [series for series in found if series["value"][1] in {"NaN", "+Inf", "-Inf"}] == [], query


def test_series_over_time_are_there_for_more_than_an_instant(scraped: Scraped) -> None:
    for path in DASHBOARDS:
        dashboard = read(path)
        for panel in panels(dashboard):
            if (dashboard["title"], panel["title"]) in EMPTY_WHERE_ALL_IS_WELL | WITH_BINS:
                continue
            for target in panel["targets"]:
                if target.get("range"):
                    found = scraped.core.query_range(filled(target["expr"], CHOICES[0]), scraped.start, scraped.end)
                    assert max(len(series["values"]) for series in found) >= 2, (panel["title"], target["expr"])


def variables() -> list[Any]:
    return [
        pytest.param(variable, id=f"{path.stem}-{variable['name']}")
        for path in DASHBOARDS
        for variable in read(path)["templating"]["list"]
        if variable["type"] == "query"
    ]


@pytest.mark.parametrize("variable", variables())
@pytest.mark.parametrize("choice", CHOICES, ids=["all", "all-7d", "carrier"])
def test_a_variable_offers_what_is_chosen(scraped: Scraped, variable: dict[str, Any], choice: dict[str, str]) -> None:
    query = filled(variable["query"]["query"], choice)
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found is not None
    values = scraped.core.get(f"label/{found[2]}/values", **{"match[]": found[1]})
    assert choice[variable["name"]] in values


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_panel_says_what_it_shows_in_which_unit_and_what_is_good(path: Path) -> None:
    dashboard = read(path)
    seen = set()
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert defaults["unit"]
        assert defaults["thresholds"]["steps"]
        assert defaults["thresholds"]["steps"][0]["value"] is None
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        seen.add(panel["id"])
    assert len(seen) == len(list(panels(dashboard)))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_stay_on_the_grid(path: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels(read(path)):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_the_variables_are_those_that_are_promised() -> None:
    offered = {path.stem: [each["name"] for each in read(path)["templating"]["list"]] for path in DASHBOARDS}
    assert offered == {
        "streamcal-model": ["datasource", "model", "cut", "segment", "window"],
        "streamcal-overview": ["datasource", "window"],
    }


def test_dashboards_are_provisioned_under_the_names_that_alerts_link() -> None:
    assert {read(path)["uid"] for path in DASHBOARDS} == {path.stem for path in DASHBOARDS}
    provider = yaml.safe_load(
        (DEPLOY / "grafana" / "provisioning" / "dashboards" / "streamcal.yml").read_text(encoding="utf-8")
    )
    assert [each["options"]["path"] for each in provider["providers"]] == ["/var/lib/grafana/dashboards"]


def test_no_alert_fires_on_the_flights_but_those_that_should(scraped: Scraped) -> None:
    firing = scraped.core.query('ALERTS{alertstate="firing"}')
    assert {series["metric"]["alertname"] for series in firing} <= {
        "StreamcalCalibrationAlarm",  # the January model meets February
        "StreamcalSegmentCalibrationAlarm",
        "StreamcalMapRolledBack",  # a map of stormy days, taken back on calm ones
    }
    broken = [
        rule["name"]
        for group in scraped.core.get("rules")["groups"]
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]
    assert broken == []
