"""Alerts and recordings as Prometheus rule files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alert import Alert
from recording import Recording

__all__ = ["alert_rules", "recording_rules"]


def recording_rules(recordings: Sequence[Recording]) -> dict[str, Any]:
    """One group: its rules build on one another, and within a group they are evaluated in order."""
    return {"groups": [{"name": "streamcal-recording", "rules": [_recorded(one) for one in recordings]}]}


def alert_rules(groups: Mapping[str, Sequence[Alert]], runbook: str) -> dict[str, Any]:
    """Groups of alerts by name.

    Parameters
    ----------
    groups : mapping
    runbook : str
        Address of the runbook, before the ``#``.
    """
    return {
        "groups": [
            {"name": f"streamcal-{name}", "rules": [_rule(alert, runbook) for alert in alerts]}
            for name, alerts in groups.items()
        ]
    }


def _recorded(recording: Recording) -> dict[str, Any]:
    labels = {"labels": recording.labels} if recording.labels else {}
    return {"record": recording.record, "expr": recording.expr, **labels}


def _rule(alert: Alert, runbook: str) -> dict[str, Any]:
    keep = {"keep_firing_for": alert.keep} if alert.keep else {}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.hold,
        **keep,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description + alert.more,
            "runbook_url": f"{runbook}#{alert.anchor}",
        },
    }
