"""Counts of every pane, segment, score kind and bin: as a recount has them, and as a fresh reader of the topic does.

Both come as one sorted table, so that hundreds of thousands of rows are compared in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from recount import Recount
from recount_events import Row
from recount_vectors import row_columns_of

from streamcal.parts.mark import Mark, MarkKey
from streamcal.parts.part import Part, StoredKey

__all__ = ["KINDS", "CellTable", "Naming", "counted_afresh", "latest_marks", "recounted"]

Ints = NDArray[np.int64]
KINDS = ("raw", "served")
BINS = 284
COLUMNS = 9


class Naming:
    """Numbers for (model, cut, values), the same for both sides of a comparison."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def of(self, model: str, cut: int, values: Sequence[str]) -> int:
        return self.numbers.setdefault((model, cut, tuple(values)), len(self.numbers))


class CellTable:
    """Cells in order of (pane, series, kind, bin), those that are not zero.

    Parameters
    ----------
    pane, series, code : int64[n]
        A code is kind times bins plus bin; cells named several times are added up.
    values : int64[n, 9]
    """

    def __init__(self, pane: Ints, series: Ints, code: Ints, values: Ints) -> None:
        place = (pane << 32) + series * (2 * BINS) + code
        self.place, index = np.unique(place, return_inverse=True)
        self.values = np.zeros((len(self.place), COLUMNS), dtype=np.int64)
        np.add.at(self.values, index, values)
        held = self.values.any(axis=1)
        self.place, self.values = self.place[held], self.values[held]

    def differences(self, other: CellTable) -> int:
        """Cells that are not the same on both sides."""
        ours = {place: row.tobytes() for place, row in zip(self.place.tolist(), self.values, strict=True)}
        theirs = {place: row.tobytes() for place, row in zip(other.place.tolist(), other.values, strict=True)}
        return sum(ours.get(place) != theirs.get(place) for place in ours.keys() | theirs.keys())

    def totals(self) -> dict[tuple[int, int], list[int]]:
        """Columns per series and code over all panes."""
        within = self.place & ((1 << 32) - 1)
        codes, index = np.unique(within, return_inverse=True)
        sums = np.zeros((len(codes), COLUMNS), dtype=np.int64)
        np.add.at(sums, index, self.values)
        return {divmod(code, 2 * BINS): row for code, row in zip(codes.tolist(), sums.tolist(), strict=True)}


def recounted(truth: Recount, cuts: Sequence[tuple[str, ...]], naming: Naming, *, by_outcome_time: bool) -> CellTable:
    """What the recount says; `cuts` without the empty one."""
    parts = [_of_kind(truth, kind, ((), *cuts), naming, by_outcome_time) for kind in range(len(KINDS))]
    return CellTable(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _of_kind(
    truth: Recount, kind: int, cuts: Sequence[tuple[str, ...]], naming: Naming, by_outcome_time: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    rows = [row for row in truth.rows if _score(row, kind) is not None]
    scores = np.array([_score(row, kind) for row in rows], dtype=np.float64)
    bins, columns = row_columns_of(scores, np.array([row.label for row in rows], dtype=np.int64))
    times = np.array([row.t_o if by_outcome_time else row.t_p for row in rows], dtype=np.int64)
    series = [
        np.array([naming.of(row.model, n, [row.segments[name] for name in cut]) for row in rows], dtype=np.int64)
        for n, cut in enumerate(cuts)
    ]
    again = len(cuts)
    pane = np.tile(times // truth.rules.pane_ms, again)
    return pane, np.concatenate(series), np.tile(kind * BINS + bins, again), np.tile(columns, (again, 1))


def _score(row: Row, kind: int) -> float | None:
    return row.raw if KINDS[kind] == "raw" else row.served


def counted_afresh(records: Iterable[Any], naming: Naming) -> CellTable:
    """What a reader finds who knows nothing but the topic: of every source's part the one of the highest claim."""
    best: dict[Any, tuple[int, bytes | None]] = {}
    for record in records:
        if MarkKey.from_bytes(record.key) is not None:
            continue
        stored = StoredKey.from_bytes(record.key)
        if stored.part.family == "window" and stored.claim >= best.get((stored.source, stored.part), (-1, None))[0]:
            best[stored.source, stored.part] = (stored.claim, record.value)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    for (_, key), (_, value) in best.items():
        if value is not None:
            part = Part.from_bytes(value)
            numbers = np.array([naming.of(key.model, *series) for series in part.series], dtype=np.int64)
            found.append((np.full(len(part.code), key.pane), numbers[part.place], part.code, part.values))
    return CellTable(*(np.concatenate(column) for column in zip(*found, strict=True)))


def latest_marks(records: Iterable[Any]) -> Mapping[int, Mark]:
    """The mark of the highest claim of every source."""
    best: dict[int, tuple[int, bytes]] = {}
    for record in records:
        key = MarkKey.from_bytes(record.key)
        if key is not None and record.value is not None and key.claim >= best.get(key.source, (-1, b""))[0]:
            best[key.source] = (key.claim, record.value)
    return {source: Mark.from_bytes(value) for source, (_, value) in best.items()}
