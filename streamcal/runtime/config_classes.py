"""What holds for models of several classes, over the sections that say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from streamcal.runtime.config_events import Events
from streamcal.runtime.config_sections import Join, ModelOverrides
from streamcal.stream.classes import ClassSets
from streamcal.stream.events import MAX_MODELS

__all__ = ["class_problems", "class_sets", "usual_class_problems"]

_NO_NEGATIVES: Final = (
    "cannot be positives_only where a model has classes: each outcome names one, and no outcome says none"
)


def class_sets(events: Events, models: Mapping[str, ModelOverrides]) -> ClassSets:
    """The classes of every model."""
    own = {name: model.classes for name, model in models.items() if model.classes is not None}
    return ClassSets(events.classes, own)


def usual_class_problems(events: Events, join: Join) -> Iterator[tuple[str, str]]:
    """What is wrong with the section `join`, by key below it."""
    if events.classes and join.labels == "positives_only":
        yield "labels", _NO_NEGATIVES


def class_problems(events: Events, join: Join, models: Mapping[str, ModelOverrides]) -> Iterator[tuple[str, str]]:
    """What is wrong with the section `models`, by key below it."""
    sets = class_sets(events, models)
    rows = sum(map(len, sets.of_model.values())) + len(sets.usual)
    if rows > MAX_MODELS:
        yield "", f"{rows} classes in all; at most {MAX_MODELS} are counted apart"
    for name, model in models.items():
        parent = sets.parent(name)
        if parent is not None:
            yield from _problems_of_class(name, model, parent)
        elif sets.of(name) and (model.labels or join.labels) == "positives_only":
            yield f"{name}.labels", _NO_NEGATIVES


def _problems_of_class(name: str, model: ModelOverrides, parent: str) -> Iterator[tuple[str, str]]:
    for key in ("classes", "filter"):
        if getattr(model, key) is not None:
            yield f"{name}.{key}", f"cannot be set for one class; it belongs to models.{parent}"
    if model.labels == "positives_only":
        yield f"{name}.labels", _NO_NEGATIVES
