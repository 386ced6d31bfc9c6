"""The dashboard of one model, one segment of it at a time."""

from __future__ import annotations

from typing import Any, Final

from alert import PER_PROCESS
from model_labels import BAND, LABEL_ROWS
from panels import Panel, Target, dashboard, label_variable, row

__all__ = ["model_dashboard"]

_W: Final = f"max without ({PER_PROCESS})"
_MODEL: Final = 'model="$model"'
_SERIES: Final = f'{_MODEL}, cut="$cut", segment="$segment"'
_FIGURE: Final = f'{_SERIES}, window="$window"'
_KINDS: Final = ("served", "raw")
_GOOD_BAD: Final = ((None, "green"), (1, "red"))
_PLAIN: Final = ((None, "text"),)


def _figure(metric: str, kind: str) -> str:
    return f'max({metric}{{{_FIGURE}, score_kind="{kind}"}})'


def _both(metric: str) -> list[Target]:
    return [Target(_figure(metric, kind), kind) for kind in _KINDS]


def _stat(title: str, metric: str, says: str, unit: str, **more: Any) -> Panel:
    target = Target(_figure(metric, "served"), title)
    return Panel(title=title, kind="stat", targets=[target], says=says, unit=unit, width=4, height=4, **more)


def _slope_band() -> list[Target]:
    slope, stderr = _figure("streamcal_platt_slope", "served"), _figure("streamcal_platt_slope_stderr", "served")
    return [
        Target(slope, "served"),
        Target(f"{slope} - 1.96 * {stderr}", "served, low"),
        Target(f"{slope} + 1.96 * {stderr}", "served, high"),
        Target(_figure("streamcal_platt_slope", "raw"), "raw"),
    ]


_NOW: Final = row(
    "Now: $segment, last $window",
    Panel(
        title="Alarm",
        kind="stat",
        targets=[Target(f"sum({_W} (streamcal_alarm_active{{{_SERIES}}})) or vector(0)", "alarm")],
        says="Whether an alarm on this segment is in force.",
        unit="none",
        thresholds=_GOOD_BAD,
        mappings=[{"type": "value", "options": {"0": {"text": "calm"}, "1": {"text": "alarm"}}}],
        width=4,
        height=4,
    ),
    _stat(
        "ECE served",
        "streamcal_ece",
        "Expected calibration error after the map. Read it with its z: a calibrated score has an ECE too.",
        "percentunit",
        thresholds=_PLAIN,
        decimals=1,
    ),
    _stat(
        "z of the ECE",
        "streamcal_ece_z",
        "Standard deviations of the ECE above its noise floor, for independent outcomes and one look.",
        "none",
        thresholds=((None, "green"), (4, "yellow")),
        decimals=1,
    ),
    _stat(
        "Predicted to observed",
        "streamcal_predicted_to_observed_ratio",
        "Sum of served scores over positives. Above 1 the scores are too high.",
        "none",
        thresholds=((None, "yellow"), (0.8, "green"), (1.25, "yellow")),
        decimals=3,
    ),
    _stat(
        "Slope",
        "streamcal_platt_slope",
        "Calibration slope after the map. Below 1 the scores are over-confident. Its error is in the panel below.",
        "none",
        thresholds=((None, "yellow"), (0.8, "green"), (1.25, "yellow")),
        decimals=2,
    ),
    _stat(
        "Rows",
        "streamcal_labelled_predictions",
        "Labelled predictions in the window: what all of this rests on.",
        "short",
        thresholds=((None, "yellow"), (1000, "green")),
    ),
)

