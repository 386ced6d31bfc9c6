"""A part: the absolute counts of one source, in one pane, of some segments of one model; its form on the counts topic.

A later part of the same key replaces an earlier one, never adds to it, so that reading one twice changes nothing. The
key holds the claim of its author, because compaction keeps the last record of a key and not the best: of several claims
a reader takes the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StateFormatError
from streamcal.state.packing import pack, unpack

__all__ = ["FAMILIES", "Family", "Part", "PartKey", "SeriesKey", "StoredKey", "narrowed"]

Ints = NDArray[np.int64]
SeriesKey = tuple[int, tuple[str, ...]]
"""Cut number and values of a segment."""

Family = Literal["window", "everything", "fit", "watch", "cohort", "score"]
FAMILIES: Final[tuple[Family, ...]] = ("window", "everything", "fit", "watch", "cohort", "score")
"""What is counted apart:

- ``window``: raw and served scores by the configured window time, per series; code: kind and bin
- ``everything``: the same of all rows ever, of whole models, in pane 0
- ``fit``: raw scores in the frozen parts of panes, of whole models; code: bin
- ``watch``: served scores by prediction time, per series; code: bin
- ``cohort``: predictions and their labels by cohort, of whole models; code of `CohortLayout`
- ``score``: scores of predictions by slot, per series; code: bin
"""

_FORMAT: Final = 1


class PartKey(NamedTuple):
    """What a part is of."""

    family: Family
    model: str
    pane: int
    chunk: int


class StoredKey(NamedTuple):
    """The key of a record on the counts topic."""

    part: PartKey
    source: int
    claim: int

    def to_bytes(self) -> bytes:
        """The record's key."""
        return msgspec.json.encode([*self.part, self.source, self.claim])

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredKey:
        """Read what `to_bytes` wrote.

        Raises
        ------
        StateFormatError
            The key is of something else.
        """
        try:
            family, model, pane, chunk, source, claim = msgspec.json.decode(
                data, type=tuple[Family, str, int, int, int, int]
            )
        except msgspec.DecodeError as error:
            raise StateFormatError(f"a key of the counts topic cannot be read: {error}") from error
        return cls(PartKey(family, model, pane, chunk), source, claim)


@dataclass(frozen=True, slots=True)
class Part:
    """Absolute counts.

    Attributes
    ----------
    series : sequence of SeriesKey
        Segments present, also those whose cells a correction emptied; a whole model is ``(0, ())``.
    place : int64[n]
        Index into `series` of each cell.
    code : int64[n]
        Within the series; what it stands for depends on the family.
    values : int64[n, K]
    last_ms : int64[S]
        Latest outcome of each series known to the source; empty where the family does not tell.
    version : int or None
        Highest map version that served in the pane (family ``watch``).
    """

    series: Sequence[SeriesKey]
    place: Ints
    code: Ints
    values: Ints
    last_ms: Ints
    version: int | None = None

    def to_bytes(self) -> bytes:
        """The record's value."""
        tree: dict[str, Any] = {
            "format": _FORMAT,
            "series": [[cut, list(values)] for cut, values in self.series],
            "place": narrowed(self.place),
            "code": narrowed(self.code),
            "columns": [narrowed(column) for column in self.values.T],
            "last_ms": self.last_ms,
            "version": self.version,
        }
        return pack(tree)

    @classmethod
    def from_bytes(cls, data: bytes) -> Part:
        """Read what `to_bytes` wrote.

        Raises
        ------
        StateFormatError
            Damaged, or of a later release.
        """
        tree = unpack(data)
        if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
            raise StateFormatError(
                "a record of the counts topic has a form this release does not know",
                hint="Run the release that wrote it, or rebuild the state.",
            )
        columns = [column.astype(np.int64) for column in tree["columns"]]
        return cls(
            series=[(cut, tuple(values)) for cut, values in tree["series"]],
            place=tree["place"].astype(np.int64),
            code=tree["code"].astype(np.int64),
            values=np.stack(columns, axis=1) if columns else np.zeros((len(tree["code"]), 0), dtype=np.int64),
            last_ms=tree["last_ms"],
            version=tree["version"],
        )


def narrowed(column: Ints) -> NDArray[Any]:
    """The column in the narrowest signed integers that hold it."""
    if not len(column):
        return column.astype(np.int8)
    lowest, highest = int(column.min()), int(column.max())
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= lowest and highest <= limits.max:
            return column.astype(kind)
    return column
