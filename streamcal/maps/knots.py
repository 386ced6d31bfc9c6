"""Piecewise linear curves that never fall, evaluated fast and to the same bits for scalars, arrays and languages.

A curve is knots (x, y), both ascending. Piece i holds the arguments with exactly i knots at or below them::

    y = min((x - x0[i]) * slope[i] + y0[i], y1[i])

with (x0, y0) the knot that opens the piece and y1 the value at the one that closes it. Every operation is a basic one
of IEEE 754, so any language gets the same bits; each is monotone even after rounding and the minimum keeps a piece
below the next one, so the curve never falls, not by one unit in the last place. Before the first and after the last
knot the slope is `end_slope`: 0 (constant) or 1 (the change at the end knot is carried on).

Finding the piece is what costs: a binary search over random scores mispredicts at every step, 25 to 100 ns a score.
Here the exponent and the first bits of the odds pick a cell of a table (64 cells to a factor of two) that says how
many knots lie below the cell for certain, and the one or two knots inside it are compared. Curves with more knots
than `_STEPS` in one cell fall back to the search; the pieces found are the same.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.link import HIGHEST, LOWEST, Floats, odds

__all__ = ["CHUNK", "Cells", "Curve", "cells_of", "checked_knots"]

Cells = NDArray[np.intp]

CHUNK: Final = 8192
"""Scores worked on at once: the arrays of a piece of work stay in a core's own cache, worth a factor of 2."""

_SHIFT: Final = 52 - 6
"""Leaves the exponent and 6 bits: 64 cells to a factor of two, at most an eighth of a bin of the layout wide."""
_STEPS: Final = 16
"""Comparisons, some 2 ns each, beyond which the table might not beat the search (50 to 100 ns a score)."""

_FEW: Final = 1024
"""Scores below which one search costs no more than the calls the table takes."""


def cells_of(ratio: Floats) -> Cells:
    """Table cells of odds, ascending with them; counted from the cell of the lowest odds the clip leaves."""
    cells = np.right_shift(ratio.view(np.int64), _SHIFT)
    cells -= _FIRST
    return cells


_ENDS: Final = odds(np.array([LOWEST, HIGHEST])).view(np.int64) >> _SHIFT
_FIRST: Final = int(_ENDS[0])
_N_CELLS: Final = int(_ENDS[1]) - _FIRST + 1


def checked_knots(name: str, knots: Iterable[float], lowest: float, highest: float) -> tuple[float, ...]:
    """The knots as floats.

    Raises
    ------
    ValueError
        If one is not finite, or outside [lowest, highest].
    TypeError
        If they are no list of numbers.
    """
    if isinstance(knots, (str, bytes, float, int)):
        raise TypeError(f"{name} {knots!r} are not a list of numbers")
    floats = tuple(float(knot) for knot in knots)
    for knot in floats:
        if not (math.isfinite(knot) and lowest <= knot <= highest):
            raise ValueError(f"{name} hold {knot!r}, not in [{lowest!r}, {highest!r}]")
    return floats


def _pieces(
    x: tuple[float, ...], y: tuple[float, ...], end_slope: float
) -> tuple[tuple[float, float, float, float], ...]:
    """(x0, y0, slope, y1) of every piece, the two ends included; raises ValueError as `Curve` does."""
    if len(x) != len(y) or not x:
        raise ValueError(f"{len(x)} and {len(y)} knots are no curve")
    pieces = [(x[0], y[0], end_slope, y[0])]
    for (x0, y0), (x1, y1) in pairwise(zip(x, y, strict=True)):
        if not x1 > x0:
            raise ValueError(f"knots do not ascend: {x1!r} follows {x0!r}")
        if not y1 >= y0:
            raise ValueError(f"values fall: {y1!r} follows {y0!r}")
        pieces.append((x0, y0, (y1 - y0) / (x1 - x0), y1))
    pieces.append((x[-1], y[-1], end_slope, y[-1] if end_slope == 0.0 else math.inf))
    if not all(math.isfinite(slope) for _, _, slope, _ in pieces):
        raise ValueError("knots so close together that the slope between them is not finite")
    return tuple(pieces)


