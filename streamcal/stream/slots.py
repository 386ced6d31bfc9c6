"""The slots of the two topics: which fields are read, from where, and of which JSON type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamcal.stream import values
from streamcal.stream.classes import Classes, ClassSets
from streamcal.stream.fields import EventFilter, FieldPath, OutcomeFields, PredictionFields, Scalar
from streamcal.stream.judge import segment_slots
from streamcal.stream.schema import Slot
from streamcal.stream.times import TimeRule

__all__ = [
    "CLASS_RAW",
    "CLASS_SCORE",
    "CLASS_VERSION",
    "any_slot",
    "comparable",
    "filter_slots",
    "outcome_slots",
    "prediction_slots",
    "preselection_slots",
]

CLASS_SCORE: Final = "class_score{}"
CLASS_RAW: Final = "class_raw{}"
CLASS_VERSION: Final = "class_version{}"
"""Slot names of the class at that place of `ClassSets.names`."""


def any_slot(name: str, path: str) -> Slot:
    """A slot that only compares its value and so constrains nothing."""
    return Slot(name, FieldPath.parse(path), Any, wide=True)


def _optional(name: str, path: str | None, kind: Any) -> list[Slot]:
    return [] if path is None else [Slot(name, FieldPath.parse(path), kind)]


def _number(name: str, path: str | None, kind: Any, *, required: bool = False, lossy: bool = True) -> list[Slot]:
    if path is None:
        return []
    return [Slot(name, FieldPath.parse(path), kind, required=required, number=True, lossy=lossy)]


def _time_slots(path: str, time: TimeRule | None) -> list[Slot]:
    if time is None:
        return []
    return [Slot("time", FieldPath.parse(path), time.json_type, required=True, number=time.unit != "rfc3339")]


def prediction_slots(
    fields: PredictionFields,
    time: TimeRule | None,
    dimensions: Sequence[str],
    max_weight: float,
    sets: ClassSets,
) -> list[Slot]:
    """Slots of a prediction with these dimensions; `time` is None when the record tells it.

    Single scores are not read where every model has classes, so that `score` and `scores` may be one path there.

    Raises
    ------
    ValueError
        A path cannot be read, or a dimension has none.
    """
    paths = _segment_paths(fields.segments, dimensions)
    score, raw_score = (fields.score, fields.raw_score) if sets.single_scores else (None, None)
    return [
        Slot("id", FieldPath.parse(fields.id), values.ID_TYPE, required=True),
        *_time_slots(fields.time, time),
        *_number("score", score, values.SCORE_TYPE, required=not sets),
        *_number("raw_score", raw_score, values.SCORE_TYPE),
        *_class_slots(fields, sets.names),
        *_number("map_version", fields.map_version, values.VERSION_TYPE, lossy=False),
        *_number("weight", fields.weight, values.weight_type(max_weight)),
        *_optional("model", fields.model, values.MODEL_TYPE),
        *(
            Slot(name, path, values.SEGMENT_TYPE, wide=True)
            for name, path in zip(segment_slots(len(paths)), paths, strict=True)
        ),
    ]


def _class_slots(fields: PredictionFields, classes: Classes) -> list[Slot]:
    """One slot per class and object; the decoder tells missing classes."""
    objects = (
        (CLASS_SCORE, fields.scores, values.SCORE_TYPE, True),
        (CLASS_RAW, fields.raw_scores, values.SCORE_TYPE, True),
        (CLASS_VERSION, fields.map_versions, values.VERSION_TYPE, False),
    )
    return [
        Slot(slot.format(i), FieldPath.parse(path).child(name), kind, number=True, lossy=lossy)
        for slot, path, kind, lossy in objects
        if path is not None
        for i, name in enumerate(classes)
    ]


def _segment_paths(segments: str | Mapping[str, str] | None, dimensions: Sequence[str]) -> list[FieldPath]:
    if isinstance(segments, str):
        return [FieldPath.parse(segments).child(name) for name in dimensions]
    missing = [name for name in dimensions if name not in (segments or {})]
    if missing:
        raise ValueError(f"no path for the segment dimensions {', '.join(missing)}")
    return [FieldPath.parse((segments or {})[name]) for name in dimensions]


def outcome_slots(fields: OutcomeFields, time: TimeRule | None) -> list[Slot]:
    """Slots of an outcome; `time` is None when the record tells it."""
    return [
        Slot("id", FieldPath.parse(fields.id), values.ID_TYPE, required=True),
        *_time_slots(fields.time, time),
        Slot("label", FieldPath.parse(fields.label), values.LABEL_TYPE),
        *_optional("model", fields.model, values.MODEL_TYPE),
    ]


def filter_slots(pick: EventFilter | None) -> list[Slot]:
    """The slot ``filter`` of a mixed topic."""
    return [] if pick is None else [any_slot("filter", pick.path)]


def preselection_slots(pick: EventFilter, path: str, time: TimeRule | None) -> list[Slot]:
    """The filter's slot, and the time of the events it leaves out, whatever it looks like."""
    slots = filter_slots(pick)
    if time is not None:
        slots.append(Slot("time", FieldPath.parse(path), Any, wide=True, number=time.unit != "rfc3339"))
    return slots


def comparable(path: str, equals: Scalar) -> Scalar:
    """What to compare with: keys and headers are text, so a configured number is too."""
    if FieldPath.parse(path).source == "value":
        return equals
    return values.segment_text(equals) or ""
