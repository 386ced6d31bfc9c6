"""Alerts about the daemon itself and about the transformers that apply its maps."""

from __future__ import annotations

from typing import Final

from alert import PER_PROCESS, Alert

__all__ = ["PROCESS"]

# The job as in prometheus.yml, or as the Prometheus operator names one (namespace/name).
_JOB: Final = 'job=~"(.+/)?streamcal"'
_SEALING: Final = "streamcal:sealing_behind_seconds"
_RECOVERY: Final = "sum without (partition) (streamcal_recovery_remaining_records"
_MAP_AGE: Final = "streamcal_transformer_map_age_seconds"

PROCESS: Final = (
    Alert(
        name="StreamcalDown",
        severity="critical",
        value=f"1 - up{{{_JOB}}}",
        above=0,
        hold="2m",
        summary="streamcal at {{ $labels.instance }} does not answer",
        description="Prometheus cannot scrape {{ $labels.instance }} ({{ $labels.job }}): nothing it says is current.",
        no_data="Alerting",
    ),
    Alert(
        name="StreamcalAbsent",
        severity="critical",
        value=f"absent(up{{{_JOB}}})",
        above=0,
        hold="5m",
        summary="No streamcal is being scraped",
        description="Prometheus has no target of a job called streamcal: nobody watches the scores.",
    ),
    Alert(
        name="StreamcalNotReady",
        severity="warning",
        # While it recovers it is not ready on purpose; StreamcalRecoveryStuck watches that.
        value="1 - streamcal_ready unless on (job, instance) streamcal_recovery_remaining_records",
        above=0,
        hold="10m",
        summary="streamcal at {{ $labels.instance }} is not ready",
        description=(
            "{{ $labels.instance }} ({{ $labels.job }}) answers but takes no part in the work; /readyz says why."
        ),
    ),
    Alert(
        name="StreamcalRecoveryStuck",
        severity="critical",
        value=f"{_RECOVERY})\nand {_RECOVERY}) >= {_RECOVERY} offset 10m)",
        above=0,
        hold="5m",
        summary="Recovery of streamcal at {{ $labels.instance }} makes no progress",
        description=(
            "{{ $labels.instance }} ({{ $labels.job }}) has {{ $value | humanize }} records of its state left to "
            "read, no fewer than ten minutes ago."
        ),
        more=(
            "{{ range printf `time() - streamcal_recovery_started_timestamp_seconds{instance=%q}` $labels.instance | "
            "query }} It began {{ .Value | humanizeDuration }} ago.{{ end }}"
        ),
    ),
    Alert(
        name="StreamcalSealingBlocked",
        severity="warning",
        # Against its own best of the past day: the horizon is different for every model, and no metric.
        value=f"{_SEALING} - min_over_time({_SEALING}[1d])",
        above=2 * 3600,
        hold="15m",
        keep="10m",
        summary="Nothing of {{ $labels.model }} gets sealed",
        description=(
            "The panes of model {{ $labels.model }} that alarms are made of are {{ $value | humanizeDuration }} of "
            "event time further behind than they were today: alarms are blind for that time."
        ),
        more=(
            "{{ range printf `streamcal_sealing_blocked_by_partition{model=%q}` $labels.model | query }} Sealing waits "
            "for partition {{ .Value }}.{{ end }}"
        ),
        dashboard="model",
    ),
    Alert(
        name="StreamcalConsumerLagHigh",
        severity="warning",
        value="streamcal:consumer_lag_seconds",
        above=300,
        hold="10m",
        keep="5m",
        summary="streamcal falls behind on {{ $labels.topic }}",
        description=(
            "What is unread of {{ $labels.topic }} takes {{ $value | humanizeDuration }} at the present pace "
            "({{ $labels.job }}); figures and alarms are late by as much."
        ),
        more=(
            "{{ range printf `sum(streamcal_consumer_lag{topic=%q})` $labels.topic | query }} Unread: "
            "{{ .Value | humanize }} records.{{ end }}"
        ),
    ),
    Alert(
        name="StreamcalCommitSlow",
        severity="warning",
        value="streamcal:commit_duration_seconds:p99_5m",
        above=5,
        hold="10m",
        keep="5m",
        summary="Commits of streamcal are slow ({{ $labels.job }})",
        description=(
            "One commit in a hundred takes {{ $value | humanizeDuration }} or longer ({{ $labels.job }}); near the "
            "session timeout the group takes its partitions away."
        ),
    ),
    Alert(
        name="StreamcalSeriesDropped",
        severity="info",
        value=f"max without ({PER_PROCESS}) (streamcal_series_dropped)",
        above=0,
        hold="30m",
        keep="30m",
        summary="Figures of small segments are left out ({{ $labels.job }})",
        description=(
            "{{ $value | humanize }} series of figures are beyond metrics.max_series and are not exported "
            "({{ $labels.job }}). Alarms are not affected."
        ),
    ),
    Alert(
        name="StreamcalTransformerStale",
        severity="warning",
        # Against the map in force; where the monitor is not in this Prometheus, against the freshest transformer.
        value=(
            f"{_MAP_AGE} - on (model) group_left () (time() - max by (model) "
            "(streamcal_map_promoted_timestamp_seconds))\n"
            f"or {_MAP_AGE} - on (model) group_left () min by (model) ({_MAP_AGE})"
        ),
        above=600,
        hold="10m",
        keep="5m",
        summary="{{ $labels.instance }} serves {{ $labels.model }} through an old map",
        description=(
            "The transformer at {{ $labels.instance }} applies a map of model {{ $labels.model }} that is "
            "{{ $value | humanizeDuration }} older than the one in force."
        ),
        dashboard="model",
    ),
    Alert(
        name="StreamcalTransformerWithoutMap",
        severity="critical",
        # Only while some model has a map: before the first one scores go out as they are, and that is right.
        value="rate(streamcal_transformer_unmapped_total[10m])\nand on () streamcal_map_info",
        above=0,
        hold="10m",
        keep="5m",
        summary="{{ $labels.instance }} passes scores on uncorrected: {{ $labels.reason }}",
        description=(
            "The transformer at {{ $labels.instance }} passes {{ $value | humanize }} scores a second on as they come "
            "({{ $labels.reason }}), while maps are in force."
        ),
    ),
    Alert(
        name="StreamcalTransformerCutOff",
        severity="warning",
        value="streamcal_transformer_stale + 1 - streamcal_transformer_following",
        above=0,
        hold="5m",
        keep="5m",
        summary="{{ $labels.instance }} hears nothing of new maps",
        description=(
            "The transformer at {{ $labels.instance }} no longer follows the maps: its source is silent for longer "
            "than stale_after_s, or the thread that follows it has ended. A map that is taken back stays in "
            "force there."
        ),
        more=(
            "{{ range printf `streamcal_transformer_source_silence_seconds{instance=%q}` $labels.instance | query }} "
            "Silent for {{ .Value | humanizeDuration }}.{{ end }}"
        ),
    ),
    Alert(
        name="StreamcalTransformerProblems",
        severity="warning",
        value="increase(streamcal_transformer_problems_total[15m])",
        above=0,
        hold="5m",
        keep="15m",
        summary="{{ $labels.instance }} cannot take maps: {{ $labels.reason }}",
        description=(
            "The transformer at {{ $labels.instance }} did not take updates of maps in the past 15 minutes "
            "({{ $labels.reason }}); it goes on with what it has."
        ),
    ),
)
