"""report.json against its schema and the plain inputs; report.html parsed as a page."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import jsonschema
import numpy as np
import pytest

from streamcal.errors import StreamcalError
from streamcal.serve.metrics import FIGURES
from streamcal.serve.report import (
    ModelReport,
    ReplayResult,
    figure_dict,
    report_document,
    report_schema,
    write_report,
)
from streamcal.serve.report_charts import history_data

HOUR_MS = 3_600_000
FEB, MAR, APR = 1_359_676_800_000, 1_362_096_000_000, 1_364_774_400_000  # 2013, UTC
BINS = [
    {"lo": 0.0, "hi": 0.1, "n": 100, "positives": 5, "mean_score": 0.05, "observed_rate": 0.05,
     "observed_low": 0.02, "observed_high": 0.11},
    {"lo": 0.1, "hi": 0.2, "n": 25, "positives": 10, "mean_score": 0.5, "observed_rate": 0.4},
    {"lo": 0.2, "hi": 0.3, "n": 0, "positives": 0},
]  # fmt: skip
RAW = {"n": 300948, "positives": 71629, "ece": 0.047048, "platt_slope": 0.55003, "platt_slope_se": 0.0031, "bins": BINS}
SERVED = {"n": 300948, "positives": 71629, "ece": 0.02, "platt_slope": 0.98, "bins": BINS}
HOSTILE = '<script>alert("1")</script>\x00\ud800&amp;'


def pair(raw: Mapping[str, Any] = RAW, served: Mapping[str, Any] = SERVED) -> dict[str, Any]:
    return {"raw": dict(raw), "served": dict(served)}


def result(model: ModelReport | None = None, name: str = "default", **fields: Any) -> ReplayResult:
    periods = [
        {
            "from_ms": FEB,
            "to_ms": MAR,
            **pair({"n": 10, "positives": 3, "ece": 0.04}, {"n": 10, "positives": 3, "ece": 0.02}),
        },
        {"from_ms": MAR, "to_ms": APR, **pair({"n": 20, "positives": 5, "ece": 0.08}, {"n": 20, "positives": 5})},
    ]
    whole = ModelReport(
        segments={
            "all": {
                "windows": {"24h": pair({"n": 0, "positives": 0}, {"n": 0, "positives": 0}), "all": pair()},
                "periods": periods,
            },
            "carrier=UA": {"windows": {"all": pair()}, "periods": []},
        },
        history=[{"at_ms": FEB + i * HOUR_MS, "window": "24h", **pair({"ece": 0.01 * i}, {})} for i in range(4)],
        alarms=[
            {
                "at_ms": FEB,
                "ended_at_ms": None,
                "cut": "all",
                "segment": "all",
                "fault": "over_confident",
                "evidence": 812.5,
            }
        ],
        maps=[
            {"version": 1, "family": "platt", "at_ms": FEB, "promoted": True, "reason": "", "document": {"slope": 0.6}},
            {"family": "platt", "at_ms": MAR, "promoted": False, "reason": "no_gain", "until_ms": APR, "attempts": 5},
        ],
    )
    given: dict[str, Any] = {
        "product_version": "0.1.0",
        "config_hash": "c0ffee",
        "inputs": [("flights.csv.gz", "0" * 64)],
        "from_ms": FEB,
        "to_ms": APR,
        "counters": {"accepted_prediction": 300948, "matched": 300948},
        "rejected": {"bad_score": 2},
        "pending": 0,
    }
    return ReplayResult(models={name: model or whole}, **(given | fields))


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags closed in the wrong order."""

    VOID = frozenset({"meta", "br", "input"})
    scripts: list[str]
    style = ""
    data = ""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words = ""
        self.scripts = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in {"script", "style"}:
            kind = "style" if self.open[-1] == "style" else self.tags[-1][1].get("type", "script")
            if kind == "script":
                self.scripts.append(data)
            else:
                setattr(self, {"style": "style", "application/json": "data"}[str(kind)], data)
            return
        self.words += data
        if self.open and self.open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data


@pytest.fixture
def validator():
    jsonschema.Draft202012Validator.check_schema(report_schema())
    return jsonschema.Draft202012Validator(report_schema())


def test_a_report_is_valid_and_says_what_it_was_given(validator, tmp_path):
    json_path, _ = write_report(result(), tmp_path / "new" / "folder")
    document = json.loads(json_path.read_text())
    validator.validate(document)
    assert document["inputs"] == [{"path": "flights.csv.gz", "sha256": "0" * 64}]
    assert document["counters"]["rejected"] == {"bad_score": 2}
    assert document["counters"]["accepted_prediction"] == 300948
    assert document["counters"]["orphan_outcome"] == 0
    model = document["models"]["default"]
    assert model["segments"]["all"]["windows"]["all"]["raw"] == RAW
    assert model["segments"]["all"]["periods"][1]["served"] == {"n": 20, "positives": 5}
    assert model["maps"][0]["document"] == {"slope": 0.6}
    assert set(document) == {
        "schema_version", "product_version", "config_hash", "inputs", "from_ms", "to_ms", "counters", "pending",
        "models",
    }  # fmt: skip
    assert set(model) == {"segments", "history", "alarms", "changes", "maps"}


