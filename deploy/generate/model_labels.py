"""The lower half of the dashboard of one model: how labels come, what was done about it, the reliability table."""

from __future__ import annotations

from typing import Final

from panels import Panel, Target, row

__all__ = ["BAND", "LABEL_ROWS"]

_MODEL: Final = 'model="$model"'

BAND: Final = [
    {
        "matcher": {"id": "byRegexp", "options": ".*, (low|high)"},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [4, 4]}},
            {"id": "color", "value": {"mode": "fixed", "fixedColor": "text"}},
        ],
    }
]
"""Overrides that draw the ends of an interval as dashed lines."""

_LABELS: Final = row(
    "Labels of $model",
    Panel(
        title="Coverage",
        kind="timeseries",
        targets=[Target(f"max(streamcal_label_coverage_ratio{{{_MODEL}}})", "coverage")],
        says="Share of matured predictions whose label is known.",
        unit="percentunit",
        low=0,
        high=1,
        thresholds=((None, "red"), (0.5, "green")),
        width=6,
    ),
    Panel(
        title="Delay",
        kind="timeseries",
        targets=[Target(f"max by (quantile) (streamcal_label_delay_seconds{{{_MODEL}}})", "{{quantile}}")],
        says="Delay from prediction to outcome that half, 90 % and 99 % of the labels do not exceed.",
        unit="s",
        low=0,
        width=6,
    ),
    Panel(
        title="Without outcome, by score",
        kind="bargauge",
        targets=[Target(f"max by (hi) (streamcal_unmatched_ratio{{{_MODEL}}})", "to {{hi}}")],
        says="Share of matured predictions in each band of scores to which no outcome came. Uneven shares bias every "
        "figure.",
        unit="percentunit",
        low=0,
        high=1,
        thresholds=((None, "green"), (0.5, "yellow")),
        width=6,
    ),
    Panel(
        title="Before labels are complete",
        kind="timeseries",
        targets=[
            Target(f"max(streamcal_early_predicted_to_observed_ratio{{{_MODEL}}})", "ratio"),
            Target(
                f"max(streamcal_early_predicted_to_observed_ratio{{{_MODEL}}}) - 4 * "
                f"max(streamcal_early_predicted_to_observed_ratio_stderr{{{_MODEL}}})",
                "ratio, low",
            ),
            Target(
                f"max(streamcal_early_predicted_to_observed_ratio{{{_MODEL}}}) + 4 * "
                f"max(streamcal_early_predicted_to_observed_ratio_stderr{{{_MODEL}}})",
                "ratio, high",
            ),
        ],
        says="Expected over seen positives of predictions that have not matured, with four standard errors: a reason "
        "to look, never to act.",
        unit="none",
        thresholds=((None, "text"), (1, "text")),
        overrides=BAND,
        width=6,
    ),
)


_MAPS: Final = row(
    "What was done: maps of $model",
    Panel(
        title="Map in force",
        kind="state-timeline",
        targets=[
            Target(f"max by (family, map_version) (streamcal_map_info{{{_MODEL}}})", "{{map_version}} {{family}}")
        ],
        says="Which map was in force when.",
        unit="none",
        thresholds=((None, "blue"),),
        mappings=[{"type": "value", "options": {"1": {"text": "in force"}}}],
    ),
    Panel(
        title="Attempts to refit",
        kind="timeseries",
        targets=[
            Target(
                f"sum by (result, reason) (increase(streamcal_refits_total{{{_MODEL}}}[1h]))", "{{result}} {{reason}}"
            )
        ],
        says="Attempts of the past hour by what came of them. no_gain is calm: nothing better was found.",
        unit="none",
        low=0,
    ),
    Panel(
        title="Changes told by ADWIN and Page-Hinkley",
        kind="timeseries",
        targets=[
            Target(f"sum by (trigger) (increase(streamcal_change_triggers_total{{{_MODEL}}}[1h]))", "{{trigger}}")
        ],
        says="Change triggers of the past hour: hints without a guarantee, no alarms.",
        unit="none",
        low=0,
    ),
)


_RELIABILITY: Final = row(
    "Reliability (needs bins in metrics.export, for the segment all)",
    Panel(
        title="Observed less predicted, by score",
        kind="bargauge",
        targets=[
            Target(
                f'max by (lo, hi) (streamcal_bin_observed_rate{{{_MODEL}, cut="all", window="$window", '
                'score_kind="served"}) - '
                f'max by (lo, hi) (streamcal_bin_mean_score{{{_MODEL}, cut="all", window="$window", '
                'score_kind="served"})',
                "{{lo}} to {{hi}}",
            )
        ],
        says="Share of positives less mean served score in each bin: below 0 the scores there are too high. The "
        "daemon's own page draws the diagram with intervals.",
        unit="percentunit",
        thresholds=((None, "yellow"), (-0.05, "green"), (0.05, "yellow")),
        width=12,
    ),
    Panel(
        title="Rows by score",
        kind="bargauge",
        targets=[
            Target(
                f'max by (lo, hi) (streamcal_bin_labelled_predictions{{{_MODEL}, cut="all", window="$window", '
                'score_kind="served"})',
                "{{lo}} to {{hi}}",
            )
        ],
        says="Labelled predictions in each bin; a gap on a few rows is no evidence.",
        unit="short",
        low=0,
        width=12,
    ),
    collapsed=True,
)


LABEL_ROWS: Final = (_LABELS, _MAPS, _RELIABILITY)
