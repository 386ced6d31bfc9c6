"""Row changes as signed contributions to bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.cells import RAW, SERVED, Cells, cell_code
from streamcal.stats.counts import WEIGHTED, contributions
from streamcal.stream.changes import RowChanges

__all__ = ["Scored", "score_kinds", "scored_cells"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scored:
    """Contributions of one score kind: rows of the changes that have it, their bins and signed values."""

    row: Ints
    bins: NDArray[np.intp]
    values: Ints


def score_kinds(changes: RowChanges, width: int) -> tuple[Scored, Scored]:
    """Raw and served contributions of `changes`, `width` columns each; a row without raw score has only the latter."""
    served = _scored(changes, changes.served, np.arange(len(changes)), width)
    if np.array_equal(changes.raw, changes.served):
        return served, served
    return _scored(changes, changes.raw, np.flatnonzero(~np.isnan(changes.raw)), width), served


def scored_cells(series: Ints, raw: Scored, served: Scored) -> tuple[Cells, Ints]:
    """One cell per cut, score kind and row, and the row of each; `series` has shape (cuts, n).

    A row without a series in a cut (-1) has a negative code there.
    """
    kinds = ((RAW, raw), (SERVED, served))
    code = np.concatenate([cell_code(series[:, s.row], kind, s.bins).ravel() for kind, s in kinds])
    values = np.concatenate([np.tile(s.values, (len(series), 1)) for _, s in kinds])
    row = np.concatenate([np.tile(s.row, len(series)) for _, s in kinds])
    return Cells(code, values), row


def _scored(changes: RowChanges, score: NDArray[np.float64], row: Ints, width: int) -> Scored:
    weight = None
    if width == WEIGHTED:
        weight = np.ones(len(row)) if changes.weight is None else changes.weight[row]
    bins, values, _ = contributions(score[row], changes.label[row], weight)
    sign = changes.sign[row]
    if (sign < 0).any():
        values *= sign[:, None]
    return Scored(row, bins, values)
