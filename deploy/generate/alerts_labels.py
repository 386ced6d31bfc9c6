"""Alerts about the two streams of events: do predictions and labels come, whole, in time, and do they match."""

from __future__ import annotations

from typing import Final

from alert import PER_PROCESS, Alert

__all__ = ["LABELS"]

_PREDICTIONS: Final = "streamcal_predictions_accepted_total"
_OUTCOMES: Final = "streamcal_outcomes_accepted_total"


def _outcomes(counter: str, over: str) -> str:
    return f"sum without ({PER_PROCESS}) (increase({counter}[{over}]))"


def _share_of_outcomes(counter: str) -> str:
    """Of the outcomes of an hour, where they are a hundred or more."""
    return f"{_outcomes(counter, '1h')}\n/ ({_outcomes(_OUTCOMES, '1h')} >= 100)"


LABELS: Final = (
    Alert(
        name="StreamcalPredictionsStopped",
        severity="warning",
        # At least 20 were to be expected by the day before: none at all is then no chance. Busy days with quiet
        # nights need a longer window.
        value=(
            f"sum without ({PER_PROCESS}) (increase({_PREDICTIONS}[30m]))\n"
            f"and (sum without ({PER_PROCESS}) (increase({_PREDICTIONS}[1d] offset 30m)) / 48 >= 20)"
        ),
        below=0.5,
        hold="10m",
        summary="No predictions of {{ $labels.model }} arrive",
        description=(
            "No prediction of model {{ $labels.model }} was accepted in 30 minutes, where its traffic of the day "
            "before would have brought at least 20. Its figures stand still."
        ),
    ),
    Alert(
        name="StreamcalLabelsMissing",
        severity="critical",
        # Outcomes per prediction since the process started, times the predictions of the hour: where 10 are to be
        # expected, none at all is no chance (e^-10), however rare positives are. Dead from the start: 10,000
        # predictions and not one outcome.
        value=(
            f"{_outcomes(_OUTCOMES, '1h')}\n"
            "and (\n"
            f"  sum without ({PER_PROCESS}, model) (increase({_PREDICTIONS}[1h]))\n"
            f"  * sum without ({PER_PROCESS}) ({_OUTCOMES})\n"
            f"  / sum without ({PER_PROCESS}, model) ({_PREDICTIONS}) >= 10\n"
            f"  or sum without ({PER_PROCESS}, model) ({_PREDICTIONS}) >= 10000\n"
            f"    unless sum without ({PER_PROCESS}) ({_OUTCOMES}) > 0\n"
            ")"
        ),
        below=0.5,
        hold="15m",
        summary="No labels arrive ({{ $labels.job }})",
        description=(
            "Not one outcome was accepted in the past hour while predictions went on ({{ $labels.job }}). "
            "Calibration cannot be seen until outcomes come again, and nothing matures."
        ),
        more=(
            "{{ range query `sum(increase(streamcal_predictions_accepted_total[1h]))` }} Predictions in that hour: "
            "{{ printf `%.0f` .Value }}.{{ end }}"
        ),
    ),
    Alert(
        name="StreamcalLabelsBehind",
        severity="warning",
        value="streamcal:outcomes_behind_seconds",
        above=6 * 3600,  # a quarter of the default horizon; feeds that are loaded once a day need more
        hold="30m",
        keep="10m",
        summary="Labels are behind ({{ $labels.job }})",
        description=(
            "The slowest partition of the outcomes is {{ $value | humanizeDuration }} of event time behind the "
            "predictions ({{ $labels.job }}); figures and alarms are as late."
        ),
    ),
    Alert(
        name="StreamcalLabelsLate",
        severity="warning",
        value=_share_of_outcomes("streamcal_outcomes_late_total"),
        above=0.05,
        hold="15m",
        keep="15m",
        summary="Labels come after the horizon ({{ $labels.job }})",
        description=(
            "{{ $value | humanizePercentage }} of the outcomes of the past hour came after the horizon of their "
            "prediction and were not counted ({{ $labels.job }})."
        ),
    ),
    Alert(
        name="StreamcalOutcomesOrphaned",
        severity="warning",
        value=_share_of_outcomes("streamcal_outcomes_orphan_total"),
        above=0.5,
        hold="30m",
        keep="15m",
        summary="Most outcomes belong to no prediction ({{ $labels.job }})",
        description=(
            "{{ $value | humanizePercentage }} of the outcomes of the past hour matched no prediction "
            "({{ $labels.job }}): another id, another clock, or predictions that are not sent."
        ),
    ),
    Alert(
        name="StreamcalCoverageLow",
        severity="warning",
        value=(
            f"max without ({PER_PROCESS}) (streamcal_label_coverage_ratio)\n"
            f"and (sum without ({PER_PROCESS}) (increase({_PREDICTIONS}[1d])) >= 1000)"
        ),
        below=0.5,
        hold="30m",
        summary="Few predictions of {{ $labels.model }} get a label",
        description=(
            "Of the matured predictions of model {{ $labels.model }} only {{ $value | humanizePercentage }} have a "
            "label; the figures speak of those alone."
        ),
        more=(
            "{{ range printf `streamcal_unmatched_ratio{model=%q}` $labels.model | query | sortByLabel `hi` }} Without "
            "outcome, scores to {{ .Labels.hi }}: {{ .Value | humanizePercentage }}.{{ end }}"
        ),
        dashboard="model",
    ),
    Alert(
        name="StreamcalRejectedShareHigh",
        severity="warning",
        value="streamcal:events_rejected:ratio_rate15m\nand (streamcal:events_rejected:rate15m * 900 >= 20)",
        above=0.01,
        hold="10m",
        keep="10m",
        summary="Events of topic {{ $labels.topic }} are rejected",
        description=(
            "{{ $value | humanizePercentage }} of the {{ $labels.topic }} of the past 15 minutes were rejected "
            "({{ $labels.job }})."
        ),
        more=(
            "{{ range printf `sum by (reason) (increase(streamcal_events_rejected_total{topic=%q}[15m])) > 0` "
            "$labels.topic | query | sortByLabel `reason` }} {{ .Labels.reason }}: {{ printf `%.0f` .Value }}.{{ end }}"
        ),
    ),
    Alert(
        name="StreamcalPartitionerMismatch",
        severity="critical",
        # Since the processes started: records are sampled, and a topic that is hashed otherwise shows at once.
        value=(
            f"sum without ({PER_PROCESS}) (streamcal_partitioner_mismatch_total)\n"
            f"/ (sum without ({PER_PROCESS}) (streamcal_partitioner_checked_total) >= 20)"
        ),
        above=0.01,
        hold="5m",
        keep="5m",
        summary="Records of {{ $labels.topic }} are not where their key belongs",
        description=(
            "{{ $value | humanizePercentage }} of the sampled {{ $labels.topic }} are not in the partition their key "
            "belongs to ({{ $labels.job }}): predictions and outcomes of an id do not meet."
        ),
    ),
    Alert(
        name="StreamcalDeadLetterFailed",
        severity="warning",
        value=f"sum without ({PER_PROCESS}) (increase(streamcal_dead_letter_failed_total[15m]))",
        above=0,
        hold="5m",
        keep="15m",
        summary="The dead-letter topic does not take rejected {{ $labels.topic }}",
        description=(
            "{{ $value | humanize }} rejected {{ $labels.topic }} of the past 15 minutes could not be set aside "
            "({{ $labels.job }}, {{ $labels.error }}); they are in their own topic only, until it is trimmed."
        ),
    ),
)
