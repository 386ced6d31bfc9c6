"""The scores of a model of several classes in one prediction: read, served, and written by class.

The rules are those of single scores (`streamcal.transform.stream.rewrite`), for `scores`, `raw_scores` and
`map_versions`; classes that are not configured are left out of what is written to `scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from streamcal.stream import values
from streamcal.stream.classes import Classes
from streamcal.stream.fields import PredictionFields
from streamcal.stream.schema import UNREADABLE
from streamcal.transform.status import NO_MAP
from streamcal.transform.stream.opened import MalformedError, Opened, Place

__all__ = ["ApplyClasses", "ClassRewriter", "UnservedError"]

ApplyClasses = Callable[
    [Mapping[str, float], str, Classes, Mapping[str, str] | None], tuple[Mapping[str, Any], Mapping[str, int]]
]
"""Raw scores, model, classes and segments to served scores and map versions:
`CalibrationTransformer.transform_classes`."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_SCORE: Final = msgspec.json.Decoder(values.SCORE_TYPE | None).decode
_ENCODE: Final = msgspec.json.Encoder().encode


class UnservedError(Exception):
    """Carries the reason why a record passes unserved."""


class ClassRewriter:
    """Rewrites the scores of opened records of models with classes.

    Parameters
    ----------
    fields : PredictionFields
        Passes `check_places`.
    apply : ApplyClasses
    """

    def __init__(self, fields: PredictionFields, apply: ApplyClasses) -> None:
        assert fields.raw_scores is not None, "checked by check_places"
        assert fields.map_versions is not None, "checked by check_places"
        self._scores = Place.parse(fields.scores)
        self._raw = Place.parse(fields.raw_scores)
        self._versions = Place.parse(fields.map_versions)
        self._version = None if fields.map_version is None else Place.parse(fields.map_version)
        self._apply = apply

    def serve(self, opened: Opened, model: str, classes: Classes, segments: Mapping[str, str] | None) -> bool:
        """Write what is served; whether a map of any class was applied.

        Raises
        ------
        UnservedError
        MalformedError
        """
        text, scores = self._raw_scores(opened, classes)
        served, versions = self._apply(scores, model, classes, segments)
        opened.put(self._scores, _ENCODE(served))
        opened.put(self._raw, text)
        opened.put(self._versions, _ENCODE(versions))
        return any(version != NO_MAP for version in versions.values())

    def _raw_scores(self, opened: Opened, classes: Classes) -> tuple[bytes, dict[str, float]]:
        """The raw scores as they are written, and as numbers in [0, 1]."""
        for place in (self._raw, self._scores):
            text = opened.text(place)
            found = {} if text is None else _by_class(text, classes)
            if text is not None and found:
                if len(found) < len(classes) or not any(score > 0.0 for score in found.values()):
                    raise UnservedError("bad_score")
                return bytes(text), found
            if place is self._raw and self._was_mapped(opened):
                raise UnservedError("without_raw")
        raise UnservedError("bad_score")

    def _was_mapped(self, opened: Opened) -> bool:
        versions = opened.text(self._versions)
        own = versions is not None and any(text != b"null" for text in map(bytes, _object(versions).values()))
        return own or (self._version is not None and opened.text(self._version) is not None)


def _object(text: Raw | bytes) -> dict[str, Raw]:
    try:
        return _OBJECT(text)
    except UNREADABLE as error:
        raise MalformedError("what should be an object by class is none") from error


def _by_class(text: Raw | bytes, classes: Classes) -> dict[str, float]:
    """Scores of the classes that have one, in their order."""
    held, found = _object(text), {}
    for name in classes:
        try:
            score = _SCORE(held.get(name, b"null"))
        except UNREADABLE as error:
            raise UnservedError("bad_score") from error
        if score is not None:
            found[name] = min(max(float(score), 0.0), 1.0)
    return found
