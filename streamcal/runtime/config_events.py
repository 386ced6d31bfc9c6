"""The section `events`: where the fields of an event are and how their values are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from streamcal.runtime.config_fields import FieldPath, Scalar, Section, field_path, problems_below

__all__ = ["EventFilter", "Events", "OutcomeFields", "PredictionFields", "TimeUnit"]

TimeUnit = Literal["ms", "s", "us", "ns", "rfc3339"]


class EventFilter(Section):
    """Takes the events whose field at `path` equals `equals`."""

    path: FieldPath
    equals: Scalar


def _segments_field(value: Any) -> str | Mapping[str, str]:
    if isinstance(value, str) and value and not value.startswith("$"):
        return field_path(value.strip())
    if not isinstance(value, Mapping) or not value:
        raise ValueError("must be the path of one object, or a mapping of dimension to path")
    problems = []
    for dimension, path in value.items():
        try:
            field_path(path if isinstance(path, str) else "")
        except ValueError as error:
            problems.append((dimension, str(error)))
    if problems:
        raise problems_below(problems)
    return dict(value)


class PredictionFields(Section):
    """Where the fields of a prediction are; null for a field that is not read."""

    id: FieldPath = "id"
    time: FieldPath = "ts"
    time_unit: TimeUnit = "ms"
    time_source: Literal["field", "record"] = "field"
    score: FieldPath = "score"
    raw_score: FieldPath | None = "raw_score"
    map_version: FieldPath | None = "map_version"
    model: FieldPath | None = "model"
    segments: Annotated[str | Mapping[str, str], PlainValidator(_segments_field)] = "segments"
    weight: FieldPath | None = "weight"


LabelValues = Annotated[tuple[Scalar, ...], Field(strict=False, min_length=1)]


class OutcomeFields(Section):
    """Where the fields of an outcome are, and which values mean yes and no."""

    id: FieldPath = "id"
    time: FieldPath = "ts"
    time_unit: TimeUnit = "ms"
    time_source: Literal["field", "record"] = "field"
    label: FieldPath = "label"
    model: FieldPath | None = "model"
    positive_values: LabelValues | None = None
    negative_values: LabelValues | None = None
    filter: EventFilter | None = None

    @field_validator("negative_values")
    @classmethod
    def _is_disjoint(cls, value: tuple[Any, ...] | None, info: ValidationInfo) -> tuple[Any, ...] | None:
        both = [item for item in value or () if item in (info.data.get("positive_values") or ())]
        if both:
            raise ValueError(f"{both[0]!r} is among positive_values too")
        return value


class Events(Section):
    """How events are decoded."""

    prediction: PredictionFields = PredictionFields()
    outcome: OutcomeFields = OutcomeFields()
    max_weight: Annotated[float, Field(gt=0)] = 1000.0
    sample_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_bytes: Annotated[int, Field(ge=1)] = 1_048_576  # Kafka's own default limit of a message
