"""`report.html`: the replay report as one page that asks for nothing from outside.

Works on the report document alone. Its charts are drawn by the scripts of the status page, which are inlined and let
run by their hash; all numbers stand in tables as well. Everything long is cut (with a note of how much), since the
whole is in `report.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from streamcal.serve.assets import asset_text, csp_hash
from streamcal.serve.report_charts import chart_data
from streamcal.serve.templates_env import template
from streamcal.serve.verdict import FAULT_WORDS, moment

__all__ = ["figure", "period_name", "render_page"]

_SCRIPTS: Final = ("d3.min.js", "charts.js", "panels.js", "report.js")
_MOST_SEGMENTS: Final = 50
_MOST_ALARMS: Final = 200
_LONGEST_DAY_PERIOD_MS: Final = 86_400_000

HEADLINES: Final = (
    ("n", "Labelled predictions"),
    ("positives", "Positive outcomes"),
    ("base_rate", "Base rate"),
    ("mean_score", "Mean score"),
    ("ece", "ECE"),
    ("ece_noise_floor", "ECE noise floor"),
    ("mce", "MCE"),
    ("ecce_sigma", "ECCE / sigma"),
    ("platt_slope", "Platt slope"),
    ("platt_intercept", "Platt intercept"),
    ("ratio", "Predicted to observed"),
    ("brier", "Brier score"),
    ("log_loss", "Log loss"),
)
"""Figures of the first table, in order, and what they are called there."""


def render_page(document: Mapping[str, Any]) -> str:
    """The page of a report document."""
    style = asset_text("streamcal.css")
    scripts = [asset_text(name) for name in _SCRIPTS]
    policy = f"default-src 'none'; script-src {' '.join(map(csp_hash, scripts))}; style-src {csp_hash(style)}"
    models = {name: _model_view(model) for name, model in document["models"].items()}
    return template("report.html.j2").render(
        report=document,
        models=models,
        headlines=HEADLINES,
        policy=policy,
        # Ours, and the same to the byte as what was hashed; nothing of it can end the element it stands in.
        style=Markup(style),  # noqa: S704
        scripts=[Markup(script) for script in scripts],  # noqa: S704
        data=_script_data([chart_data(model) for model in document["models"].values()]),
        figure=figure,
        moment=lambda at: "–" if at is None else moment(at),
        period_name=period_name,
        faults=FAULT_WORDS,
    )


def _script_data(data: Any) -> Markup:
    """`data` as JSON that cannot end the element it stands in, nor begin a comment there."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def figure(row: Mapping[str, Any], name: str) -> str:
    """Figure `name` of a report row as text, with its standard error where it has one; a dash when absent.

    >>> figure({"n": 300948, "platt_slope": 0.55003, "platt_slope_se": 0.0031}, "platt_slope")
    '0.5500 ± 0.0031'
    >>> figure({"n": 300948}, "n"), figure({}, "ece")
    ('300,948', '–')
    """
    if name not in row:
        return "–"
    if isinstance(row[name], int):
        return f"{row[name]:,}"
    error = row.get(f"{name}_se")
    return f"{row[name]:.4f}" + ("" if error is None else f" ± {error:.4f}")


def period_name(from_ms: int, to_ms: int) -> str:
    """A calendar period by its start: the day, or the month where it is longer.

    >>> period_name(1_359_676_800_000, 1_362_096_000_000), period_name(1_359_676_800_000, 1_359_763_200_000)
    ('2013-02', '2013-02-01')
    """
    return moment(from_ms, "%Y-%m" if to_ms - from_ms > _LONGEST_DAY_PERIOD_MS else "%Y-%m-%d")


def _model_view(model: Mapping[str, Any]) -> dict[str, Any]:
    segments = model["segments"]
    everything = segments.get("all", {"windows": {}, "periods": []})
    whole = everything["windows"].get("all", {"raw": {}, "served": {}})
    others = sorted(_others(segments), key=lambda row: -row[1].get("n", 0))
    alarms = model["alarms"]
    return {
        "whole": whole,
        "windows": {name: pair for name, pair in everything["windows"].items() if name != "all"},
        "periods": everything["periods"],
        "mean_ece": {kind: _mean_ece(everything["periods"], kind) for kind in ("raw", "served")},
        "segments": others[:_MOST_SEGMENTS],
        "more_segments": max(0, len(others) - _MOST_SEGMENTS),
        "promoted": sum(entry["promoted"] for entry in model["maps"]),
        "refused": _refusals(model["maps"]),
        "alarms": alarms[:_MOST_ALARMS],
        "more_alarms": max(0, len(alarms) - _MOST_ALARMS),
        "alarms_of_whole": sum(alarm["segment"] == "all" for alarm in alarms),
        "changes": sorted(Counter(change["trigger"] for change in model.get("changes", ())).items()),
    }


def _others(segments: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    return [
        (key, segment["windows"]["all"]["raw"], segment["windows"]["all"]["served"])
        for key, segment in segments.items()
        if key != "all" and "all" in segment["windows"]
    ]


def _refusals(maps: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    attempts: Counter[str] = Counter()
    for entry in maps:
        if not entry["promoted"]:
            attempts[entry["reason"]] += entry.get("attempts", 1)
    return sorted(attempts.items())


def _mean_ece(periods: Sequence[Mapping[str, Any]], kind: str) -> dict[str, float]:
    """Mean over the periods, each counting the same; absent when no period has an ECE."""
    known = [period[kind]["ece"] for period in periods if "ece" in period[kind]]
    return {"ece": sum(known) / len(known)} if known else {}
