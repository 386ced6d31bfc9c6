"""Alerts about the scores: is what is served right, is the map that makes it right looked after."""

from __future__ import annotations

from typing import Final

from alert import PER_PROCESS, Alert

__all__ = ["SCORES"]

_SERIES: Final = "model=%q,cut=%q,segment=%q"
_OF_SERIES: Final = "$labels.model $labels.cut $labels.segment"


def _figure(metric: str, words: str, form: str) -> str:
    """Template text: a served figure of the alert's series in each window."""
    promql = f'max by (window) ({metric}{{{_SERIES},score_kind="served"}})'
    query = f"printf `{promql}` {_OF_SERIES} | query | sortByLabel `window`"
    return f"{{{{ range {query} }}}} {words} {{{{ printf `{form}` .Value }}}} ({{{{ .Labels.window }}}}).{{{{ end }}}}"


_FIGURES: Final = "".join(
    (
        _figure("streamcal_predicted_to_observed_ratio", "Predicted to observed", "%.3f"),
        _figure("streamcal_platt_slope", "Slope", "%.2f"),
        _figure("streamcal_labelled_predictions", "Rows", "%.0f"),
    )
)

# A segment's rows in its longest window, in the labels that alarm and evidence have.
_ROWS: Final = (
    f'max without ({PER_PROCESS}, window, score_kind) (streamcal_labelled_predictions{{score_kind="served"}})'
)
_ATTEMPTS: Final = f"sum without ({PER_PROCESS}, result, reason) (increase(streamcal_refits_total"
# Refusals that say the map in force is fine, or that the loop is waiting on purpose.
_SOUND: Final = "no_gain|cooling_down"

SCORES: Final = (
    Alert(
        name="StreamcalCalibrationAlarm",
        severity="critical",
        # Not gated by rows: the detector's evidence already knows how many there were, and a threshold on rows would
        # hide the rare events it is good at.
        value=f'max without ({PER_PROCESS}) (streamcal_alarm_active{{cut="all"}})',
        above=0,
        hold="0m",
        keep="10m",
        summary="Scores of {{ $labels.model }} are off: {{ $labels.fault }}",
        description=(
            "An alarm is in force for all traffic of model {{ $labels.model }}: {{ $labels.fault }}. "
            "It is not chance, within the false alarms configured."
        ),
        more=_FIGURES,
        dashboard="model",
    ),
    Alert(
        name="StreamcalSegmentCalibrationAlarm",
        severity="warning",
        value=f'max without ({PER_PROCESS}) (streamcal_alarm_active{{cut!="all"}})',
        above=0,
        hold="0m",
        keep="10m",
        summary="Scores of {{ $labels.model }} are off in {{ $labels.segment }}: {{ $labels.fault }}",
        description=(
            "An alarm is in force for segment {{ $labels.segment }} of model {{ $labels.model }}: {{ $labels.fault }}."
        ),
        more=_FIGURES,
        dashboard="model",
    ),
    Alert(
        name="StreamcalEvidenceNearThreshold",
        severity="info",
        value=(
            "streamcal:alarm_evidence:ratio\n"
            f"and ({_ROWS} >= 100)\n"
            f"unless (max without ({PER_PROCESS}, fault) (streamcal_alarm_active) > 0)"
        ),
        above=0.8,
        hold="15m",
        keep="15m",
        summary="Evidence against the scores of {{ $labels.model }} ({{ $labels.segment }}) nears an alarm",
        description=(
            "Evidence that the scores of model {{ $labels.model }} are off in segment {{ $labels.segment }} is at "
            "{{ $value | humanizePercentage }} of what raises an alarm."
        ),
        more=_FIGURES,
        dashboard="model",
    ),
    Alert(
        name="StreamcalEceBeyondThreshold",
        severity="warning",
        # Rows and z are gated by the daemon: alarms.ece.min_n and min_z.
        value=f"max without ({PER_PROCESS}) (streamcal_ece_threshold_exceeded)",
        above=0,
        hold="15m",
        keep="15m",
        summary="ECE of {{ $labels.model }} ({{ $labels.segment }}) is beyond alarms.ece",
        description=(
            "The served ECE of model {{ $labels.model }}, segment {{ $labels.segment }}, window {{ $labels.window }} "
            "is beyond the limit configured as alarms.ece."
        ),
        more=_figure("streamcal_ece", "ECE", "%.4f"),
        dashboard="model",
    ),
    Alert(
        name="StreamcalMapStale",
        severity="warning",
        # An old map is no fault while attempts keep finding nothing better.
        value=(f'streamcal:map_age_seconds\nunless ({_ATTEMPTS}{{reason=~"|{_SOUND}"}}[1d])) >= 1)'),
        above=14 * 86_400,  # refit.fit_window: none of the labels it was fitted on would be used today
        hold="1h",
        summary="The map of {{ $labels.model }} is old and nothing has confirmed it",
        description=(
            "The map of model {{ $labels.model }} was promoted {{ $value | humanizeDuration }} ago, and in the past "
            "day no attempt to refit found it still the best."
        ),
        more=(
            "{{ range printf `streamcal_map_info{model=%q}` $labels.model | query }} In force: version "
            "{{ .Labels.map_version }} ({{ .Labels.family }}).{{ end }}"
        ),
        dashboard="model",
    ),
    Alert(
        name="StreamcalRefitsRefused",
        severity="warning",
        # The first labels of a stream are too few by nature, hence the rows.
        value=(
            f'{_ATTEMPTS}{{result="refused", reason!~"{_SOUND}"}}[6h]))\n'
            f'/ ({_ATTEMPTS}{{reason!="cooling_down"}}[6h])) >= 3)\n'
            f"and (max without ({PER_PROCESS}, cut, segment, window, score_kind) "
            '(streamcal_labelled_predictions{cut="all", score_kind="raw"}) >= 1000)'
        ),
        above=0.99,
        hold="30m",
        keep="15m",
        summary="Every refit of {{ $labels.model }} is refused",
        description=(
            "{{ $value | humanizePercentage }} of the attempts to refit model {{ $labels.model }} in the past 6 hours "
            "were refused for a fault, and none found the map in force still the best."
        ),
        more=(
            '{{ range printf `sum by (reason) (increase(streamcal_refits_total{model=%q,result="refused"}[6h])) > 0`'
            " $labels.model | query | sortByLabel `reason` }} {{ .Labels.reason }}: "
            "{{ printf `%.0f` .Value }}.{{ end }}"
        ),
        dashboard="model",
    ),
    Alert(
        name="StreamcalMapRolledBack",
        severity="warning",
        # A counter that is born with its first roll-back has no increase, hence the second half.
        value=(
            f'{_ATTEMPTS}{{result="rolled_back", reason!="manual"}}[1h])) > 0\n'
            f"or sum without ({PER_PROCESS}, result, reason) (\n"
            '  streamcal_refits_total{result="rolled_back", reason!="manual"} unless streamcal_refits_total offset 1h\n'
            ")"
        ),
        above=0,
        hold="0m",
        summary="A map of {{ $labels.model }} was taken back",
        description=(
            "A promoted map of model {{ $labels.model }} did worse on live scores than the one before it, and was "
            "taken back by itself within the past hour."
        ),
        more=(
            "{{ range printf `streamcal_map_info{model=%q}` $labels.model | query }} In force: version "
            "{{ .Labels.map_version }} ({{ .Labels.family }}).{{ end }}"
        ),
        dashboard="model",
    ),
)