_OVER_TIME: Final = row(
    "Since when?",
    Panel(
        title="ECE",
        kind="timeseries",
        targets=_both("streamcal_ece"),
        says="Expected calibration error as served and as the model gave it: the distance is what the map does.",
        unit="percentunit",
        low=0,
    ),
    Panel(
        title="z of the ECE",
        kind="timeseries",
        targets=_both("streamcal_ece_z"),
        says="Standard deviations above what a calibrated score would show with as many rows.",
        unit="none",
        thresholds=((None, "green"), (4, "yellow")),
    ),
    Panel(
        title="Slope",
        kind="timeseries",
        targets=_slope_band(),
        says="Calibration slope with its 95 % interval; below 1 the scores are over-confident. Absent with too few of "
        "either class.",
        unit="none",
        thresholds=((None, "text"), (1, "text")),
        overrides=BAND,
    ),
    Panel(
        title="Predicted to observed",
        kind="timeseries",
        targets=_both("streamcal_predicted_to_observed_ratio"),
        says="Sum of scores over positives; above 1 the scores are too high.",
        unit="none",
        thresholds=((None, "text"), (1, "text")),
    ),
    Panel(
        title="Evidence",
        kind="timeseries",
        targets=[
            Target(f"max(streamcal_alarm_evidence{{{_SERIES}}})", "evidence"),
            Target(f"max(streamcal_alarm_threshold{{{_SERIES}}})", "threshold"),
        ],
        says="Evidence that served scores are off, in nats, and what raises an alarm. It begins again with each map.",
        unit="none",
    ),
    Panel(
        title="Alarms",
        kind="state-timeline",
        targets=[
            Target(f"sum by (fault) ({_W} (streamcal_alarm_active{{{_SERIES}}})) or vector(0)", "{{fault}}"),
        ],
        says="Since when an alarm is in force, and which fault it names.",
        unit="none",
        thresholds=_GOOD_BAD,
        mappings=[{"type": "value", "options": {"0": {"text": "calm"}, "1": {"text": "alarm"}}}],
    ),
    Panel(
        title="Log loss",
        kind="timeseries",
        targets=_both("streamcal_log_loss"),
        says="Mean log loss. Lower is better; it moves with the mix of traffic too, so compare served with raw.",
        unit="none",
    ),
    Panel(
        title="Rows and positives",
        kind="timeseries",
        targets=[
            Target(_figure("streamcal_labelled_predictions", "served"), "rows"),
            Target(_figure("streamcal_positive_outcomes", "served"), "positives"),
        ],
        says="Labelled predictions in the window, and how many of them were positive.",
        unit="short",
        low=0,
    ),
    Panel(
        title="Score shift",
        kind="timeseries",
        targets=[
            Target(f'max by (window) (streamcal_score_shift{{{_MODEL}, cut="all"}})', "{{window}}"),
            Target(f'max by (window) (streamcal_score_shift_noise_floor{{{_MODEL}, cut="all"}})', "{{window}} floor"),
        ],
        says="How far raw scores of all traffic moved from the longest window before (population stability index), "
        "and the mean of that without a shift. Needs no label.",
        unit="none",
        low=0,
        thresholds=((None, "green"), (0.25, "yellow")),
    ),
)

_SEGMENTS: Final = row(
    "Where? Segments of $cut",
    Panel(
        title="Segments, worst first",
        kind="table",
        targets=[
            Target(f'max by (segment) (streamcal:alarm_evidence:ratio{{{_MODEL}, cut="$cut"}})', table=True),
            *(
                Target(
                    f'max by (segment) ({metric}{{{_MODEL}, cut="$cut", window="$window", score_kind="served"}})',
                    table=True,
                )
                for metric in ("streamcal_labelled_predictions", "streamcal_ece", "streamcal_ece_z")
            ),
            Target(
                "max by (segment) (streamcal_predicted_to_observed_ratio"
                f'{{{_MODEL}, cut="$cut", window="$window", score_kind="served"}})',
                table=True,
            ),
        ],
        says="Segments of the cut chosen by the evidence against their served scores, with rows, ECE and its z.",
        unit="none",
        decimals=3,
        thresholds=_PLAIN,
        width=24,
        height=9,
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "renameByName": {
                        "Value #A": "evidence",
                        "Value #B": "rows",
                        "Value #C": "ECE",
                        "Value #D": "z of the ECE",
                        "Value #E": "predicted / observed",
                    },
                },
            },
            {"id": "sortBy", "options": {"sort": [{"field": "evidence", "desc": True}]}},
        ],
        overrides=[
            {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": "percentunit"}]}
            for name in ("evidence", "ECE")
        ],
    ),
)


def model_dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    rows = "streamcal_labelled_predictions"
    variables = [
        label_variable("model", "Model as its events name it.", f"label_values({rows}, model)"),
        label_variable("cut", "Dimensions cut by; all is the whole stream.", f"label_values({rows}{{{_MODEL}}}, cut)"),
        label_variable("segment", "Segment of the cut.", f'label_values({rows}{{{_MODEL}, cut="$cut"}}, segment)'),
        label_variable(
            "window",
            "Window of the figures, as configured; it ends at the event time of the model.",
            f"label_values({rows}{{{_SERIES}}}, window)",
        ),
    ]
    return dashboard(
        "streamcal-model",
        "streamcal: one model",
        "One model, segment by segment: is it right, since when not, where, why, and what the loop did about it.",
        variables,
        [_NOW, _OVER_TIME, _SEGMENTS, *LABEL_ROWS],
    )
