"""The status page in a real browser, served by the real server over snapshots of 200 segments."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
from served_snapshots import NOW_MS, model_of, snapshot_of, sources_of, window_of

from streamcal.maps.compiled import segment_key
from streamcal.maps.document import new_document
from streamcal.maps.families import Platt
from streamcal.serve.app import application
from streamcal.serve.http import HttpServer
from streamcal.serve.live import SnapshotHolder
from streamcal.snapshot import MapEntry, MapsHeld, MapState, Series

AXE = Path(__file__).parent / "axe.min.js"
HOSTILE = [
    "<script>window.hacked=1</script>",
    '<img src=x onerror="window.hacked=1">',
    '"><svg onload=window.hacked=1>',
    "'-window.hacked-'",
    "javascript:window.hacked=1",
    "{{7*7}}${7*7}",
    "</td></table><h1>here</h1>",
    "\u202eright to left\u202c",
    "x" * 64,
]


@pytest.fixture(scope="module")
def model():
    return model_of(segments=200)


@pytest.fixture
def holder(model):
    """Sixty snapshots, a minute apart."""
    held = SnapshotHolder()
    for i in range(60):
        held.publish(snapshot_of(replace(model, event_time_ms=NOW_MS - (60 - i) * 60_000), sequence=i + 1))
    return held


@pytest.fixture
def server(holder):
    with HttpServer(application(sources_of(holder)), port=0) as running:
        yield running


def shown(page, sequence=60):
    page.wait_for_selector(f'[data-show=model][data-sequence="{sequence}"]')
    return page


def api(server, path):
    with urlopen(f"{server.url}/api/v1/{path}", timeout=20) as answer:
        return json.load(answer)


def test_the_page_is_there_quickly_complains_of_nothing_and_asks_nobody_else(server, look, keep, capsys):
    with look(server.url) as looked:
        page = shown(looked.page)
        drawn_ms = page.evaluate("performance.now()")
        assert page.locator("[data-chart=reliability] circle").count() > 5
        assert page.locator("[data-show=segments] tbody tr").count() == 25
        assert looked.complaints == []
        assert {urlsplit(url).netloc for url in looked.asked} == {urlsplit(server.url).netloc}
        keep(page, "status-light")
    with capsys.disabled():
        print(f"\nstatus page with 200 segments: all drawn {drawn_ms:.0f} ms after it was asked for")


def test_the_diagram_shows_the_numbers_of_the_api(server, look):
    with look(server.url) as looked:
        page = shown(looked.page)
        (window,) = [one for one in api(server, "model?model=default")["windows"] if one["window"] == "1h"]
        for kind in ("raw", "served"):
            expected = [one for one in window[f"{kind}_bins"] if "observed_rate" in one]
            marks = page.eval_on_selector_all(
                f"[data-chart=reliability] .marks.{kind} .mark",
                """(marks) => marks.map((mark) => {
                    const box = mark.querySelector("circle, rect").getBBox();
                    const bar = mark.querySelector("line").getBBox();
                    return [box.x + box.width / 2, box.y + box.height / 2, bar.y + bar.height, bar.y];
                })""",
            )
            x, y = (ruler(page, axis) for axis in (0, 1))
            read = [(x(mark[0]), y(mark[1]), y(mark[2]), y(mark[3])) for mark in marks]
            told = [
                tuple(one[name] for name in ("mean_score", "observed_rate", "observed_low", "observed_high"))
                for one in expected
            ]
            assert np.array(read) == pytest.approx(np.array(told), abs=0.002)


def ruler(page, axis):
    """From a place in the reliability diagram to its value, by two ticks of the axis."""
    ticks = page.eval_on_selector_all(
        "[data-chart=reliability] .axis",
        """(axes, axis) => [...axes[axis].querySelectorAll(".tick")].map((tick) => [
            Number(tick.textContent), Number(tick.getAttribute("transform").match(/[-\\d.]+/g)[axis])])""",
        axis,
    )
    (v0, p0), (v1, p1) = ticks[0], ticks[-1]
    return lambda place: v0 + (place - p0) * (v1 - v0) / (p1 - p0)


def test_every_chart_has_its_numbers_as_a_table(server, look):
    with look(server.url) as looked:
        page = shown(looked.page)
        for chart in ("reliability", "ece", "slope", "ratio", "evidence", "maps"):
            place = page.locator(f"[data-chart={chart}]")
            assert "the table below has the numbers" in (place.locator("svg").get_attribute("aria-label") or "")
            place.locator("summary").click()
            place.locator("tbody tr").nth(5).wait_for()
            ticks = place.locator(".axis .tick").all_text_contents()
            form = r"-?\d*\.?\d+[kM]?|\d\d:\d\d|[A-Z][a-z]{2} \d\d|\d{4}"
            assert [tick for tick in ticks if not re.fullmatch(form, tick.replace("−", "-"))] == []
            assert len(ticks) >= 6
        first = page.locator("[data-chart=ece] tbody tr").first.locator("td").all_text_contents()
        history = api(server, "history?model=default&window=1h")
        assert float(first[1]) == pytest.approx(history["raw"]["ece"][-1], rel=1e-3)
        assert float(first[3]) == pytest.approx(history["served"]["ece"][-1], rel=1e-3)


def test_an_update_is_seen_without_a_reload(server, look, holder, model):
    with look(server.url) as looked:
        page = shown(looked.page)
        page.evaluate("window.same = true")
        calm = replace(model, alarms={one: replace(state, active=None) for one, state in model.alarms.items()})
        calm = replace(
            calm, windows=[window_of("1h", [Series("country", "country=NEW")], seed=9)], event_time_ms=NOW_MS
        )
        holder.publish(snapshot_of(calm, sequence=61))
        shown(page, 61)
        assert page.evaluate("window.same") is True
        assert page.locator("[data-show=sentence]").inner_text().startswith("No alarm")
        assert page.locator("[data-show=segments] tbody td").first.inner_text() == "country=NEW"
        served = api(server, "model?model=default")["windows"][0]["served"]["ece"]
        assert float(page.locator("[data-show=tiles] dd").first.inner_text()) == pytest.approx(served, rel=0.01)


def test_a_daemon_that_went_away_is_said_and_what_it_said_stays(holder, look):
    with HttpServer(application(sources_of(holder)), port=0) as server, look(server.url) as looked:
        page = shown(looked.page)
        server._server.force_exit = True
        server.__exit__(None, None, None)
        page.wait_for_selector("[data-show=trouble]:not([hidden])")
        assert "does not answer" in page.locator("[data-show=trouble]").inner_text()
        assert page.locator("[data-chart=reliability] circle").count() > 5


def test_the_verdict_says_what_where_since_when_and_what_was_done(server, look):
    with look(server.url) as looked:
        page = shown(looked.page)
        verdict = page.locator("[data-show=verdict]").inner_text()
        assert re.search(r"scores are too high for the whole model since 20\d\d-\d\d-\d\d \d\d:\d\d UTC", verdict)
        assert "1 segment in alarm" in verdict
        assert "refused 5 times for no_gain" in verdict
        log = page.locator("[data-map-log] tbody tr").all_inner_texts()
        assert "worse_than_parent" in log[0]
        assert "rolled back, in force" in log[0]
        assert "refused 5 times" in log[1]
        stream = page.locator("[data-show=stream]").inner_text()
        for words in ("42 records", "2 bad_score (predictions)", "5 malformed (outcomes)"):
            assert words in stream
        labels = page.locator("[data-show=labels]").inner_text()
        for words in ("93.8%", "50% within", "partition 3"):
            assert words in labels


def test_segments_are_searched_sorted_and_paged_by_keyboard(server, look):
    with look(server.url) as looked:
        page = shown(looked.page)
        page.locator("#search").focus()
        page.keyboard.type("c19")
        page.wait_for_function("() => document.querySelectorAll('[data-show=segments] tbody tr').length === 10")
        assert "1 to 10 of 10 found among 200" in page.locator("[data-show=segments-found]").inner_text()
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.wait_for_function("() => document.querySelectorAll('[data-show=segments] tbody tr').length === 25")
        first = page.locator("[data-show=segments] tbody td").first.inner_text()
        page.locator("#after").focus()
        page.keyboard.press("Enter")
        page.wait_for_function(
            "() => document.querySelector('[data-show=segments-found]').textContent.startsWith('26 to 50')"
        )
        assert page.locator("[data-show=segments] tbody td").first.inner_text() != first
        page.locator("#window").select_option("24h")
        page.wait_for_function("() => document.querySelector('[data-span]').textContent.startsWith('Window 24h')")
        assert "window=24h" in page.url


def test_the_picture_of_a_map_is_chosen_by_keyboard(server, look):
    with look(server.url) as looked:
        page = shown(looked.page)
        page.locator("[data-map-log] button[data-version='2']").focus()
        page.keyboard.press("Enter")
        assert page.locator("[data-map-chosen]").inner_text().startswith("Version 2 (platt)")
        assert page.locator("[data-chart=maps] path[data-name='version 2']").count() == 1


def test_corrections_per_segment_are_shown_with_their_map(look, model, keep):
    hostile = segment_key(["country"], [HOSTILE[1]])
    offsets = {f"country=C{i:03d}": {"offset": (i - 5) / 20} for i in range(11)}
    offsets |= {hostile: {"offset": -1.25, "slope": 0.5}}
    made = new_document("default", 5, Platt(0.6, -0.1), at_ms=NOW_MS, segments=offsets, parent=4)
    log = [*model.map_log, MapEntry(5, "platt", NOW_MS, NOW_MS, 1, True, "", made)]
    held, state = SnapshotHolder(), MapState(5, "platt", NOW_MS)
    held.publish(snapshot_of(replace(model, map_log=log, champion=state, maps=MapsHeld(champion=made))))
    with HttpServer(application(sources_of(held)), port=0) as server, look(server.url, bypass_csp=True) as looked:
        page = shown(looked.page, 1)
        listed = page.locator("[data-map-log] tbody tr").all_inner_texts()
        assert page.locator("[data-map-log] tbody tr").first.locator("td").nth(7).inner_text() == "12"
        assert "none" in listed[1]
        place = page.locator("[data-map-corrections]")
        words = place.locator("p").inner_text().replace("-", "−")
        told = (
            "version 5 corrects 12 segments, offsets −1.25 to 0.25 logits, 1 with a slope of their own; the largest 8"
        )
        assert told in words
        first = place.locator("tbody tr").first.locator("td").all_inner_texts()
        assert [cell.replace("-", "−") for cell in first] == [hostile, "−1.25", "0.5"]
        assert place.locator("tbody tr").count() == 8
        page.locator("#search").fill("C010")
        page.wait_for_function("() => document.querySelectorAll('[data-show=segments] tbody tr').length === 1")
        assert page.locator("[data-show=segments] tbody td").last.inner_text() == "0.25"
        assert serious_faults(page) == []
        for part in ("[data-map-log]", "[data-map-corrections]", "[data-show=segments]"):  # nothing is cut off
            over = page.locator(part).evaluate("(place) => place.scrollWidth - place.clientWidth")
            assert over <= 0, part
        keep(page, "status-corrections")
        page.locator("[data-map-log] button[data-version='4']").click()
        assert place.is_hidden()
        assert page.evaluate("window.hacked") is None
        assert looked.complaints == []


def test_hostile_names_are_text_and_nothing_else(look):
    held = SnapshotHolder()
    models = [model_of(name, HOSTILE, segments=len(HOSTILE)) for name in ("default", *HOSTILE)]
    models = [
        replace(one, windows=[window_of("1h", [Series("country", f"country={name}") for name in HOSTILE])])
        for one in models
    ]
    for sequence in (1, 2):
        held.publish(snapshot_of(*models, sequence=sequence, rejected={(HOSTILE[0], HOSTILE[1]): 3}))
    with HttpServer(application(sources_of(held)), port=0) as server, look(server.url) as looked:
        page = shown(looked.page, 2)
        for i in range(len(models)):
            button = page.locator("[data-show=models] button").nth(i)
            name = ("default", *HOSTILE)[i]
            button.click()
            page.wait_for_function(
                "(name) => document.querySelector('[data-show=model-name]').textContent === `Model ${name}`", arg=name
            )
        cells = page.locator("[data-show=segments] tbody tr td:first-child").all_text_contents()
        assert sorted(cells) == sorted(f"country={name}" for name in HOSTILE)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img, main h1").count() == 0
        assert looked.complaints == []


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 390)])
def test_accessibility_is_without_a_serious_fault(server, look, keep, dark, width):
    with look(server.url, dark=dark, width=width, bypass_csp=True) as looked:
        page = shown(looked.page)
        for summary in page.locator("summary").all():
            if summary.is_visible():
                summary.click()
        assert serious_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing to scroll sideways for
        keep(page, f"status-{'dark' if dark else 'light'}-{width}-opened")


def serious_faults(page) -> list[str]:
    page.add_script_tag(path=str(AXE))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((results) => results.violations)")
    return [
        f"{one['id']} ({one['impact']}): {[node['target'] for node in one['nodes']][:5]}"
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]


def test_light_and_dark_follow_the_system(server, look, keep):
    grounds = []
    for dark in (False, True):
        with look(server.url, dark=dark) as looked:
            page = shown(looked.page)
            keep(page, f"status-{'dark' if dark else 'light'}")
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"))
    assert sum(grounds[0]) > 600
    assert sum(grounds[1]) < 150


def test_a_model_without_figures_yet_shows_none_of_the_one_looked_at_before(look, model):
    quiet = replace(model, name="quiet", windows=(), alarm_log=(), map_log=())
    holder = SnapshotHolder()
    for i in range(60):
        at_ms = NOW_MS - (60 - i) * 60_000
        both = [replace(each, event_time_ms=at_ms) for each in (model, quiet)]
        holder.publish(snapshot_of(*both, sequence=i + 1))
    with HttpServer(application(sources_of(holder)), port=0) as server, look(server.url) as looked:
        page = looked.page
        page.get_by_role("button", name=model.name).click()
        page.wait_for_selector("[data-chart=ece] svg")
        page.fill("#search", "country")
        page.get_by_role("button", name="quiet").click()
        page.wait_for_function("() => document.querySelector('[data-show=model-name]').textContent === 'Model quiet'")
        for chart in ("ece", "slope", "ratio", "evidence"):
            assert page.locator(f"[data-chart={chart}] svg").count() == 0
        assert page.locator("[data-span]").first.text_content() == ""
        assert page.input_value("#search") == ""
        assert looked.complaints == []


def test_before_the_first_prediction_the_page_says_so(look):
    with HttpServer(application(sources_of(SnapshotHolder())), port=0) as server, look(server.url) as looked:
        looked.page.wait_for_function(
            "() => document.querySelector('[data-show=nothing]').textContent === 'No prediction has been read yet.'"
        )
        assert looked.complaints == []
