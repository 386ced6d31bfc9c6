"""Recording rules: what alerts and dashboards both need, computed once.

Names follow ``level:metric:operations``; the level is left out (``streamcal:``) as it is the same for all. Every rule
keeps ``job`` (and whatever else tells deployments apart) and drops the labels that name a process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from alert import PER_PROCESS

__all__ = ["RECORDING", "Recording"]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded series; `labels` are set on it."""

    record: str
    expr: str
    says: str
    labels: dict[str, str] = field(default_factory=dict)


def _accepted(topic: str, counter: str, extra: str = "") -> Recording:
    rejected = f'streamcal_events_rejected_total{{topic="{topic}"}}'
    return Recording(
        "streamcal:events_accepted:rate15m",
        f"sum without ({PER_PROCESS}{extra}) (rate({counter}[15m]))\n"
        f"or sum without ({PER_PROCESS}, topic, reason) (rate({rejected}[15m])) * 0",
        f"Accepted {topic} per second; 0 where so far all were rejected.",
        {"topic": topic},
    )


RECORDING: Final = (
    Recording(
        "streamcal:newest_prediction_timestamp_seconds",
        f'max without ({PER_PROCESS}, topic, partition) (streamcal_watermark_timestamp_seconds{{topic="predictions"}})',
        "Event time of the predictions: the clock of everything below, so that a replayed year behaves like the year.",
    ),
    Recording(
        "streamcal:outcomes_behind_seconds",
        "streamcal:newest_prediction_timestamp_seconds\n"
        f"- min without ({PER_PROCESS}, topic, partition)"
        ' (streamcal_watermark_timestamp_seconds{topic="outcomes"})',
        "How far the event time of the slowest outcome partition trails that of the predictions.",
    ),
    Recording(
        "streamcal:sealing_behind_seconds",
        "streamcal:newest_prediction_timestamp_seconds\n"
        f"- ignoring (model) group_right () max without ({PER_PROCESS}) (streamcal_sealed_timestamp_seconds)",
        "How far the last sealed pane trails the predictions; the horizon, the disorder and a pane where all is well.",
    ),
    Recording(
        "streamcal:map_age_seconds",
        "streamcal:newest_prediction_timestamp_seconds\n"
        f"- ignoring (model) group_right () max without ({PER_PROCESS}) (streamcal_map_promoted_timestamp_seconds)",
        "Event time since the map in force was promoted.",
    ),
    Recording(
        "streamcal:alarm_evidence:ratio",
        f"max without ({PER_PROCESS}) (streamcal_alarm_evidence)\n"
        f"/ (max without ({PER_PROCESS}) (streamcal_alarm_threshold) > 0)",
        "Evidence as a share of the threshold at which an alarm is raised, both in nats.",
    ),
    _accepted("predictions", "streamcal_predictions_accepted_total", ", model"),
    _accepted("outcomes", "streamcal_outcomes_accepted_total"),
    Recording(
        "streamcal:events_rejected:rate15m",
        f"sum without ({PER_PROCESS}, reason) (rate(streamcal_events_rejected_total[15m]))\n"
        "or streamcal:events_accepted:rate15m * 0",
        "Rejected events per second by topic; 0 while there were none.",
    ),
    Recording(
        "streamcal:events_rejected:ratio_rate15m",
        "streamcal:events_rejected:rate15m\n"
        "/ (streamcal:events_rejected:rate15m + streamcal:events_accepted:rate15m > 0)",
        "Share of the events read that were rejected; absent while nothing is read.",
    ),
    Recording(
        "streamcal:consumer_lag_seconds",
        f"sum without ({PER_PROCESS}, partition) (streamcal_consumer_lag)\n"
        "/ clamp_min(streamcal:events_accepted:rate15m + streamcal:events_rejected:rate15m, 1)\n"
        f"or sum without ({PER_PROCESS}, partition) (streamcal_consumer_lag)",
        "Time to read what is unread at the pace of the past minutes; at least one record a second is assumed, so a "
        "reader that stands still has a large finite number and no infinity.",
    ),
    Recording(
        "streamcal:commit_duration_seconds:p99_5m",
        "histogram_quantile(\n  0.99,\n"
        f"  sum without ({PER_PROCESS}) (rate(streamcal_commit_duration_seconds_bucket[5m]))\n) >= 0",
        "99th percentile of commit times; absent (not NaN) while nothing is committed.",
    ),
)
