"""What the charts of a replay report draw, in the shape of the documents of ``/api/v1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument
from streamcal.serve.trace import TRACED
from streamcal.serve.verdict import action_of
from streamcal.serve.view_maps import GRID, corrections_of, curve
from streamcal.snapshot import MapEntry

__all__ = ["MOST_MAPS", "chart_data", "history_data"]

_MOST_POINTS: Final = 1000  # a wide screen has hardly more columns of pixels
MOST_MAPS: Final = 100
"""Entries of the map history that the page shows: half the newest, half the newest that changed the map."""

_PEAKS: Final = frozenset(("ece", "evidence"))
"""Of many moments drawn as one, the highest value of these stays, so that no peak is hidden; of others the last."""


def chart_data(model: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the charts of one model of a report need."""
    whole = model["segments"].get("all", {"windows": {}})["windows"].get("all", {"raw": {}, "served": {}})
    return {
        "window": {f"{kind}_bins": list(whole[kind].get("bins", ())) for kind in ("raw", "served")},
        "history": history_data(model["history"]),
        "alarms": [
            {"from": alarm["at_ms"], "to": alarm["ended_at_ms"]}
            for alarm in model["alarms"]
            if alarm["segment"] == "all"
        ],
        "histogram": model.get("histogram", {"raw": [], "served": []}),
        "maps": {
            "raw": GRID,
            "maps": _attempts(model["maps"]),
            "total": len(model["maps"]),
        },
    }


def history_data(history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """History entries of the first window as one list per figure, thinned to what can be seen."""
    window = history[0]["window"] if history else ""
    entries = [entry for entry in history if entry["window"] == window]
    size = max(1, -(-len(entries) // _MOST_POINTS))
    parts = [entries[first : first + size] for first in range(0, len(entries), size)]
    at_ms = [part[-1]["at_ms"] for part in parts]
    return {
        "window": window,
        "step_ms": at_ms[-1] - at_ms[-2] if len(at_ms) > 1 else 0,
        "at_ms": at_ms,
        **{
            kind: {name: [_of_part([entry[kind] for entry in part], name) for part in parts] for name in TRACED}
            for kind in ("raw", "served")
        },
        **{
            name: [_of_part([entry.get("alarm", {}) for entry in part], name) for part in parts]
            for name in ("evidence", "threshold")
        },
    }


def _of_part(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [row[name] for row in rows if name in row]
    if not known:
        return None
    value = float(max(known) if name in _PEAKS else known[-1])
    return float(f"{value:.6g}")


def _attempts(maps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The newest entries and the newest changes before them, newest first, in the form of ``/api/v1/maps``."""
    promoted = [entry["version"] for entry in maps if entry["promoted"]]
    half = MOST_MAPS // 2
    changes = [i for i, entry in enumerate(maps) if entry["promoted"] and entry["reason"] != "publication"]
    shown = sorted({*range(max(0, len(maps) - half), len(maps)), *changes[-half:]}, reverse=True)
    return [_attempt(maps[i], promoted[-1] if promoted else None) for i in shown]


def _attempt(entry: Mapping[str, Any], in_force: int | None) -> dict[str, Any]:
    version, promoted = entry.get("version"), entry["promoted"]
    known = MapEntry(
        version=version,
        family=entry["family"],
        at_ms=entry["at_ms"],
        until_ms=entry.get("until_ms", entry["at_ms"]),
        attempts=entry.get("attempts", 1),
        promoted=promoted,
        reason=entry["reason"],
        trigger=entry.get("trigger", "schedule"),
        who=entry.get("who", ""),
        why=entry.get("why", ""),
    )
    row: dict[str, Any] = {
        "version": version,
        "family": known.family,
        "action": action_of(known),
        "reason": known.reason,
        "trigger": known.trigger,
        "who": known.who,
        "why": known.why,
        "at_ms": known.at_ms,
        "until_ms": known.until_ms,
        "attempts": known.attempts,
        "in_force": promoted and version == in_force,
    }
    return row | _drawn(entry.get("document"))


def _drawn(document: Mapping[str, Any] | None) -> dict[str, Any]:
    if document is None:
        return {}
    try:
        found = msgspec.convert(document, MapDocument)
        return {
            "parent": found.parent,
            "n": found.counts.n,
            "positives": found.counts.positives,
            "evidence": {"gain": found.evidence["gain"]} if "gain" in found.evidence else {},
            "corrections": corrections_of(found),
            "served": curve(found),
        }
    except (msgspec.ValidationError, MapDocumentError):
        return {}  # a later release's document, or one cut down: the table still tells of it
