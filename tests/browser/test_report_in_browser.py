"""`report.html` of a real replay, opened from the disk in a real browser."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from streamcal.runtime.config import load_config
from streamcal.runtime.flights import flights_folder, read_flights
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.serve.report import write_report

END_MS = 1_360_400_000_000  # the first nine days of February 2013
AXE = Path(__file__).parent / "axe.min.js"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Folder of a report on the flights of nine days."""
    folder = tmp_path_factory.mktemp("report")
    flights = read_flights(flights_folder()).until(END_MS)
    values = {"predictions": [], "outcomes": []}
    for event in flights.events().tolist():
        i = event % len(flights)
        if event < len(flights):
            segments = {"carrier": flights.carrier[i], "origin": flights.origin[i]}
            value = {
                "id": flights.id[i],
                "ts": int(flights.scored_ms[i]),
                "score": float(flights.score[i]),
                "segments": segments,
            }
            values["predictions"].append(value)
        else:
            values["outcomes"].append(
                {"id": flights.id[i], "ts": int(flights.known_ms[i]), "label": int(flights.label[i])}
            )
    for name, lines in values.items():
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode(), 1))
    config = load_config(flights_folder() / "config.yaml", environ={}, require_kafka=False)
    options = ReplayOptions(folder / "predictions.jsonl.gz", folder / "outcomes.jsonl.gz", by="day")
    write_report(replay(config, options), folder)
    return folder


@pytest.mark.parametrize("dark", [False, True])
def test_the_report_draws_its_charts_from_its_own_file_alone(report, look, keep, dark):
    url = (report / "report.html").as_uri()
    with look(url, dark=dark) as looked:
        page = looked.page
        for chart in ("reliability", "ece", "slope", "ratio", "evidence", "histogram", "maps"):
            assert page.locator(f"[data-chart={chart}] svg").count() == 1, chart
        ticks = page.locator(".axis .tick").all_text_contents()
        assert max(map(len, ticks)) <= 7, ticks
        assert looked.complaints == []
        assert looked.asked == [url]
        keep(page, f"report-{'dark' if dark else 'light'}")


def test_charts_and_tables_have_the_numbers_of_the_json(report, look):
    document = json.loads((report / "report.json").read_text())
    model = document["models"]["default"]
    whole = model["segments"]["all"]["windows"]["all"]
    with look((report / "report.html").as_uri()) as looked:
        page = looked.page
        page.locator("[data-chart=histogram] summary").click()
        page.locator("[data-chart=histogram] tbody tr").nth(3).wait_for()
        rows = [row.split("\t") for row in page.locator("[data-chart=histogram] tbody tr").all_inner_texts()]
        for column, kind in ((2, "raw"), (3, "served")):
            told = [int(row[column].replace(",", "")) for row in rows]
            assert sum(told) == sum(row["n"] for row in model["histogram"][kind]) == whole[kind]["n"]
        marks = page.locator("[data-chart=reliability] .marks.served .mark").count()
        assert marks == sum("observed_rate" in row for row in whole["served"]["bins"])
        cells = page.locator("table").first.inner_text()
        assert f"{whole['raw']['ece']:.4f}" in cells
        assert f"{whole['served']['ece']:.4f}" in cells
        page.locator("[data-map-all]").check()
        told = page.locator("[data-map-log] tbody tr").all_inner_texts()
        assert len(told) == min(50, len(model["maps"]))
        for entry, row in itertools.islice(zip(reversed(model["maps"]), told, strict=False), 10):
            assert (entry["reason"] or "gain") in row


def test_accessibility_of_the_report_is_without_a_serious_fault(report, look):
    with look((report / "report.html").as_uri(), width=390, bypass_csp=True) as looked:
        page = looked.page
        page.locator("[data-chart=reliability] summary").click()  # the other tables are made alike
        page.add_script_tag(path=str(AXE))
        found = page.evaluate("() => axe.run(document).then((results) => results.violations)")
        assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
