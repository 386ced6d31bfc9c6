"""A part: the absolute counts of one source, in one pane, of some segments of one model; its form on the counts topic.

A later part of the same key replaces an earlier one, never adds to it, so that reading one twice changes nothing. The
key holds the claim of its author, because compaction keeps the last record of a key and not the best: of several claims
a reader takes the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StateFormatError
from streamcal.state.packing import pack, unpack
from streamcal.state.trees import recorded

__all__ = ["FAMILIES", "Family", "Part", "PartKey", "SeriesKey", "StoredKey"]

Ints = NDArray[np.int64]
SeriesKey = tuple[int, tuple[str, ...]]
"""Cut number and values of a segment."""

Family = Literal["window", "everything", "fit", "segment", "watch", "cohort", "score"]
FAMILIES: Final[tuple[Family, ...]] = ("window", "everything", "fit", "segment", "watch", "cohort", "score")
"""What is counted apart:

- ``window``: raw and served scores by the configured window time, per series; code: kind and bin
- ``everything``: the same of all rows ever, of whole models, in pane 0
- ``fit``: raw scores in the frozen parts of panes, of whole models; code: step of prediction and bin
- ``segment``: the same rows by segment of the cut whose corrections are fitted; code of `segment_codes`
- ``watch``: served scores by prediction time, per series; code: bin
- ``cohort``: predictions and their labels by cohort, of whole models; code of `CohortLayout`
- ``score``: scores of predictions by slot, per series; code: bin
"""

_FORMAT: Final = 2
_ONE_TABLE: Final = 1
"""The form of before, which is read, too: all columns in one table of 64 bits."""
_COUNTS: Final = 2
"""Columns that count rows, the first of `values`; the others are sums that take all 64 bits."""
_NARROW: Final = [(np.dtype(kind), np.iinfo(kind).max) for kind in (np.int16, np.int32, np.int64)]
_KEY: Final = msgspec.json.Decoder(tuple[Family, str, int, int, int, int])


@recorded
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
            family, model, pane, chunk, source, claim = _KEY.decode(data)
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
        """The record's value: a table of place, code and counts, in few bits, and one of sums; column by column."""
        counts, sums = self.values[:, :_COUNTS].T, self.values[:, _COUNTS:].T
        most = max((int(np.abs(column).max()) for column in (self.place, self.code, counts) if column.size), default=0)
        table = np.empty((2 + len(counts), len(self.code)), next(kind for kind, limit in _NARROW if most <= limit))
        table[0], table[1], table[2:] = self.place, self.code, counts
        return pack([_FORMAT, self.series, self.last_ms.tolist(), self.version, table, sums])

    @classmethod
    def from_bytes(cls, data: bytes) -> Part:
        """Read what `to_bytes` wrote.

        Raises
        ------
        StateFormatError
            Damaged, or of a later release.
        """
        tree = unpack(data)
        if not isinstance(tree, list) or not tree or tree[0] not in (_FORMAT, _ONE_TABLE):
            raise StateFormatError("a record of the counts topic has a form this release does not know")
        try:
            _, series, last_ms, version, table, *sums = tree
            table = np.concatenate([table, *sums], dtype=np.int64)
            return cls(
                series=[(cut, tuple(values)) for cut, values in series],
                place=table[0],
                code=table[1],
                values=table[2:].T,
                last_ms=np.array(last_ms, dtype=np.int64),
                version=version,
            )
        except (ValueError, TypeError, IndexError) as error:
            raise StateFormatError(f"a record of the counts topic is damaged: {error}") from error
