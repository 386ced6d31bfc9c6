"""Sparse counts: cells of one (series, score kind, bin) code each, and panes of cells.

A code is ``(series * 2 + kind) * 284 + bin``; kind 0 is raw, 1 is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.layout import N_BINS

__all__ = [
    "CODES_PER_SERIES",
    "KINDS",
    "RAW",
    "SERVED",
    "Cells",
    "PaneStore",
    "cell_code",
    "reduce_cells",
    "reduce_panes",
    "series_of",
]

RAW, SERVED = 0, 1
KINDS = ("raw", "served")
CODES_PER_SERIES = len(KINDS) * N_BINS
_MOST_PARTS = 8
"""Parts a pane may hold before some are merged."""
_MUCH_LARGER = 4
"""A part so many times the size of all after it is left alone: so many tiny batches do not merge a large pane anew
each time."""

_MANY_ROWS = 2_000
"""From so many rows on sums up to each row take less time, half of it, than a sum of each group."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cells:
    """Counts of some codes: `code` int64 (m,), `values` int64 (m, K)."""

    code: Ints
    values: Ints

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.code.nbytes + self.values.nbytes

    def filled(self) -> Cells:
        """The cells that hold rows (a correction may have emptied one)."""
        held = self.values[:, 0] != 0
        return self if held.all() else Cells(self.code[held], self.values[held])


def cell_code(series: Ints, kind: int, bins: NDArray[np.intp]) -> Ints:
    """Codes of rows: `series` int64 (n,), `bins` (n,)."""
    return (series * 2 + kind) * N_BINS + bins


def series_of(code: Ints) -> Ints:
    """Series of each code."""
    return code // CODES_PER_SERIES


def reduce_cells(code: Ints, values: Ints) -> Cells:
    """Sum the rows of equal code.

    >>> cells = reduce_cells(np.array([5, 3, 5]), np.array([[1], [2], [10]]))
    >>> cells.code.tolist(), cells.values.tolist()
    ([3, 5], [[2], [11]])
    """
    if len(code) < 2:
        return Cells(code, values)
    if (code[1:] > code[:-1]).all():
        return Cells(code, values)
    order = np.argsort(code)  # sums of integers do not mind in which order
    code = code[order]
    starts = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]]))
    return Cells(code[starts], _sums(values.take(order, axis=0), starts))


def reduce_panes(pane: Ints, code: Ints, values: Ints) -> tuple[Ints, Cells]:
    """Sum the rows of equal pane and code; ascending cells with the pane of each.

    >>> panes, cells = reduce_panes(np.array([7, 6, 7]), np.array([1, 1, 1]), np.array([[1], [2], [10]]))
    >>> panes.tolist(), cells.code.tolist(), cells.values.tolist()
    ([6, 7], [1, 1], [[2], [11]])
    """
    if not len(pane):
        return pane, Cells(code, values)
    span = int(code.max()) + 1
    base, relative = _compact(pane, span)
    combined = reduce_cells(relative * span + code, values)
    small = combined.code // span
    return base(small), Cells(combined.code - small * span, combined.values)


