"""By how much a part goes beyond what its source said of the same key before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.parts.part import Family, Part, SeriesKey
from streamcal.parts.source_counts import CODES

__all__ = ["Held", "Rows", "difference"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rows:
    """Counts of one key that are new, or taken away.

    Attributes
    ----------
    series : sequence of SeriesKey
    place : int64[m]
        Index into `series` of each row.
    code : int64[m]
        Within the series.
    values : int64[m, K]
    """

    series: Sequence[SeriesKey]
    place: Ints
    code: Ints
    values: Ints


@dataclass(frozen=True, slots=True)
class Held:
    """What a source said last of a key, one cell per series and code; as in `Part`."""

    series: list[SeriesKey]
    place: Ints
    code: Ints
    values: Ints


def difference(family: Family, part: Part, held: Held | None) -> list[Rows]:
    """What is to be added so that `part` is counted instead of `held`; rows of equal code may be in it twice.

    >>> cells = np.array([0, 0]), np.array([3, 5]), np.array([[2], [7]])
    >>> part = Part([(0, ())], *cells, np.array([0]))
    >>> (rows,) = difference("window", part, Held([(0, ())], cells[0][:1], cells[1][:1], np.array([[2]])))
    >>> rows.code.tolist(), rows.values.tolist()
    ([5], [[7]])
    """
    whole = Rows(part.series, part.place, part.code, part.values)
    if held is None:
        return [whole]
    found = _found(family, part, held)
    if found is None:
        return [whole, Rows(held.series, held.place, held.code, -held.values)]
    values = part.values.T.copy()  # by columns, as parts travel: whether any of them changed is seen ten times as fast
    values[:, found] -= held.values.T
    changed = np.flatnonzero(values.any(axis=0))
    return [Rows(part.series, part.place[changed], part.code[changed], values[:, changed].T)]


def _found(family: Family, part: Part, held: Held) -> Ints | slice | None:
    """Where in `part` each cell held is; None unless all are, as is usual: what was counted stays, if only as zero."""
    if held.values.shape[1] != part.values.shape[1]:
        return None
    there = _keys(family, _placed(held, part.series), held.code)
    here = _keys(family, part.place, part.code)
    if np.array_equal(here, there):
        return slice(None)
    found = np.searchsorted(here, there)  # cells ascend; were it otherwise, the next line would tell
    if (found == len(here)).any() or (here[found] != there).any():
        return None
    return found


def _placed(held: Held, series: Sequence[SeriesKey]) -> Ints:
    """Index into `series` of each cell held; after its end where it is not there."""
    if held.series == series:
        return held.place
    index = {key: place for place, key in enumerate(series)}
    places = np.array([index.get(key, len(series)) for key in held.series], dtype=np.int64)
    placed: Ints = places[held.place]
    return placed


def _keys(family: Family, place: Ints, code: Ints) -> Ints:
    """Numbers that are equal where series and code are."""
    return place * CODES[family] + code if family in CODES else code
