"""The dashboard over all models: can scores be trusted, where not, and the rows of `overview_stream`."""

from __future__ import annotations

from typing import Any, Final

from alert import PER_PROCESS
from overview_stream import STREAM_ROWS
from panels import Panel, Target, dashboard, label_variable, row

__all__ = ["overview_dashboard"]

_WHOLE: Final = 'cut="all", window="$window"'
_W: Final = f"max without ({PER_PROCESS})"
_GOOD_BAD: Final = ((None, "green"), (1, "red"))


def _served(metric: str) -> str:
    return f'max by (model) ({metric}{{{_WHOLE}, score_kind="served"}})'


def _raw(metric: str) -> str:
    return f'max by (model) ({metric}{{{_WHOLE}, score_kind="raw"}})'


_TRUST: Final = row(
    "Can scores be trusted?",
    Panel(
        title="Alarms in force",
        kind="stat",
        targets=[Target(f"sum({_W} (streamcal_alarm_active)) or vector(0)", "alarms")],
        says="Calibration alarms in force, over all models and segments. Each is right but for the false alarms you "
        "configured.",
        unit="none",
        thresholds=_GOOD_BAD,
        width=4,
        height=4,
    ),
    Panel(
        title="Firing alerts",
        kind="stat",
        targets=[Target('count(ALERTS{alertname=~"Streamcal.+", alertstate="firing"}) or vector(0)', "alerts")],
        says="Alerts of streamcal's Prometheus rules that fire, those about the stream and the daemon included. The "
        "runbook has a section for each.",
        unit="none",
        thresholds=_GOOD_BAD,
        width=4,
        height=4,
    ),
    Panel(
        title="Highest evidence",
        kind="stat",
        targets=[Target("max(streamcal:alarm_evidence:ratio)", "evidence")],
        says="Evidence of the series nearest to an alarm, as a share of what raises one. Below 0 the data speak for "
        "the scores.",
        unit="percentunit",
        decimals=0,
        thresholds=((None, "green"), (0.8, "yellow"), (1, "red")),
        width=4,
        height=4,
    ),
    Panel(
        title="Lowest label coverage",
        kind="stat",
        targets=[Target("min(streamcal_label_coverage_ratio)", "coverage")],
        says="Share of matured predictions whose label is known, of the model where it is lowest. Figures speak of "
        "labelled predictions alone.",
        unit="percentunit",
        decimals=0,
        low=0,
        high=1,
        thresholds=((None, "red"), (0.5, "yellow"), (0.8, "green")),
        width=4,
        height=4,
    ),
    Panel(
        title="Not ready",
        kind="stat",
        targets=[Target("count(streamcal_ready == 0) or vector(0)", "processes")],
        says="Processes that answer but take no part in the work: they start, recover or stop. /readyz says why.",
        unit="none",
        thresholds=_GOOD_BAD,
        width=4,
        height=4,
    ),
    Panel(
        title="Unread",
        kind="stat",
        targets=[Target("max(streamcal:consumer_lag_seconds)", "lag")],
        says="Time to read what is unread at the present pace. Everything shown is late by as much.",
        unit="s",
        decimals=0,
        low=0,
        thresholds=((None, "green"), (60, "yellow"), (300, "red")),
        width=4,
        height=4,
    ),
)

_COLUMNS: Final = {
    "Value #A": ("rows", "short"),
    "Value #B": ("ECE served", "percentunit"),
    "Value #C": ("ECE raw", "percentunit"),
    "Value #D": ("predicted / observed", "none"),
    "Value #E": ("slope", "none"),
    "Value #F": ("evidence", "percentunit"),
    "Value #G": ("map age", "s"),
}

_MODELS: Final = row(
    "Models",
    Panel(
        title="Models",
        kind="table",
        targets=[
            Target(_served("streamcal_labelled_predictions"), table=True),
            Target(_served("streamcal_ece"), table=True),
            Target(_raw("streamcal_ece"), table=True),
            Target(_served("streamcal_predicted_to_observed_ratio"), table=True),
            Target(_served("streamcal_platt_slope"), table=True),
            Target('max by (model) (streamcal:alarm_evidence:ratio{cut="all"})', table=True),
            Target("max by (model) (streamcal:map_age_seconds)", table=True),
        ],
        says="One line per model, over all its traffic in the window chosen. ECE alone says little: with few rows a "
        "calibrated score has one too. Evidence is a share of what raises an alarm.",
        unit="none",
        decimals=3,
        thresholds=((None, "text"),),
        width=24,
        height=7,
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "renameByName": {field: name for field, (name, _) in _COLUMNS.items()},
                },
            },
        ],
        overrides=[
            {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
            for name, unit in _COLUMNS.values()
        ],
    ),
    Panel(
        title="ECE",
        kind="timeseries",
        targets=[
            Target(_served("streamcal_ece"), "{{model}} served"),
            Target(_raw("streamcal_ece"), "{{model}} raw"),
        ],
        says="Expected calibration error of scores as served (after the map) and as the model gave them.",
        unit="percentunit",
        low=0,
    ),
    Panel(
        title="Predicted to observed",
        kind="timeseries",
        targets=[Target(_served("streamcal_predicted_to_observed_ratio"), "{{model}}")],
        says="Sum of served scores over the number of positives. Above 1 the scores are too high.",
        unit="none",
        thresholds=((None, "text"), (1, "text")),
    ),
    Panel(
        title="Evidence against threshold",
        kind="timeseries",
        targets=[Target('max by (model) (streamcal:alarm_evidence:ratio{cut="all"})', "{{model}}")],
        says="Evidence that served scores are off, as a share of what raises an alarm (the red line). It may be looked "
        "at as often as one likes.",
        unit="percentunit",
        thresholds=((None, "green"), (0.8, "yellow"), (1, "red")),
    ),
)

_NEAREST: Final = row(
    "Where not?",
    Panel(
        title="Segments nearest to an alarm",
        kind="table",
        targets=[Target("topk(20, max by (model, cut, segment) (streamcal:alarm_evidence:ratio))", table=True)],
        says="The twenty series with most evidence against their scores, as a share of what raises an alarm. The "
        "number of rows and of segments is accounted for, so a small segment is not here by chance.",
        unit="percentunit",
        decimals=0,
        thresholds=((None, "green"), (0.8, "yellow"), (1, "red")),
        width=12,
        transformations=[
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {"Value": "evidence"}}},
            {"id": "sortBy", "options": {"sort": [{"field": "evidence", "desc": True}]}},
        ],
    ),
    Panel(
        title="Alarms by model and fault",
        kind="state-timeline",
        targets=[Target(f'sum by (model, fault) ({_W} (streamcal_alarm_active{{cut="all"}}))', "{{model}} {{fault}}")],
        says="Since when an alarm on all traffic of a model is in force, and which fault it names.",
        unit="none",
        thresholds=_GOOD_BAD,
        mappings=[{"type": "value", "options": {"0": {"text": "calm"}, "1": {"text": "alarm"}}}],
        width=12,
    ),
)


def overview_dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    window = label_variable(
        "window",
        "Window of the figures, as configured; it ends at the event time of the model.",
        'label_values(streamcal_labelled_predictions{cut="all"}, window)',
    )
    return dashboard(
        "streamcal-overview",
        "streamcal: overview",
        "Calibration of all models: can scores be trusted, where not, and does what tells us work.",
        [window],
        [_TRUST, _MODELS, _NEAREST, *STREAM_ROWS],
    )
