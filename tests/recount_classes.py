"""Events of models of several classes as the recount takes them: one row per class, each of a model of its own.

Imports nothing of the product. Where the rules leave room:

- An outcome without a model is, per class set that has its label, one row per class for all models with that set, and
  one row for the models with one score if its label is a yes or no. It counts once per row.
- Scores and raw scores are divided by the sum over the classes, added in the order of the configuration.
- A version of any class makes the raw scores of all unknown where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recount_events import Event

Classes = Mapping[str, tuple[str, ...]]
"""Model to its classes; () for one score."""


def expand(events: Sequence[Event], classes: Classes) -> list[Event]:
    """The same events with `rows`, one per class; those that say nothing to anyone are left out."""
    rows = {"p": prediction_rows, "o": outcome_rows}
    return [
        (topic, partition, {"ts": value["ts"], "rows": held}, stamp)
        for topic, partition, value, stamp in events
        if (held := rows[topic](value, classes))
    ]


def prediction_rows(value: Mapping[str, Any], classes: Classes) -> list[dict[str, Any]]:
    model = value.get("model") or "default"
    names = classes[model]
    if not names:
        return [dict(value)]
    served, raw = share(value["scores"], names), share(value.get("raw_scores"), names)
    given = value.get("map_versions") or {}
    versions = {name: given.get(name, value.get("map_version")) for name in names}
    mapped = any(version is not None for version in versions.values())
    rows = []
    for name in names:
        row = {key: held for key, held in value.items() if key in ("id", "ts", "segments", "weight")}
        row |= {"model": f"{model}/{name}", "score": served[name], "map_version": 1 if mapped else None}
        rows.append(row | ({"raw_score": raw[name]} if raw else {}))
    return rows


def share(scores: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    if scores is None:
        return {}
    clipped = {name: min(max(scores[name], 0.0), 1.0) for name in names}
    total = 0.0
    for name in names:
        total += clipped[name]
    return {name: clipped[name] / total for name in names}


def outcome_rows(value: Mapping[str, Any], classes: Classes) -> list[dict[str, Any]]:
    model, label = value.get("model"), str(value["label"])
    rows = []
    for names in {frozenset(held): held for held in classes.values()}.values():
        models = [m for m, held in classes.items() if set(held) == set(names) and model in (None, m)]
        if label in names and models:
            for name in classes[models[-1]]:
                one_each = tuple(f"{m}/{name}" for m in models)
                rows.append({**value, "model": one_each, "label": int(name == label)})
        elif not names and label in ("0", "1") and models:
            rows.append({**value, "model": tuple(models), "label": int(label)})
    return rows
