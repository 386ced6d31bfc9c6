"""Corrections per segment on top of an initial map, shrunk by empirical Bayes; see `streamcal.maps.levels`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StreamcalError
from streamcal.maps.compiled import SegmentTable
from streamcal.maps.families import Map
from streamcal.maps.laplace import Rows
from streamcal.maps.levels import MOST_ENTRIES, Key, Levels
from streamcal.maps.link import logit
from streamcal.maps.segments import pool_rows
from streamcal.runtime.labelled_rows import LabelledRows
from streamcal.stats.layout import N_BINS, bin_index

__all__ = ["segment_table"]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

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
    keys, of_row = _finest(rows)
    levels = Levels(list(rows.segments), keys)
    if len(levels) > MOST_ENTRIES:
        what = f"{len(levels):,} segments are more than {MOST_ENTRIES:,}"
        raise StreamcalError(what, hint="leave out a dimension of --segment")
    merged, segment = _merged(rows, of_row, map_)
    found = pool_rows(merged, segment, merged.logit, levels.parents, root_sd=0.0)
    return levels.entries(found.intercepts[1:], found.slopes[1:], negligible=_NOTHING)


def _finest(rows: LabelledRows) -> tuple[list[Key], Indices]:
    """The segments of the finest cut, and the segment of every row."""
    keys: list[Key] = [()]
    of_row = np.zeros(len(rows.label), dtype=np.intp)
    for dimension in rows.segments.values():
        width = len(dimension.values)
        pairs, of_row = np.unique(of_row * width + dimension.codes, return_inverse=True)
        keys = [(*keys[pair // width], dimension.values[pair % width]) for pair in pairs.tolist()]
    return keys, of_row


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
