"""Corrections per segment on top of an initial map, shrunk by empirical Bayes.

Dimensions make a chain of nested cuts: with country and device, first country, then country and device. A document
holds entries of every level, so that an unseen device of a known country gets what the country has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StreamcalError
from streamcal.maps.compiled import SegmentTable, segment_key
from streamcal.maps.families import Map
from streamcal.maps.laplace import Rows
from streamcal.maps.link import logit
from streamcal.maps.segments import SegmentOffsets, pool_rows
from streamcal.runtime.labelled_rows import LabelledRows
from streamcal.stats.layout import N_BINS, bin_index

__all__ = ["segment_table"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Indices = NDArray[np.intp]

MOST: Final = 10_000
"""Entries of a document: some 40 bytes each, and a record of a topic holds a megabyte unless told otherwise."""
_NOTHING: Final = 1e-9
"""Logits below which an entry says nothing."""


def segment_table(rows: LabelledRows, map_: Map) -> SegmentTable:
    """Entries of every level with an effect; empty without dimensions.

    Raises
    ------
    StreamcalError
        If there are more segments than a document should hold.
    """
    if not rows.segments:
        return {}
    levels = _levels(rows)
    if sum(len(keys) for keys, _ in levels) > MOST:
        what = f"{sum(len(keys) for keys, _ in levels):,} segments are more than {MOST:,}"
        raise StreamcalError(what, hint="leave out a dimension of --segment")
    merged, segment = _merged(rows, levels[-1][1], map_)
    parents = _parents(levels)
    found = pool_rows(merged, segment, merged.logit, parents, root_sd=0.0)
    if any((1.0 + slopes <= 0.0).any() for slopes in found.slopes):
        found = pool_rows(merged, segment, merged.logit, parents, slopes=False, root_sd=0.0)
    return _entries(levels, found)


def _levels(rows: LabelledRows) -> list[tuple[list[str], Indices]]:
    """For each level, coarsest first: the keys of its segments, and the segment of every row."""
    levels: list[tuple[list[str], Indices]] = []
    names: list[str] = []
    values: list[tuple[str, ...]] = [()]
    of_row = np.zeros(len(rows.label), dtype=np.intp)
    for name, dimension in rows.segments.items():
        names.append(name)
        width = len(dimension.values)
        pairs, of_row = np.unique(of_row * width + dimension.codes, return_inverse=True)
        values = [(*values[pair // width], dimension.values[pair % width]) for pair in pairs.tolist()]
        levels.append(([segment_key(names, value) for value in values], of_row))
    return levels


def _parents(levels: list[tuple[list[str], Indices]]) -> list[Indices]:
    """As `pool` takes them: the finest level first, one root above the coarsest."""
    parents = [np.zeros(len(levels[0][0]), dtype=np.intp)]
    for (_, above), (keys, below) in pairwise(levels):
        parent = np.zeros(len(keys), dtype=np.intp)
        parent[below] = above
        parents.append(parent)
    return parents[::-1]


def _merged(rows: LabelledRows, of_row: Indices, map_: Map) -> tuple[Rows, Indices]:
    """Rows merged by segment and bin, with the mean logit that the map serves them."""
    cell, where = np.unique(of_row * N_BINS + bin_index(rows.score), return_inverse=True)
    heavy = np.ones(len(rows.label)) if rows.weight is None else rows.weight
    # Doubling every weight is no new evidence: weights are scaled to effective rows.
    heavy = heavy * (heavy.sum() / max(float((heavy * heavy).sum()), 1e-300))
    served = heavy * logit(map_.apply(rows.score))
    weight: Floats
    weight, positive, moment = np.array(
        [np.bincount(where, column, len(cell)) for column in (heavy, heavy * rows.label, served)]
    )
    held = weight > 0.0
    merged = Rows(weight[held], positive[held], moment[held] / weight[held])
    return merged, (cell // N_BINS)[held].astype(np.intp)


def _entries(levels: list[tuple[list[str], Indices]], found: SegmentOffsets) -> dict[str, dict[str, float]]:
    table = {}
    for (keys, _), offsets, slopes in zip(levels, found.intercepts[1:], found.slopes[1:], strict=True):
        for key, offset, slope in zip(keys, offsets.tolist(), slopes.tolist(), strict=True):
            entry = {"offset": offset} if slope == 0.0 else {"offset": offset, "slope": 1.0 + slope}
            if abs(offset) > _NOTHING or slope != 0.0:
                table[key] = entry
    return table
