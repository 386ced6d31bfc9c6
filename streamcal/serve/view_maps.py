"""The map history of a model: what was promoted, refused or rolled back, why, and a picture of each map."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument
from streamcal.serve.corrections import corrections
from streamcal.serve.exposition import label_value
from streamcal.serve.verdict import action_of
from streamcal.serve.view import champion_view
from streamcal.snapshot import MapEntry, ModelSnapshot, Snapshot

__all__ = ["GRID", "corrections_of", "curve", "maps_view"]

_LOGITS: Final = np.linspace(-9.0, 9.0, 73)  # steps of a quarter, from one in 8,000 to as near to 1
GRID: Final = (1.0 / (1.0 + np.exp(-_LOGITS))).round(9).tolist()
"""Raw scores at which maps are drawn, ascending."""

_MOST_CURVES: Final = 2000
_curves: OrderedDict[str, list[float]] = OrderedDict()
_corrections: OrderedDict[str, dict[str, Any] | None] = OrderedDict()

_Made = TypeVar("_Made")


def curve(document: MapDocument) -> list[float]:
    """Served score of `document` at each point of `GRID`, to six digits; corrections per segment left out.

    Raises
    ------
    MapDocumentError
        The document cannot be applied.
    """

    def drawn() -> list[float]:
        served = document.to_map().apply(np.array(GRID))
        return [float(f"{value:.6g}") for value in served.tolist()]

    return _once(_curves, document, drawn)


def corrections_of(document: MapDocument) -> dict[str, Any] | None:
    """What `document` adds for single segments, in short; see `streamcal.serve.corrections`."""
    return _once(_corrections, document, lambda: corrections(document.segments))


def _once(held: OrderedDict[str, _Made], document: MapDocument, make: Callable[[], _Made]) -> _Made:
    """What `make` said of this document the first time; a document never changes under its hash."""
    if document.hash not in held:
        held[document.hash] = make()
        while len(held) > _MOST_CURVES:
            held.popitem(last=False)
    return held[document.hash]


def maps_view(snapshot: Snapshot, model: ModelSnapshot) -> dict[str, Any]:
    """The newest entries of the map history, newest first."""
    champion = None if model.champion is None else model.champion.version
    return {
        "sequence": snapshot.sequence,
        "model": label_value(model.name),
        "champion": champion_view(model.champion),
        "pinned": model.maps.pinned,
        "current": _held(model.maps.champion),
        "candidate": _held(model.maps.candidate),
        "fits": [_fit(family, fitted) for family, fitted in model.maps.fits.items()],
        "raw": GRID,
        "maps": [_attempt(entry, champion) for entry in reversed(model.map_log)],
    }


def _attempt(entry: MapEntry, champion: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "version": entry.version,
        "family": entry.family,
        "action": action_of(entry),
        "reason": entry.reason,
        "trigger": entry.trigger,
        "who": entry.who,
        "why": entry.why,
        "at_ms": entry.at_ms,
        "until_ms": entry.until_ms,
        "attempts": entry.attempts,
        "promoted": entry.promoted,
        "in_force": entry.promoted and entry.version == champion,
    }
    return row | (_document(entry.document) if isinstance(entry.document, MapDocument) else {})


def _held(document: Any) -> dict[str, Any] | None:
    if not isinstance(document, MapDocument):
        return None
    head = {"version": document.version, "family": document.family, "at_ms": document.at_ms}
    return head | _document(document)


def _fit(family: str, fitted: Any) -> dict[str, Any]:
    if isinstance(fitted, str):
        return {"family": family, "reason": fitted}
    return {"family": family, "reason": "", "parameters": fitted.parameters()}


def _document(document: MapDocument) -> dict[str, Any]:
    found: dict[str, Any] = {
        "parent": document.parent,
        "segments": len(document.segments),
        "parameters": msgspec.to_builtins(document.parameters),
        "corrections": corrections_of(document),
        "evidence": _finite(msgspec.to_builtins(document.evidence)),
    }
    if document.fit_window is not None:
        found |= {"fit_from_ms": document.fit_window.from_ms, "fit_to_ms": document.fit_window.to_ms}
    if document.counts is not None:
        found |= {"n": document.counts.n, "positives": document.counts.positives}
    try:
        found["served"] = curve(document)
    except MapDocumentError:  # verified when it was read; a picture is not worth more than its absence
        return found
    return found


def _finite(evidence: Any) -> dict[str, Any] | None:
    """JSON has no infinity; what is not finite is left out."""
    if not isinstance(evidence, dict):
        return None
    return {key: value for key, value in evidence.items() if not isinstance(value, float) or math.isfinite(value)}
