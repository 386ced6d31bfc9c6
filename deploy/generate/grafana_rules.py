"""Alerts as Grafana-managed rules, for file provisioning.

Query ``A`` is the alert's value, expression ``B`` compares it. What Grafana does without data and on an error is said
for every rule: an empty value means that a gate is closed (``OK``) or, for the daemon itself, that it is gone
(``Alerting``); a query that fails is shown as an error and never as calm (``Error``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from alert import Alert

__all__ = ["DATASOURCE_UID", "FOLDER", "grafana_rules"]

DATASOURCE_UID: Final = "streamcal-prometheus"
"""As in `grafana/provisioning/datasources`."""
FOLDER: Final = "streamcal"
_INTERVAL_MIN: Final = 1
_MAX_UID: Final = 40  # Grafana's limit
_UNIT_MIN: Final = {"m": 1, "h": 60, "d": 1440}


def grafana_rules(groups: Mapping[str, Sequence[Alert]], runbook: str) -> dict[str, Any]:
    """Provisioning document with one group per group of alerts."""
    return {
        "apiVersion": 1,
        "groups": [
            {
                "orgId": 1,
                "name": f"streamcal-{name}",
                "folder": FOLDER,
                "interval": f"{_INTERVAL_MIN}m",
                "rules": [_rule(alert, runbook) for alert in alerts],
            }
            for name, alerts in groups.items()
        ],
    }


def _rule(alert: Alert, runbook: str) -> dict[str, Any]:
    uid = re.sub(r"(?<!^)(?=[A-Z])", "-", alert.name).lower()
    assert len(uid) <= _MAX_UID, uid
    return {
        "uid": uid,
        "title": alert.name,
        "condition": "B",
        "data": [_query(alert), _threshold(alert)],
        "noDataState": alert.no_data,
        "execErrState": "Error",
        "for": alert.hold,
        **_kept(alert),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": _template(alert.summary),
            "description": _template(alert.description),
            "runbook_url": f"{runbook}#{alert.anchor}",
            "__dashboardUid__": f"streamcal-{alert.dashboard}",
        },
        "isPaused": False,
    }


def _kept(alert: Alert) -> dict[str, Any]:
    """Grafana 12.2 and newer; older ones pass over keys they do not know.

    Two settings, since a series that vanishes is another case to Grafana than a value that became fine.
    """
    if not alert.keep:
        return {}
    evaluations = int(alert.keep[:-1]) * _UNIT_MIN[alert.keep[-1]] // _INTERVAL_MIN
    return {"keepFiringFor": alert.keep, "missing_series_evals_to_resolve": evaluations}


def _template(text: str) -> str:
    return text.replace("$value", "$values.A.Value")


def _query(alert: Alert) -> dict[str, Any]:
    model = {"refId": "A", "expr": alert.value, "instant": True, "range": False, "intervalMs": 1000}
    return {
        "refId": "A",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": DATASOURCE_UID,
        "model": model,
    }


def _threshold(alert: Alert) -> dict[str, Any]:
    evaluator = {"type": "gt" if alert.operator == ">" else "lt", "params": [alert.bound]}
    return {
        "refId": "B",
        "relativeTimeRange": {"from": 600, "to": 0},
        "datasourceUid": "__expr__",
        "model": {
            "refId": "B",
            "type": "threshold",
            "expression": "A",
            "conditions": [{"evaluator": evaluator}],
        },
    }