def test_a_replay_of_nothing_is_a_valid_report(validator, tmp_path):
    nothing = result(
        ModelReport({"all": {"windows": {"all": pair({}, {})}}}), from_ms=None, to_ms=None, counters={}, rejected={}
    )
    json_path, html_path = write_report(nothing, tmp_path)
    validator.validate(json.loads(json_path.read_text()))
    Page(html_path.read_text())
    validator.validate(report_document(result(models_free := ModelReport({}))) | {"models": {}})
    assert models_free.history == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("models", "default", "segments", "all", "windows", "all", "raw", "ecee"), 0.1),
        (("models", "default", "segments", "all", "windows", "all", "raw", "ece"), None),
        (("models", "default", "segments", "all", "windows", "all", "raw", "n"), 1.5),
        (("models", "default", "alarms", 0, "fault"), "odd"),
        (("models", "default", "maps", 0, "family"), "spline"),
        (("models", "default", "maps", 1, "promoted"), True),  # without version and document
        (("counters", "rejected", "ugly"), 1),
        (("counters", "matched"), -1),
        (("extra",), 1),
    ],
)
def test_the_schema_refuses_what_the_contract_does_not_have(validator, path, value):
    document = copy.deepcopy(report_document(result()))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not validator.is_valid(document)


def test_the_schema_knows_exactly_the_figures(validator):
    assert set(report_schema()["$defs"]["figures"]["properties"]) == {*FIGURES, "bins"}


def test_figures_become_a_row_with_absent_ones_left_out_and_counts_as_integers():
    figures = {"ece": np.array([0.5, 0.1]), "n": np.array([1.0, 2.0**40]), "positives": np.array([1.0, 7.0]),
               "phi": np.array([np.nan, np.nan])}  # fmt: skip
    row = figure_dict(figures, 1, BINS)
    assert row == {"n": 2**40, "positives": 7, "ece": 0.1, "bins": BINS}
    assert next(iter(row)) == "n"
    assert [type(row[name]) for name in ("n", "positives", "ece")] == [int, int, float]
    assert figure_dict(figures, 0) == {"n": 1, "positives": 1, "ece": 0.5}


def test_floats_come_back_from_the_file_to_the_bit(tmp_path):
    values = np.random.default_rng(1).normal(size=200).tolist()
    history = [{"at_ms": i, "window": "1h", **pair({"platt_slope": value}, {})} for i, value in enumerate(values)]
    json_path, _ = write_report(result(ModelReport({}, history=history)), tmp_path)
    read = json.loads(json_path.read_text())["models"]["default"]["history"]
    assert [entry["raw"]["platt_slope"] for entry in read] == values


def test_unknown_names_and_infinite_figures_are_a_fault_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="ecee"):
        figure_dict({"ecee": np.array([1.0])}, 0)
    with pytest.raises(ValueError, match="matchd"):
        report_document(result(counters={"matchd": 1}))
    with pytest.raises(ValueError, match="JSON compliant"):
        write_report(result(ModelReport({"all": {"windows": {"all": pair({"ratio": float("inf")}, {})}}})), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamcalError) as caught:
        write_report(result(), tmp_path / "file" / "report")
    assert "cannot write the report" in str(caught.value)
    assert "--report" in caught.value.hint


def test_the_page_asks_for_nothing_from_outside_and_runs_only_what_its_policy_names(tmp_path):
    text = write_report(result(), tmp_path)[1].read_text()
    page = Page(text)
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not {"src", "href", "style"} & {name for _, attributes in page.tags for name in attributes}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "url(" not in page.style
    assert "@import" not in page.style
    assert "prefers-color-scheme: dark" in page.style
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    named = {"script-src": page.scripts, "style-src": [page.style]}
    for directive, texts in named.items():
        allowed = re.search(rf"{directive} ([^;]*)", policy)
        assert allowed is not None
        assert allowed[1].split() == [f"'sha256-{digest(one)}'" for one in texts]
    assert policy.startswith("default-src 'none';")


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_page_shows_the_figures_of_the_report(tmp_path):
    page = Page(write_report(result(), tmp_path)[1].read_text())
    assert "5 × no_gain" in page.words
    rows = page.rows
    assert ["ECE", "0.0470", "0.0200"] in rows
    assert ["Platt slope", "0.5500 ± 0.0031", "0.9800"] in rows
    assert ["2013-02", "10", "0.0400", "0.0200", "–", "–"] in rows
    assert ["2013-03", "20", "0.0800", "–", "–", "–"] in rows
    assert ["mean of the periods", "", "0.0600", "0.0200", "", ""] in rows
    assert ["carrier=UA", "300,948", "0.0470", "0.0200", "0.5500 ± 0.0031", "0.9800"] in rows
    assert ["2013-02-01 00:00", "–", "all", "scores are over-confident", "812.5"] in rows
    assert ["rejected: bad_score", "2"] in rows