class PaneStore:
    """Cells by pane number; adding is exact and order-free, so a pane is a function of its rows."""

    def __init__(self) -> None:
        self._panes: dict[int, list[Cells]] = {}
        self._lowest = 0
        """No pane held is below this."""

    def dump_state(self) -> dict[str, Any]:
        """The cells of all panes, one per pane and code."""
        held = [(pane, self.of_pane(pane)) for pane in self.panes()]
        return {
            "lowest": self._lowest,
            "panes": [pane for pane, _ in held],
            "sizes": [len(cells.code) for _, cells in held],
            "code": np.concatenate([cells.code for _, cells in held]) if held else None,
            "values": np.concatenate([cells.values for _, cells in held]) if held else None,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        self._lowest, self._panes, start = state["lowest"], {}, 0
        for pane, size in zip(state["panes"], state["sizes"], strict=True):
            part = slice(start, start + size)
            self._panes[pane] = [Cells(state["code"][part].copy(), state["values"][part].copy())]
            start += size

    @property
    def nbytes(self) -> int:
        """Bytes of all cells."""
        return sum(part.nbytes for parts in self._panes.values() for part in parts)

    def add(self, pane: Ints, code: Ints, values: Ints) -> tuple[Ints, Cells]:
        """Add rows; returns them reduced to one cell per pane and code, with the pane of each cell."""
        if not len(pane):
            return pane, Cells(code, values)
        panes, cells = reduce_panes(pane, code, values)
        starts = np.flatnonzero(np.concatenate([[True], panes[1:] != panes[:-1]])).tolist()
        for start, stop in zip(starts, [*starts[1:], len(panes)], strict=True):
            self._append(int(panes[start]), Cells(cells.code[start:stop], cells.values[start:stop]))
        return panes, cells

    def between(self, start: int, stop: int) -> Cells | None:
        """All cells of panes start <= pane < stop (codes may repeat), or None."""
        if stop - start < len(self._panes):
            found = [self._panes[pane] for pane in range(start, stop) if pane in self._panes]
        else:
            found = [parts for pane, parts in self._panes.items() if start <= pane < stop]
        parts = [part for held in found for part in held]
        return _joined(parts) if parts else None

    def each(self, start: int, stop: int) -> Iterator[tuple[int, Cells]]:
        """(pane, cells) of the panes start <= pane < stop that hold any, ascending; one cell per code."""
        inside = range(start, stop) if stop - start < len(self._panes) else sorted(self._panes)
        for pane in inside:
            if start <= pane < stop and pane in self._panes:
                yield pane, self.of_pane(pane)

    def drop_before(self, pane: int) -> tuple[Ints, Cells] | None:
        """Forget panes before `pane`; return their cells with the pane of each, or None."""
        if self._panes and pane - self._lowest < len(self._panes):
            old = [held for held in range(self._lowest, pane) if held in self._panes]
        else:
            old = [held for held in self._panes if held < pane]
        self._lowest = max(self._lowest, pane)
        parts = [(held, part) for held in old for part in self._panes.pop(held)]
        if not parts:
            return None
        panes = np.repeat([held for held, _ in parts], [len(part.code) for _, part in parts])
        return panes, _joined([part for _, part in parts])

    def __contains__(self, pane: int) -> bool:
        return pane in self._panes

    def panes(self) -> list[int]:
        """Pane numbers held, ascending."""
        return sorted(self._panes)

    def of_pane(self, pane: int) -> Cells:
        """The cells of one pane, one per code."""
        parts = self._panes[pane]
        if len(parts) > 1:
            parts[:] = [_merged(parts)]
        return parts[0]

    def promote(self, promote: Callable[[Ints], Ints]) -> None:
        """Widen all cells when the stream becomes weighted."""
        for parts in self._panes.values():
            parts[:] = [Cells(part.code, promote(part.values)) for part in parts]

    def _append(self, pane: int, cells: Cells) -> None:
        parts = self._panes.setdefault(pane, [])
        self._lowest = min(self._lowest, pane)
        parts.append(cells)
        if len(parts) > _MOST_PARTS:
            after = np.cumsum([len(part.code) for part in parts[:0:-1]])[::-1]
            start = next((i for i, part in enumerate(parts[:-1]) if len(part.code) <= _MUCH_LARGER * after[i]), None)
            if start is not None:
                parts[start:] = [_merged(parts[start:])]


def _sums(values: Ints, starts: Ints) -> Ints:
    """Sums of the rows from each start up to the next."""
    if len(values) < _MANY_ROWS:
        return np.add.reduceat(values, starts, axis=0)
    stops = np.append(starts[1:], len(values)) - 1
    sums: Ints = np.cumsum(values, axis=0).take(stops, axis=0)  # it may wrap around; differences wrap back
    sums[1:] -= sums[:-1].copy()
    return sums


def _joined(parts: Sequence[Cells]) -> Cells:
    return Cells(np.concatenate([p.code for p in parts]), np.concatenate([p.values for p in parts]))


def _merged(parts: Sequence[Cells]) -> Cells:
    """One cell per code."""
    joined = _joined(parts)
    return reduce_cells(joined.code, joined.values)


def _compact(pane: Ints, span: int) -> tuple[Callable[[Ints], Ints], Ints]:
    """Panes as small numbers, and the way back: less the lowest, or ranks where that times `span` is too large."""
    lowest = int(pane.min())
    if (int(pane.max()) - lowest + 1) * span < 1 << 62:
        return lambda small: small + lowest, pane - lowest
    distinct, rank = np.unique(pane, return_inverse=True)
    return lambda small: distinct[small], rank