class Curve:
    """One curve, with what its evaluation needs; immutable.

    Invariant: `x` ascends strictly, `y` never falls, and no slope overflows.

    Parameters
    ----------
    x, y : tuple of float
        Knots.
    end_slope : float
        Slope before the first and after the last knot, 0 or 1.
    low_cells, high_cells : int[n]
        Table cells no argument above (below) each knot lies below (above): the cell of the knot itself where
        arguments are scores, one rounding wider where they are logits.

    Raises
    ------
    ValueError
        If there is no knot, the lists differ in length, or the invariant does not hold.
    """

    __slots__ = ("_columns", "_next", "_pieces", "_steps", "_table", "end_slope", "x", "y")

    def __init__(
        self, x: tuple[float, ...], y: tuple[float, ...], end_slope: float, low_cells: Cells, high_cells: Cells
    ) -> None:
        self.x, self.y, self.end_slope = x, y, end_slope
        self._pieces = _pieces(x, y, end_slope)
        self._columns = tuple(np.array(column) for column in zip(*self._pieces, strict=True))
        self._next = np.array([*x, math.inf])
        cells = np.arange(_N_CELLS)
        self._table: Cells = np.searchsorted(high_cells, cells, side="left")
        within = np.searchsorted(low_cells, cells, side="right") - self._table
        self._steps = int(within.max())

    def one(self, x: float) -> float:
        """The value at `x`."""
        x0, y0, slope, y1 = self._pieces[bisect_right(self.x, x)]
        y = (x - x0) * slope + y0
        return y if y < y1 else y1  # noqa: FURB136 -- `min` doubles its cost

    def at(self, x: Floats, ratio: Floats) -> Floats:
        """The values at `x`, written over it.

        Parameters
        ----------
        x : float64[n]
        ratio : float64[n]
            The odds the arguments belong to, within the clip.
        """
        piece = self._locate(x, ratio)
        column = np.empty_like(x)
        x0, y0, slope, y1 = self._columns
        # Indices are right by construction; 'clip' only spares numpy a copy.
        x -= x0.take(piece, out=column, mode="clip")
        x *= slope.take(piece, out=column, mode="clip")
        x += y0.take(piece, out=column, mode="clip")
        result: Floats = np.minimum(x, y1.take(piece, out=column, mode="clip"), out=x)
        return result

    def _locate(self, x: Floats, ratio: Floats) -> Cells:
        """How many knots lie at or below each argument."""
        if self._steps > _STEPS or len(x) < _FEW:
            return np.searchsorted(self._next[:-1], x, side="right")
        piece: Cells = self._table.take(cells_of(ratio), mode="clip")
        column = np.empty_like(x)
        for _ in range(self._steps):
            piece += self._next.take(piece, out=column, mode="clip") <= x
        return piece

    def lowest_reaching(self, y: Floats) -> Floats:
        """The smallest x whose value is at least `y`; minus or plus infinity where the ends are constant."""
        xs, ys = np.array(self.x), np.array(self.y)
        i = np.searchsorted(ys, y, side="left")
        j = np.clip(i, 1, len(ys) - 1) if len(ys) > 1 else np.zeros_like(i)
        left = np.maximum(j - 1, 0)
        rise = ys[j] - ys[left]
        share = (y - ys[left]) / np.where(rise > 0, rise, 1.0)
        inner = np.minimum(xs[left] + share * (xs[j] - xs[left]), xs[j])
        below: Floats = y - ys[0] + xs[0] if self.end_slope else np.full_like(inner, -np.inf)
        above: Floats = y - ys[-1] + xs[-1] if self.end_slope else np.full_like(inner, np.inf)
        result: Floats = np.where(i == 0, below, np.where(i == len(ys), above, inner))
        return result