def test_the_charts_are_given_what_the_report_holds(tmp_path):
    page = Page(write_report(result(), tmp_path)[1].read_text())
    (model,) = json.loads(page.data)
    assert model["window"] == {"raw_bins": BINS, "served_bins": BINS}
    assert model["history"]["raw"]["ece"] == [0.0, 0.01, 0.02, 0.03]
    assert model["history"]["served"]["ece"] == [None] * 4
    assert model["alarms"] == [{"from": FEB, "to": None}]
    refused, promoted = model["maps"]["maps"]
    assert (refused["action"], refused["attempts"], refused["until_ms"]) == ("refused", 5, APR)
    assert (promoted["action"], promoted["version"], promoted["in_force"]) == ("promoted", 1, True)


def test_hostile_names_stay_text_on_the_page(tmp_path):
    segments = {"all": {"windows": {"all": pair()}}, HOSTILE: {"windows": {"all": pair()}}}
    alarm = {
        "at_ms": FEB,
        "ended_at_ms": FEB,
        "cut": "c",
        "segment": HOSTILE,
        "fault": "scores_too_high",
        "evidence": 9,
    }
    maps = [{"family": HOSTILE, "at_ms": FEB, "promoted": False, "reason": HOSTILE}]
    hostile = result(
        ModelReport(segments, alarms=[alarm], maps=maps), HOSTILE, inputs=[(HOSTILE, "0" * 64)], config_hash=HOSTILE
    )
    page = Page(write_report(hostile, tmp_path)[1].read_text())
    assert len(page.scripts) == 4
    assert page.words.count('<script>alert("1")</script>') == 6
    assert "<" not in page.data
    json.loads((tmp_path / "report.json").read_text())


def test_long_tables_are_cut_with_a_note(tmp_path):
    segments = {f"k={i}": {"windows": {"all": pair({"n": i}, {"n": i})}} for i in range(60)}
    maps = [
        {"version": i, "family": "platt", "at_ms": FEB, "promoted": True, "reason": "", "document": {}}
        for i in range(170)
    ]
    segments["all"] = {"windows": {"all": pair()}}
    page = Page(write_report(result(ModelReport(segments, maps=maps)), tmp_path)[1].read_text())
    keys = [row[0] for row in page.rows if row[0].startswith("k=")]
    assert keys == [f"k={i}" for i in range(59, 9, -1)]
    assert "10 more are in report.json" in page.words
    assert [entry["version"] for entry in json.loads(page.data)[0]["maps"]["maps"]] == list(range(169, 119, -1))


def test_changes_of_the_map_are_shown_however_many_attempts_came_since(tmp_path):
    tried = {"family": "tracking", "at_ms": FEB}
    maps = [{**tried, "version": 1, "promoted": True, "reason": "", "document": {}}]
    for version in range(2, 202):
        maps.append({**tried, "promoted": False, "reason": "no_gain"})
        maps.append({**tried, "version": version, "promoted": True, "reason": "publication", "document": {}})
    page = Page(write_report(result(ModelReport({}, maps=maps)), tmp_path)[1].read_text())
    shown = json.loads(page.data)[0]["maps"]["maps"]
    assert (shown[-1]["version"], shown[-1]["action"]) == (1, "promoted")
    assert [entry["version"] for entry in shown[:50:2]] == list(range(201, 176, -1))


def test_a_long_history_is_thinned_without_losing_its_peak():
    history = [{"at_ms": i * HOUR_MS, "window": "24h", **pair({"ece": 0.001}, {"ece": 0.001})} for i in range(9000)]
    history[4321] = {**history[4321], **pair({"ece": 0.2}, {"ece": 0.001})}
    drawn = history_data(history)
    assert len(drawn["at_ms"]) <= 1000
    assert drawn["at_ms"][-1] == 8999 * HOUR_MS
    assert sorted(drawn["raw"]["ece"])[-2:] == [0.001, 0.2]
    assert drawn["at_ms"][drawn["raw"]["ece"].index(0.2)] - 4321 * HOUR_MS in range(9 * HOUR_MS)


def test_only_the_first_window_is_drawn_over_time():
    history = [{"at_ms": i, "window": window, **pair({"ece": i}, {})} for i in range(3) for window in ("1h", "24h")]
    assert (history_data(history)["window"], history_data(history)["raw"]["ece"]) == ("1h", [0, 1, 2])
    assert history_data([])["at_ms"] == []


def test_a_histogram_is_part_of_the_report_where_there_is_one(validator, tmp_path):
    rows = {"raw": [{"lo": 0.0, "hi": 0.5, "n": 3}], "served": [{"lo": 0.5, "hi": 1.0, "n": 3}]}
    model = ModelReport({"all": {"windows": {"all": pair()}, "periods": []}}, histogram=rows)
    json_path, html_path = write_report(result(model), tmp_path)
    document = json.loads(json_path.read_text())
    validator.validate(document)
    assert document["models"]["default"]["histogram"] == rows
    assert json.loads(Page(html_path.read_text()).data)[0]["histogram"] == rows
