"""The window of everything read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StateLimitError
from streamcal.stats.cells import Cells
from streamcal.stats.windows import add_to_dense

__all__ = ["Everything"]

Ints = NDArray[np.int64]


class Everything:
    """A dense total by code that only grows.

    Parameters
    ----------
    width : int
        Columns per cell.
    bounded : bool
        Whether the input ends. If not, a total too large for its columns is given up: it is absent from then on, for
        a daemon must not end because it ran for a year.
    """

    STATE = ("values", "_given_up")

    def __init__(self, width: int, *, bounded: bool) -> None:
        self.values: Ints = np.zeros((0, width), dtype=np.int64)
        self._bounded = bounded
        self._given_up = False

    def add(self, cells: Cells) -> None:
        """Count cells; raises StateLimitError where bounded input passes the range."""
        if not len(cells.code) or self._given_up:
            return
        try:
            self.values = add_to_dense(self.values, cells)
        except StateLimitError:
            if self._bounded:
                raise
            self._give_up()

    def promote(self, promote: Callable[[Ints], Ints]) -> None:
        """Widen when the stream becomes weighted; raises as `add` does."""
        try:
            self.values = promote(self.values)
        except StateLimitError:
            if self._bounded:
                raise
            self._give_up()
            self.values = promote(self.values)

    def _give_up(self) -> None:
        self._given_up = True
        self.values = self.values[:0].copy()
