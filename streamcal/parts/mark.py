"""A mark: how far a source had read when all parts before it on the counts topic were told, and its counters then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from streamcal.errors import StateFormatError
from streamcal.state.packing import pack, unpack
from streamcal.state.trees import recorded
from streamcal.stream.source import Source
from streamcal.stream.tally import Tally

__all__ = ["Mark", "MarkKey", "mark_of", "total"]

_FORMAT: Final = 1
_KEY: Final = msgspec.json.Decoder(tuple[str, int, int])


@dataclass(frozen=True, slots=True, order=True)
class MarkKey:
    """Whose mark, and under which claim."""

    source: int
    claim: int

    def to_bytes(self) -> bytes:
        """The record's key on the counts topic."""
        return msgspec.json.encode(["mark", self.source, self.claim])

    @classmethod
    def from_bytes(cls, data: bytes) -> MarkKey | None:
        """Read what `to_bytes` wrote; None where the key is not that of a mark."""
        if not data.startswith(b'["mark"'):
            return None
        try:
            word, source, claim = _KEY.decode(data)
        except msgspec.DecodeError:
            return None
        return cls(source, claim) if word == "mark" else None


@recorded
@dataclass(frozen=True, slots=True)
class Mark:
    """Absolute, like parts: a later one replaces an earlier one.

    Attributes
    ----------
    watermarks : pair of int
        Of predictions and outcomes, ms.
    offsets : dict of str to int
        Next record of each topic.
    models : sequence of str
        By the model indices of `by_model`.
    counters : dict of str to int
        Those that are not kept per model.
    by_model : dict of str to list of int
    rejected : sequence of (topic, reason, count)
    pending_bytes : int
    gaps : sequence of (topic, records, until_ms)
        Records that were given up, and the event time up to which they may have been.
    lag : dict of str to int
        Records of each topic not read then, where known.
    """

    watermarks: tuple[int, int]
    offsets: dict[str, int]
    models: Sequence[str]
    counters: dict[str, int]
    by_model: dict[str, list[int]]
    rejected: Sequence[tuple[str, str, int]]
    pending_bytes: int
    gaps: Sequence[tuple[str, int, int]] = ()
    lag: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The record's value."""
        tree: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return pack({"format": _FORMAT} | tree)

    @classmethod
    def from_bytes(cls, data: bytes) -> Mark:
        """Read what `to_bytes` wrote.

        Raises
        ------
        StateFormatError
            Damaged, or of a later release.
        """
        tree = unpack(data)
        if not isinstance(tree, dict) or tree.pop("format", None) != _FORMAT:
            raise StateFormatError("a mark on the counts topic has a form this release does not know")
        try:
            tree["watermarks"] = tuple(tree["watermarks"])
            tree["rejected"] = [tuple(entry) for entry in tree["rejected"]]
            tree["gaps"] = [tuple(entry) for entry in tree.get("gaps", ())]
            return cls(**tree)
        except (KeyError, TypeError) as error:
            raise StateFormatError(f"a mark on the counts topic is damaged: {error}") from error


def mark_of(source: Source, lag: Mapping[str, int]) -> Mark:
    """The mark of a source as it stands, `lag` records of each topic not read yet."""
    whole, by_model, rejected = source.tally.told()
    return Mark(
        watermarks=source.watermarks,
        offsets=dict(source.offsets),
        models=list(source.names.models),
        counters=whole,
        by_model=by_model,
        rejected=rejected,
        pending_bytes=source.nbytes,
        lag=dict(lag),
        gaps=[(topic, lost, until_ms) for topic, (lost, until_ms) in source.gaps.items()],
    )


def total(marks: Iterable[Mark], tally: Tally, model_index: dict[str, int]) -> None:
    """Let `tally` say the sum of all marks; `model_index` numbers the models there."""
    tally.clear()
    for mark in marks:
        tally.include(mark.counters, mark.by_model, mark.rejected, [model_index[name] for name in mark.models])
