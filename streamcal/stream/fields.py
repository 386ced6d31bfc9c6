"""Where the fields of an event are: paths into the JSON value, the record key or its headers.

A path is dotted (``payload.request_id``), ``$key`` (the record key as UTF-8 text) or ``$header.NAME``
(the last header of that name, as UTF-8 text; the name may hold dots).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["EventFilter", "FieldPath", "ModelFilter", "OutcomeFields", "PredictionFields", "Scalar", "TimeUnit"]

Scalar: TypeAlias = str | int | float | bool
TimeUnit: TypeAlias = Literal["ms", "s", "us", "ns", "rfc3339"]


@dataclass(frozen=True, slots=True)
class FieldPath:
    """One parsed path.

    Attributes
    ----------
    source : {"value", "key", "header"}
    parts : tuple of str
        Object keys from the root (value), the header's name (header), nothing (key).
    """

    source: Literal["value", "key", "header"]
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Read a path as the configuration writes it.

        Raises
        ------
        ValueError
            Empty path or part, or an unknown ``$`` source.

        Examples
        --------
        >>> FieldPath.parse("payload.request_id").parts
        ('payload', 'request_id')
        >>> FieldPath.parse("$header.trace.id")
        FieldPath(source='header', parts=('trace.id',))
        """
        if text == "$key":
            return cls("key", ())
        if text.startswith("$header.") and len(text) > len("$header."):
            return cls("header", (text[len("$header.") :],))
        parts = tuple(text.split("."))
        if text.startswith("$") or not all(parts):
            raise ValueError(f"not a field path: {text!r} (use a.b.c, $key or $header.NAME)")
        return cls("value", parts)

    def child(self, name: str) -> FieldPath:
        """The member `name` of the object this path points to; dots in `name` do not split it.

        Raises
        ------
        ValueError
            This path points to text, which has no members.
        """
        if self.source != "value":
            raise ValueError(f"a record {self.source} is text and has no member {name!r}; give one path per dimension")
        return FieldPath("value", (*self.parts, name))


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Takes the events whose value at `path` is `equals`; booleans equal only booleans, 1 equals 1.0."""

    path: str
    equals: Scalar


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """Gives an event that names no model the name `model` when its value at `path` is `equals`."""

    model: str
    path: str
    equals: Scalar


@dataclass(frozen=True, slots=True)
class PredictionFields:
    """Paths of a prediction's fields; None: the topic has no such field.

    Attributes
    ----------
    time : str
        Unused when `time_source` is ``record``.
    time_unit : {"ms", "s", "us", "ns", "rfc3339"}
    segments : str, mapping or None
        Path of one object that holds every dimension, or dimension name to path.
    scores, raw_scores, map_versions : str or None
        Paths of objects by class, read for models that have classes.
    """

    id: str = "id"
    time: str = "ts"
    time_unit: TimeUnit = "ms"
    time_source: Literal["field", "record"] = "field"
    score: str = "score"
    raw_score: str | None = "raw_score"
    map_version: str | None = "map_version"
    model: str | None = "model"
    segments: str | Mapping[str, str] | None = "segments"
    weight: str | None = "weight"
    scores: str = "scores"
    raw_scores: str | None = "raw_scores"
    map_versions: str | None = "map_versions"


@dataclass(frozen=True, slots=True)
class OutcomeFields:
    """Paths of an outcome's fields and what its label may say.

    Attributes
    ----------
    positive_values, negative_values : tuple or None
        When either is given, only the given values are labels; see `streamcal.stream.values.LabelRule`.
    filter : EventFilter or None
        Picks the outcome events of a mixed topic; others are ignored but still tell the time.
    """

    id: str = "id"
    time: str = "ts"
    time_unit: TimeUnit = "ms"
    time_source: Literal["field", "record"] = "field"
    label: str = "label"
    model: str | None = "model"
    positive_values: tuple[Scalar, ...] | None = None
    negative_values: tuple[Scalar, ...] | None = None
    filter: EventFilter | None = None
