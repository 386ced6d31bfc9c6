"""The rules by which one prediction is served.

- The raw score is the event's `raw_score`, else its `score` where it carries no map version. It is calibrated by the
  map in force and becomes `score`; raw score and map version are written beside it. A map is applied to raw scores
  only, so a prediction that was served before is served anew, never twice.
- Model and segments are read as the monitor reads them: from the configured places, by the filters of models where the
  event names none, values normalised by the same rule.
- A model of several classes has `scores`, `raw_scores` and `map_versions` in their place, each an object by class.
- What cannot be served passes as it came, with the reason in a header (`UNSERVED`); a tombstone passes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from streamcal.stream import values
from streamcal.stream.classes import NO_CLASSES, ClassSets
from streamcal.stream.events import Record
from streamcal.stream.fields import ModelFilter, PredictionFields, Scalar
from streamcal.stream.schema import UNREADABLE
from streamcal.stream.slots import comparable
from streamcal.transform.status import NO_MAP
from streamcal.transform.stream.opened import Headers, MalformedError, Opened, Place
from streamcal.transform.stream.rewrite_classes import ApplyClasses, ClassRewriter, UnservedError

__all__ = ["OUTCOMES", "REASONS", "UNSERVED", "Apply", "Rewriter", "Rewritten", "check_places"]

UNSERVED: Final = "streamcal-unserved"
"""Header of a record that passes unserved; its value is one of `REASONS`."""

REASONS: Final = ("malformed", "bad_score", "without_raw", "too_large")
"""Why a record passes unserved: it is no JSON object, or model or segments cannot be read; it has no score in [0, 1];
a map was applied to it and its raw score is unknown; it is longer than `events.max_bytes`, or would be."""

SERVED: Final = "served"
UNMAPPED: Final = "unmapped"
TOMBSTONE: Final = "tombstone"

OUTCOMES: Final = (SERVED, UNMAPPED, TOMBSTONE, *REASONS)
"""Everything that can become of a record."""

Apply = Callable[[float, str, Mapping[str, str] | None], tuple[float, int]]
"""Raw score, model and segments to served score and map version: `CalibrationTransformer.transform`."""

_MOST_CACHED: Final = 65_536
"""Distinct segment objects remembered: far above any dashboard, far below a stream of user ids."""

_SCORE: Final = msgspec.json.Decoder(values.SCORE_TYPE).decode
_VALUES: Final = msgspec.json.Decoder(dict[str, Any]).decode
_ENCODE: Final = msgspec.json.Encoder().encode


class Rewritten(NamedTuple):
    """What becomes of one record.

    Attributes
    ----------
    outcome : str
        ``served``; ``unmapped``: served as it came, for want of a map; ``tombstone``; or one of `REASONS`.
    """

    value: bytes | None
    headers: Headers
    outcome: str


_SINGLE: Final = ("score", "raw_score", "map_version")
_BY_CLASS: Final = ("scores", "raw_scores", "map_versions")


def check_places(fields: PredictionFields, sets: ClassSets = NO_CLASSES) -> list[tuple[str, str]]:
    """What keeps predictions with these fields from being rewritten: pairs of field and what is wrong with it."""
    kinds = [_SINGLE] * sets.single_scores + [_BY_CLASS] * bool(sets)
    return [problem for names in kinds for problem in _problems(fields, names)]


def _problems(fields: PredictionFields, names: Sequence[str]) -> list[tuple[str, str]]:
    problems = []
    seen: dict[str, str] = {}
    for name in names:
        path = getattr(fields, name)
        if path is None:
            problems.append((name, "must name a field or $header.NAME: it is written here"))
        elif path == "$key":
            problems.append((name, "cannot be $key: keys are not rewritten"))
        elif path in seen:
            problems.append((name, f"is the same place as {seen[path]}"))
        else:
            seen[path] = name
    return problems


class Rewriter:
    """Rewrites single records; holds no state but a cache.

    Parameters
    ----------
    fields : PredictionFields
        Passes `check_places`.
    apply : Apply
    dimensions : sequence of str
        Those that must be readable where they are present.
    filters : sequence of ModelFilter
        The first that fits names the model of an event that names none.
    default_model : str
    max_bytes : int
        Longest value written.
    classes : ClassSets
        Models of several classes.
    apply_classes : ApplyClasses or None
        Needed where a model has classes.

    Raises
    ------
    ValueError
        A path cannot be read.
    """

    def __init__(
        self,
        fields: PredictionFields,
        apply: Apply,
        *,
        dimensions: Sequence[str] = (),
        filters: Sequence[ModelFilter] = (),
        default_model: str = "default",
        max_bytes: int,
        classes: ClassSets = NO_CLASSES,
        apply_classes: ApplyClasses | None = None,
    ) -> None:
        # Where a place is None nothing is read or written there: `check_places`.
        self._score = Place.parse(fields.score)
        self._raw = Place.parse(fields.raw_score or "raw_score")
        self._version = Place.parse(fields.map_version or "map_version")
        self._sets = classes
        self._by_class = None if apply_classes is None else ClassRewriter(fields, apply_classes)
        self._model = None if fields.model is None else Place.parse(fields.model)
        self._segments = _segments_reader(fields.segments, frozenset(dimensions))
        self._filters = [(Place.parse(f.path), f.model, comparable(f.path, f.equals)) for f in filters]
        self._default = default_model
        self._apply = apply
        self._max_bytes = max_bytes

    def __call__(self, record: Record) -> Rewritten:
        """Serve one record, or let it pass."""
        if record.value is None:
            return Rewritten(None, record.headers, TOMBSTONE)
        try:
            return self._serve(record, len(record.value))
        except MalformedError:
            reason = "malformed"
        except UnservedError as unserved:
            reason = str(unserved)
        return Rewritten(record.value, [*record.headers, (UNSERVED, reason.encode())], reason)

    def _serve(self, record: Record, size: int) -> Rewritten:
        if size > self._max_bytes:
            raise UnservedError("too_large")
        opened = Opened(record)
        model, segments = self._named(opened), self._segments(opened)
        mapped = self._write_scores(opened, model, segments)
        value = opened.close()
        if len(value) > self._max_bytes:
            raise UnservedError("too_large")
        return Rewritten(value, opened.headers, SERVED if mapped else UNMAPPED)

    def _write_scores(self, opened: Opened, model: str, segments: Mapping[str, str] | None) -> bool:
        """Write what is served; whether a map was applied."""
        if self._by_class is not None:
            if self._sets.parent(model) is not None:
                raise MalformedError(f"{model} is the name of a class")
            if classes := self._sets.of(model):
                return self._by_class.serve(opened, model, classes, segments)
        text, score = self._raw_score(opened)
        served, version = self._apply(score, model, segments)
        opened.put(self._score, _ENCODE(float(served)))
        opened.put(self._raw, text)
        opened.put(self._version, b"%d" % version)
        return version != NO_MAP

    def _named(self, opened: Opened) -> str:
        name = "" if self._model is None else values.model_name(opened.value(self._model))
        if name is None:
            raise MalformedError("the model is neither text nor a whole number")
        return name or (self._by_filter(opened) if self._filters else None) or self._default

    def _by_filter(self, opened: Opened) -> str | None:
        for place, model, equals in self._filters:
            if _equals(opened, place, equals):
                return model
        return None

    def _raw_score(self, opened: Opened) -> tuple[bytes, float]:
        """The raw score as it is written, and as a number in [0, 1]."""
        text = opened.text(self._raw)
        if text is None:
            if opened.text(self._version) is not None:
                raise UnservedError("without_raw")
            text = opened.text(self._score)
        if text is None:
            raise UnservedError("bad_score")
        try:
            score: float = _SCORE(text)
        except UNREADABLE as error:
            raise UnservedError("bad_score") from error
        return bytes(text), min(max(score, 0.0), 1.0)


def _equals(opened: Opened, place: Place, equals: Scalar) -> bool:
    try:
        return values.same(opened.value(place), equals)
    except MalformedError:  # a filter may look into anything
        return False


Segments = Mapping[str, str] | None
_SegmentsReader = Callable[[Opened], Segments]


def _segments_reader(paths: str | Mapping[str, str] | None, needed: frozenset[str]) -> _SegmentsReader:
    if paths is None:
        return lambda _: None
    if isinstance(paths, str):
        return _ObjectOfSegments(Place.parse(paths), needed)
    places = [(dimension, Place.parse(path)) for dimension, path in paths.items()]
    return lambda opened: _normalised({name: opened.value(place) for name, place in places}, frozenset(paths))


class _ObjectOfSegments:
    """Segments from one object, normalised once per distinct text of it."""

    def __init__(self, place: Place, needed: frozenset[str]) -> None:
        self._place = place
        self._needed = needed
        self._known: dict[bytes, Segments] = {}

    def __call__(self, opened: Opened) -> Segments:
        text = opened.text(self._place)
        if text is None:
            return None
        data = bytes(text)
        try:
            return self._known[data]
        except KeyError:
            pass
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        found = self._known[data] = self._read(data)
        return found

    def _read(self, data: bytes) -> Segments:
        try:
            return _normalised(_VALUES(data), self._needed)
        except UNREADABLE as error:
            if not self._needed:
                return None  # the monitor would not look at it either
            raise MalformedError("the segments are no object") from error


def _normalised(given: Mapping[str, Any], needed: frozenset[str]) -> Segments:
    found = {}
    for dimension, value in given.items():
        text = values.segment_text(value)
        if text is not None:
            found[dimension] = text
        elif dimension in needed:
            raise MalformedError(f"dimension {dimension} is neither text, number nor boolean")
    return found
