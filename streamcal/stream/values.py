"""What one decoded JSON value means as an id, score, label, weight, model or segment.

Each rule returns None (or raises nothing, ever) for a value that breaks it; the caller names the reason.
Booleans are never numbers here, though Python calls them integers.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streamcal.stream.events import MISSING, NO_VERSION
from streamcal.stream.fields import Scalar

__all__ = [
    "BROKEN",
    "ID_TYPE",
    "LABEL_TYPE",
    "MODEL_TYPE",
    "SCORE_TYPE",
    "SEGMENT_TYPE",
    "VERSION_TYPE",
    "LabelRule",
    "class_text",
    "hash_ids",
    "id_text",
    "model_name",
    "same",
    "sampled_out",
    "score",
    "segment_text",
    "version",
    "weight",
    "weight_type",
]

SEGMENT_CHARACTERS: Final = 64
"""A label value longer than this is an identifier or a mistake, and it is stored once per series."""
SCORE_EXCESS: Final = 1e-6
"""Rounding of float32 pipelines lands a few 1e-8 outside [0, 1]; more than this is not a probability."""

_LOWEST_SCORE: Final = -SCORE_EXCESS
_HIGHEST_SCORE: Final = 1.000001
_LARGEST: Final = 2**63 - 1


class _Broken:
    """The one value no rule accepts: part of the path to a field is there but is not an object."""

    __slots__ = ()


BROKEN: Final = _Broken()

# The msgspec types of the fast path. Each admits only what the rule of the same name accepts, except
# labels (any scalar; looked up afterwards), so an event that decodes needs no further test per value.
ID_TYPE: Final[Any] = Annotated[str, Meta(min_length=1)] | int
SCORE_TYPE: Final[Any] = Annotated[float, Meta(ge=_LOWEST_SCORE, le=_HIGHEST_SCORE)]
VERSION_TYPE: Final[Any] = Annotated[int, Meta(ge=0, le=_LARGEST)]
MODEL_TYPE: Final[Any] = str | int
SEGMENT_TYPE: Final[Any] = str | int | float | bool
LABEL_TYPE: Final[Any] = str | int | float | bool


def weight_type(largest: float) -> Any:
    """The msgspec type of a weight in [0, `largest`]."""
    return Annotated[float, Meta(ge=0.0, le=float(largest))]


def id_text(value: object) -> str | None:
    """The id as text: a non-empty string, or an integer in decimal."""
    if isinstance(value, str):
        return value or None
    return str(value) if type(value) is int else None


def score(value: object) -> float | None:
    """A JSON number in [0, 1], give or take `SCORE_EXCESS`; not yet clipped."""
    if type(value) not in (int, float) or not _LOWEST_SCORE <= cast("float", value) <= _HIGHEST_SCORE:
        return None
    return float(cast("float", value))


def weight(value: object, largest: float) -> float | None:
    """A JSON number in [0, `largest`]; absent is 1."""
    if value is None:
        return 1.0
    if type(value) not in (int, float) or not 0.0 <= cast("float", value) <= largest:
        return None
    return float(cast("float", value))


def version(value: object) -> int | None:
    """A whole number from 0 to 2^63 - 1; absent is `NO_VERSION`."""
    if value is None:
        return NO_VERSION
    return value if type(value) is int and 0 <= value <= _LARGEST else None


def model_name(value: object) -> str | None:
    """The name an event gives its model, empty when it gives none; None for another JSON type."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else None


def class_text(value: object) -> str | None:
    """The class a label names: text, or a whole number or boolean as JSON writes it; None for anything else.

    Examples
    --------
    >>> class_text("cat"), class_text(7), class_text(7.0), class_text(True), class_text(0.5)
    ('cat', '7', '7', 'true', None)
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    return str(value) if isinstance(value, int) else None


def segment_text(value: object) -> str | None:
    """Label value of one dimension: NFC, trimmed, cut; numbers and booleans as JSON text; absent is `MISSING`.

    Examples
    --------
    >>> segment_text("  GB "), segment_text(True), segment_text(1.5), segment_text("")
    ('GB', 'true', '1.5', '__missing__')
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value).strip()[:SEGMENT_CHARACTERS].rstrip() or MISSING
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)[:SEGMENT_CHARACTERS]
    return repr(value) if isinstance(value, float) and math.isfinite(value) else None


def same(value: object, equals: Scalar) -> bool:
    """Whether a JSON value is the configured one: numbers by value, booleans only with booleans."""
    return isinstance(value, bool) is isinstance(equals, bool) and value == equals


class LabelRule:
    """What a label may say, for a whole topic.

    By default true, 1, 1.0 and "1" are positive, false, 0, 0.0 and "0" negative. As soon as positive or
    negative values are configured only those are labels. An absent label is positive on request
    (``labels: positives_only``), otherwise no label.

    Invariant: `one` and `many` agree, and neither takes a boolean for a number unless by default.
    """

    __slots__ = ("_plain", "_table")

    def __init__(
        self, positive: Sequence[Scalar] | None, negative: Sequence[Scalar] | None, *, absent_is_positive: bool
    ) -> None:
        self._plain = positive is None and negative is None
        yes: Sequence[Scalar] = (1, True, "1") if self._plain else positive or ()
        no: Sequence[Scalar] = (0, False, "0") if self._plain else negative or ()
        # 1 and True are one dictionary key: right for the default, told apart for configured values.
        self._table: dict[Any, int] = {self._key(v): 0 for v in no} | {self._key(v): 1 for v in yes}
        if absent_is_positive:
            self._table[self._key(None)] = 1

    def _key(self, value: object) -> object:
        return value if self._plain else (isinstance(value, bool), value)

    def one(self, value: object) -> int | None:
        """The label a JSON value stands for, None if it is none."""
        if value is not None and not isinstance(value, str | int | float):
            return None
        return self._table.get(self._key(value))

    def many(self, values: Sequence[Any]) -> NDArray[np.int8]:
        """Labels of scalars and Nones; -1 where a value is no label."""
        get = self._table.get
        if self._plain:
            return np.array([get(v, -1) for v in values], dtype=np.int8)
        return np.array([get((v is True or v is False, v), -1) for v in values], dtype=np.int8)


def hash_ids(ids: Sequence[str | int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """BLAKE2b with a 16-byte digest of each id's UTF-8 text, as two big-endian words (high, low)."""
    # Copying one prepared state costs two thirds of building a keyed constructor call per id.
    copy = hashlib.blake2b(digest_size=16).copy
    digests = []
    for text in ids:
        state = copy()
        state.update(text.encode() if type(text) is str else str(text).encode())
        digests.append(state.digest())
    words = np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)
    return words[0::2].copy(), words[1::2].copy()


def sampled_out(id_hi: NDArray[np.uint64], rate: float) -> NDArray[np.bool_]:
    """Which ids a sample of `rate` leaves out: the same ids in both topics, whatever else the events say."""
    return id_hi.astype(np.float64) / 2.0**64 >= rate
