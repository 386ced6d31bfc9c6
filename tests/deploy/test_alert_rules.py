"""The rules are what their source makes; each alert is seen firing and not; each has its place in the runbook."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_server import DEPLOY, program

ROOT = DEPLOY.parent
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
UNIT_TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
RUNBOOK = ROOT / "docs" / "runbook.md"


@cache
def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def all_rules() -> list[dict[str, Any]]:
    return [rule for path in RULES for group in read(path)["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in all_rules() if "alert" in rule}
RECORDED = [rule for rule in all_rules() if "record" in rule]

PER_NAME = pytest.mark.parametrize("name", sorted(ALERTS))


def ran(*command: str | Path) -> None:
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_committed_files_are_what_the_sources_make() -> None:
    ran(sys.executable, DEPLOY / "generate", "--check")


def test_a_runbook_elsewhere_is_linked_where_it_is() -> None:
    command = [sys.executable, DEPLOY / "generate", "--check", "--runbook", "https://wiki.example/streamcal"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "deploy/prometheus/rules/streamcal.alerts.yml" in said.stderr
    assert "deploy/grafana/provisioning/alerting/streamcal.yml" in said.stderr
    assert "streamcal.recording.yml" not in said.stderr


def test_prometheus_accepts_the_configuration_and_its_rules() -> None:
    ran(program("promtool"), "check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    ran(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *RULES)


def test_the_unit_tests_of_the_rules_pass() -> None:
    ran(program("promtool"), "test", "rules", *UNIT_TESTS)


# --- both sides of every alert -------------------------------------------------------------------------------------


def checks() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(alert, check, the case it belongs to) of all unit tests."""
    return [
        (check["alertname"], check, case)
        for path in UNIT_TESTS
        for case in read(path)["tests"]
        for check in case["alert_rule_test"]
    ]


@PER_NAME
def test_a_unit_test_sees_it_fire(name: str) -> None:
    assert any(check["exp_alerts"] for alert, check, _ in checks() if alert == name)


@PER_NAME
def test_a_case_of_its_own_sees_it_keep_silent_over_the_series_it_looks_at(name: str) -> None:
    silent = []
    for path in UNIT_TESTS:
        for case in read(path)["tests"]:
            mine = [check for check in case["alert_rule_test"] if check["alertname"] == name]
            given = {series["series"].partition("{")[0] for series in case["input_series"]}
            # empty input would keep any alert silent
            if mine and not any(check["exp_alerts"] for check in mine) and given & metrics_behind(name):
                silent.append(case["name"])
    assert silent


def test_unit_tests_name_alerts_that_exist() -> None:
    assert {alert for alert, _, _ in checks()} == set(ALERTS)


@cache
def metrics_behind(name: str) -> set[str]:
    """Metrics that an alert reads, through recorded ones too."""
    texts, seen = [ALERTS[name]["expr"]], set()
    while texts:
        for metric in re.findall(r"\b(streamcal[\w:]*|up)\b(?!\()", texts.pop()):
            if metric not in seen:
                seen.add(metric)
                texts += [rule["expr"] for rule in RECORDED if rule["record"] == metric]
    return seen


# --- what each alert carries ---------------------------------------------------------------------------------------


@PER_NAME
def test_it_says_how_bad_what_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert "{{" in rule["annotations"]["description"] or name == "StreamcalAbsent", "no value and no label in it"
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"


@PER_NAME
def test_series_that_say_the_same_from_two_processes_are_one(name: str) -> None:
    expr = ALERTS[name]["expr"]
    of_a_process = {"up", "streamcal_ready", "streamcal_recovery_remaining_records"}
    direct = set(re.findall(r"\bstreamcal_\w+|\bup\b", expr))
    if direct & of_a_process or any("transformer" in metric for metric in direct):
        return  # about one process
    for metric in direct:
        assert re.search(rf"(max|sum|min) without \(instance, pod[^)]*\) \((\w+\()?\(?{metric}", expr), metric


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    sections = re.findall(r"^## (Streamcal\w+)$", text, flags=re.MULTILINE)
    assert sorted(sections) == sorted(ALERTS)
    assert len(set(sections)) == len(sections)
    for body in re.split(r"^## (?=Streamcal)", text, flags=re.MULTILINE)[1:]:
        labels = re.findall(r"^\*\*(.+?)\*\*", body.partition("\n# ")[0], flags=re.MULTILINE)
        assert labels == ["Means.", "Look at.", "Do.", "Ignore when."], body.partition("\n")[0]


