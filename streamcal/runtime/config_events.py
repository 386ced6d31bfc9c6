"""The section `events`: where the fields of an event are and how their values are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, field_validator

from streamcal.runtime.config_fields import (
    ClassNames,
    FieldPath,
    Scalar,
    Section,
    ServiceFile,
    Text,
    field_path,
    problems_below,
)

__all__ = ["EventFilter", "Events", "OutcomeFields", "PredictionFields", "SchemaRegistry", "TimeUnit", "ValueFormat"]

TimeUnit = Literal["ms", "s", "us", "ns", "rfc3339"]
ValueFormat = Literal["json", "avro", "protobuf"]


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


def _object_path(value: str) -> str:
    if value.startswith("$"):
        raise ValueError("must be the path of an object in the value; a key or header is text")
    return value


ObjectPath = Annotated[FieldPath, AfterValidator(_object_path)]


class PredictionFields(Section):
    """Where the fields of a prediction are; null for a field that is not read."""

    format: ValueFormat | None = None
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
    scores: ObjectPath = "scores"
    raw_scores: ObjectPath | None = "raw_scores"
    map_versions: ObjectPath | None = "map_versions"


LabelValues = Annotated[tuple[Scalar, ...], Field(strict=False, min_length=1)]


class OutcomeFields(Section):
    """Where the fields of an outcome are, and which values mean yes and no."""

    format: ValueFormat | None = None
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


def _registry_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an address like https://registry:8081")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password; they belong in basic_auth_file")
    return value


class SchemaRegistry(Section):
    """Where schemas are found by the id in a value."""

    url: Annotated[Text, AfterValidator(_registry_url)] | None = None
    basic_auth_file: ServiceFile | None = None
    ca_file: ServiceFile | None = None


class Events(Section):
    """How events are decoded."""

    format: ValueFormat = "json"
    key_format: Literal["text", "avro", "protobuf"] = "text"
    prediction: PredictionFields = PredictionFields()
    outcome: OutcomeFields = OutcomeFields()
    classes: ClassNames = ()
    max_weight: Annotated[float, Field(gt=0)] = 1000.0
    sample_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_bytes: Annotated[int, Field(ge=1)] = 1_048_576  # Kafka's own default limit of a message
    schema_registry: SchemaRegistry = SchemaRegistry()

    @field_validator("schema_registry")
    @classmethod
    def _is_there_for_schemas(cls, value: SchemaRegistry, info: ValidationInfo) -> SchemaRegistry:
        sections = (info.data.get(name) for name in ("prediction", "outcome"))
        formats = [getattr(section, "format", None) or info.data.get("format") for section in sections]
        needing = {"avro", "protobuf"} & {*formats, info.data.get("key_format")}
        if value.url is None and needing:
            raise problems_below([("url", f"is required to read {' and '.join(sorted(needing))}")])
        return value

    @property
    def prediction_format(self) -> ValueFormat:
        """What the values of the predictions topic are."""
        return self.prediction.format or self.format

    @property
    def outcome_format(self) -> ValueFormat:
        """What the values of the outcomes topic are."""
        return self.outcome.format or self.format
