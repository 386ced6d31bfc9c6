"""The lower half of the overview: does the stream flow, do maps move, are they applied."""

from __future__ import annotations

from typing import Final

from alert import PER_PROCESS
from panels import Panel, Target, row

__all__ = ["STREAM_ROWS"]

_W: Final = f"max without ({PER_PROCESS})"
_GOOD_BAD: Final = ((None, "green"), (1, "red"))

_STREAM: Final = row(
    "Does the stream flow?",
    Panel(
        title="Events accepted",
        kind="timeseries",
        targets=[Target("sum by (topic) (streamcal:events_accepted:rate15m)", "{{topic}}")],
        says="Predictions and outcomes taken into the join per second, mean of 15 minutes.",
        unit="cps",
        low=0,
    ),
    Panel(
        title="Rejected share",
        kind="timeseries",
        targets=[Target("max by (topic) (streamcal:events_rejected:ratio_rate15m)", "{{topic}}")],
        says="Share of the events read that could not be used, mean of 15 minutes. Reasons: "
        "streamcal_events_rejected_total.",
        unit="percentunit",
        low=0,
        thresholds=((None, "green"), (0.01, "red")),
    ),
    Panel(
        title="Unread",
        kind="timeseries",
        targets=[Target("max by (topic) (streamcal:consumer_lag_seconds)", "{{topic}}")],
        says="Time to read what is unread at the present pace.",
        unit="s",
        low=0,
        thresholds=((None, "green"), (300, "red")),
    ),
    Panel(
        title="Outcomes behind predictions",
        kind="timeseries",
        targets=[Target("max by (job) (streamcal:outcomes_behind_seconds)", "{{job}}")],
        says="How far the event time of the slowest partition of the outcomes trails that of the predictions.",
        unit="s",
        thresholds=((None, "green"), (21600, "red")),
    ),
    Panel(
        title="Sealing behind predictions",
        kind="timeseries",
        targets=[Target("max by (model) (streamcal:sealing_behind_seconds)", "{{model}}")],
        says="How far the last sealed pane trails the predictions: horizon, disorder and one pane where all is well. "
        "Alarms see nothing newer.",
        unit="s",
        low=0,
    ),
    Panel(
        title="Pending predictions",
        kind="timeseries",
        targets=[Target("sum by (job) (streamcal_pending_predictions)", "{{job}}")],
        says="Predictions that wait for their outcome.",
        unit="short",
        low=0,
    ),
    Panel(
        title="Memory of the join",
        kind="timeseries",
        targets=[Target("sum by (job) (streamcal_pending_bytes)", "{{job}}")],
        says="Bytes that predictions and outcomes within their horizons take: rate times horizon.",
        unit="bytes",
        low=0,
    ),
    Panel(
        title="Commit time, 99th percentile",
        kind="timeseries",
        targets=[Target("max by (job) (streamcal:commit_duration_seconds:p99_5m)", "{{job}}")],
        says="Time from the start of a commit to its acknowledgement; one in a hundred takes longer.",
        unit="s",
        low=0,
        thresholds=((None, "green"), (5, "red")),
    ),
    Panel(
        title="Label coverage",
        kind="timeseries",
        targets=[Target("max by (model) (streamcal_label_coverage_ratio)", "{{model}}")],
        says="Share of matured predictions whose label is known. A fall is a broken feed or ids that no longer match.",
        unit="percentunit",
        low=0,
        high=1,
        thresholds=((None, "red"), (0.5, "green")),
    ),
)


_MAPS: Final = row(
    "Maps",
    Panel(
        title="Maps in force",
        kind="table",
        targets=[Target(f"{_W} (streamcal_map_info)", table=True)],
        says="Version and family of the map in force of each model.",
        unit="none",
        thresholds=((None, "text"),),
        width=8,
        transformations=[{"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True, "job": True}}}],
    ),
    Panel(
        title="Attempts to refit",
        kind="timeseries",
        targets=[
            Target(
                "sum by (model, result, reason) (increase(streamcal_refits_total[1h]))",
                "{{model}} {{result}} {{reason}}",
            )
        ],
        says="Attempts of the past hour by what came of them. no_gain is calm: nothing better was found.",
        unit="none",
        low=0,
    ),
    Panel(
        title="Age of the map",
        kind="timeseries",
        targets=[Target("max by (model) (streamcal:map_age_seconds)", "{{model}}")],
        says="Event time since the map in force was promoted. Old is fine while attempts say no_gain.",
        unit="s",
        low=0,
        thresholds=((None, "green"), (1209600, "yellow")),
    ),
)


_TRANSFORMERS: Final = row(
    "Transformers (where producers export their metrics)",
    Panel(
        title="Map version served",
        kind="timeseries",
        targets=[Target("streamcal_transformer_map_version", "{{instance}} {{model}}")],
        says="Version of the map that each transformer applies. They agree within seconds of a promotion.",
        unit="none",
    ),
    Panel(
        title="Scores transformed",
        kind="timeseries",
        targets=[
            Target("sum by (model) (rate(streamcal_transformer_scores_total[5m]))", "{{model}}"),
            Target("sum by (reason) (rate(streamcal_transformer_unmapped_total[5m]))", "uncorrected: {{reason}}"),
        ],
        says="Scores per second that a map was applied to, and those passed on as they came.",
        unit="cps",
        low=0,
    ),
    Panel(
        title="Updates not taken",
        kind="timeseries",
        targets=[
            Target(
                "sum by (instance, reason) (increase(streamcal_transformer_problems_total[15m]))",
                "{{instance}} {{reason}}",
            )
        ],
        says="Updates of maps that a transformer did not take in the past 15 minutes, by reason.",
        unit="none",
        low=0,
        thresholds=_GOOD_BAD,
    ),
    collapsed=True,
)


STREAM_ROWS: Final = (_STREAM, _MAPS, _TRANSFORMERS)