def test_the_runbook_names_metrics_that_are_exported_or_recorded() -> None:
    known = {rule["record"] for rule in RECORDED} | exported_names()
    named = set(re.findall(r"`(streamcal[_:][\w:]+)", RUNBOOK.read_text(encoding="utf-8")))
    assert named <= known, sorted(named - known)


@cache
def exported_names() -> set[str]:
    """Names in the sources of the product; `_total` is added to counters on export."""
    folders = (ROOT / "streamcal" / part for part in ("serve", "transform", "runtime", "stats"))
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")]
    plain = {name for text in texts for name in re.findall(r"\bstreamcal_\w+", text)}
    short = {
        f"streamcal_transformer_{name}"
        for text in texts
        for name in re.findall(r'_(?:counter|gauge)\(\s*"(\w+)"', text)
    }
    return {name + suffix for name in plain | short for suffix in ("", "_total", "_bucket")}


def test_alerts_read_metrics_that_are_exported() -> None:
    read_by = {metric for name in ALERTS for metric in metrics_behind(name) if metric.startswith("streamcal_")}
    assert read_by <= exported_names()


# --- the same alerts for Grafana -----------------------------------------------------------------------------------


def grafana_rules() -> dict[str, dict[str, Any]]:
    document = read(DEPLOY / "grafana" / "provisioning" / "alerting" / "streamcal.yml")
    return {rule["title"]: rule for group in document["groups"] for rule in group["rules"]}


def test_grafana_has_the_same_alerts_with_the_same_conditions() -> None:
    rules = grafana_rules()
    assert set(rules) == set(ALERTS)
    uids = {rule["uid"] for rule in rules.values()}
    assert len(uids) == len(rules)
    for name, rule in rules.items():
        query, threshold = (part["model"] for part in rule["data"])
        (evaluator,) = (condition["evaluator"] for condition in threshold["conditions"])
        operator = {"gt": ">", "lt": "<"}[evaluator["type"]]
        ours = "".join(f"({query['expr']}) {operator} {evaluator['params'][0]:.10g}".split())
        assert ours == "".join(ALERTS[name]["expr"].split()), name
        assert rule["for"] == ALERTS[name]["for"]
        assert rule.get("keepFiringFor") == ALERTS[name].get("keep_firing_for")
        assert rule["labels"] == ALERTS[name]["labels"]


def test_grafana_is_told_what_no_data_and_an_error_mean() -> None:
    for name, rule in grafana_rules().items():
        assert rule["execErrState"] == "Error"
        assert rule["noDataState"] == ("Alerting" if name == "StreamcalDown" else "OK")
        assert rule["condition"] == rule["data"][1]["refId"]
        assert rule["data"][1]["model"]["expression"] == rule["data"][0]["refId"]


def test_grafana_rules_use_the_data_source_and_dashboards_that_are_provisioned() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = read(provisioning / "datasources" / "prometheus.yml")["datasources"]
    dashboards = {path.stem for path in (DEPLOY / "grafana" / "dashboards").glob("*.json")}
    for rule in grafana_rules().values():
        assert rule["data"][0]["datasourceUid"] == source["uid"]
        assert rule["annotations"]["__dashboardUid__"] in dashboards
        # Grafana has no $value for a rule of two steps and no query function in templates
        text = rule["annotations"]["summary"] + rule["annotations"]["description"]
        assert not re.search(r"\$value\b|\bquery\b", text)


# --- where alerts go -----------------------------------------------------------------------------------------------

ALERTMANAGER = DEPLOY / "alertmanager" / "alertmanager.yml"


def test_alertmanager_accepts_its_configuration() -> None:
    ran(program("amtool"), "check-config", ALERTMANAGER)


@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
def test_every_severity_is_routed(severity: str) -> None:
    command = [program("amtool"), "config", "routes", "test", f"--config.file={ALERTMANAGER}", f"severity={severity}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "on-call"


def test_inhibitions_name_alerts_that_exist() -> None:
    text = ALERTMANAGER.read_text(encoding="utf-8")
    named = {name for name in re.findall(r"\bStreamcal\w+", text) if name not in {"Streamcal", "StreamcalTransformer"}}
    assert named <= set(ALERTS)


def test_prometheus_judges_the_rules_beside_its_configuration() -> None:
    config = read(DEPLOY / "prometheus" / "prometheus.yml")
    found = [path for pattern in config["rule_files"] for path in (DEPLOY / "prometheus").glob(pattern)]
    assert sorted(found) == RULES
