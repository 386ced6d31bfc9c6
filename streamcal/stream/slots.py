"""The slots of the two topics: which fields are read, from where, and of which JSON type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamcal.stream import values
from streamcal.stream.fields import EventFilter, FieldPath, OutcomeFields, PredictionFields, Scalar
from streamcal.stream.judge import segment_slots
from streamcal.stream.schema import Slot
from streamcal.stream.times import TimeRule

__all__ = ["any_slot", "comparable", "filter_slots", "outcome_slots", "prediction_slots", "preselection_slots"]


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
    fields: PredictionFields, time: TimeRule | None, dimensions: Sequence[str], max_weight: float
) -> list[Slot]:
    """Slots of a prediction with these dimensions; `time` is None when the record tells it.

    Raises
    ------
    ValueError
        A path cannot be read, or a dimension has none.
    """
    paths = _segment_paths(fields.segments, dimensions)
    return [
        Slot("id", FieldPath.parse(fields.id), values.ID_TYPE, required=True),
        *_time_slots(fields.time, time),
        *_number("score", fields.score, values.SCORE_TYPE, required=True),
        *_number("raw_score", fields.raw_score, values.SCORE_TYPE),
        *_number("map_version", fields.map_version, values.VERSION_TYPE, lossy=False),
        *_number("weight", fields.weight, values.weight_type(max_weight)),
        *_optional("model", fields.model, values.MODEL_TYPE),
        *(
            Slot(name, path, values.SEGMENT_TYPE, wide=True)
            for name, path in zip(segment_slots(len(paths)), paths, strict=True)
        ),
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
