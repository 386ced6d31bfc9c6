"""Segments of nested cuts, level by level, and the entries of a map document that tell them apart.

Dimensions make a chain of cuts: with country and device, first country, then country and device. A document holds
entries of every level, so that an unseen device of a known country gets what the country has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.compiled import segment_key

__all__ = ["MOST_ENTRIES", "Key", "Levels"]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

Key = tuple[str, ...]
"""Values of a segment, one per dimension of its level."""

MOST_ENTRIES: Final = 10_000
"""Entries of a document."""

MOST_BYTES: Final = 600_000
"""What entries of a document take at most: a record of a topic holds a megabyte unless told otherwise."""

_ENTRY_BYTES: Final = 64
"""Of an entry beside its key: two numbers of 17 digits, and their names."""


class Levels:
    """The segments of every level, coarsest first; nothing stands for the root above them.

    Parameters
    ----------
    dimensions : sequence of str
        At least one.
    finest : sequence of Key
        Distinct; values of all dimensions.

    Attributes
    ----------
    keys : list of sequence of Key
        By level, coarsest first; those above the finest level ascend.
    parents : list of intp arrays
        As `streamcal.maps.pooling.pool` takes them: the finest level first, the last one under the root.

    Examples
    --------
    >>> levels = Levels(["country", "device"], [("GB", "ios"), ("GB", "web"), ("US", "web")])
    >>> levels.keys[0], [parent.tolist() for parent in levels.parents]
    ([('GB',), ('US',)], [[0, 0, 1], [0, 0]])
    """

    def __init__(self, dimensions: Sequence[str], finest: Sequence[Key]) -> None:
        self._dimensions = tuple(dimensions)
        self.keys: list[Sequence[Key]] = [finest]
        self.parents: list[Indices] = []
        for width in range(len(dimensions) - 1, 0, -1):
            coarser = sorted({key[:width] for key in self.keys[0]})
            place = {key: number for number, key in enumerate(coarser)}
            self.parents.append(np.array([place[key[:width]] for key in self.keys[0]], dtype=np.intp))
            self.keys.insert(0, coarser)
        self.parents.append(np.zeros(len(self.keys[0]), dtype=np.intp))

    def __len__(self) -> int:
        return sum(map(len, self.keys))

    def entries(
        self, intercepts: Sequence[Floats], slopes: Sequence[Floats], *, negligible: float, most: int = MOST_ENTRIES
    ) -> dict[str, dict[str, float]]:
        """Entries of a document, those left out that differ too little from what a row gets without them.

        Parameters
        ----------
        intercepts, slopes : sequence of float64 arrays
            By level, coarsest first, without the root: what is added to the logit the family serves, and to its slope.
        negligible : float
            Logits, and changes of slope, up to which an entry may be left out.
        most : int
            Of more entries those are kept that differ most.
        """
        above = np.zeros(1), np.zeros(1)
        found: list[tuple[float, str, dict[str, float]]] = []
        for level, (keys, parent) in enumerate(zip(self.keys, reversed(self.parents), strict=True)):
            given = above[0][parent], above[1][parent]
            gap = np.maximum(np.abs(intercepts[level] - given[0]), np.abs(slopes[level] - given[1]))
            told = gap > negligible
            above = np.where(told, intercepts[level], given[0]), np.where(told, slopes[level], given[1])
            for number in np.flatnonzero(told).tolist():
                key = segment_key(self._dimensions[: level + 1], keys[number])
                found.append((float(gap[number]), key, _entry(above[0][number], above[1][number])))
        kept = _that_fit(found, most)
        return {key: entry for _, key, entry in found if key in kept}


def _that_fit(found: Sequence[tuple[float, str, dict[str, float]]], most: int) -> set[str]:
    """Keys of the entries that differ most, as far as a document holds them."""
    kept, size = set[str](), 0
    for _, key, _ in sorted(found, key=lambda entry: (-entry[0], entry[1]))[:most]:
        size += len(key.encode()) + _ENTRY_BYTES
        if size > MOST_BYTES:
            break
        kept.add(key)
    return kept


def _entry(offset: np.float64, slope: np.float64) -> dict[str, float]:
    return {"offset": float(offset)} if slope == 0.0 else {"offset": float(offset), "slope": 1.0 + float(slope)}
