"""Which maps the predictions of a pane were served by, as the predictions themselves say.

A new map begins to serve when producers pick it up, whoever promoted it: the first pane with a prediction of a higher
version is the first that says anything of the new map, and the evidence begins again there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ServedVersions"]

Ints = NDArray[np.int64]


class ServedVersions:
    """Highest map version by pane, for one model; a function of the predictions log.

    >>> versions = ServedVersions()
    >>> versions.note(np.array([4, 5, 5]), np.array([1, 1, 2]))
    >>> versions.take_until(4), versions.take_until(9), versions.take_until(9)
    (1, 2, None)
    """

    STATE = ("_highest",)

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}

    def note(self, pane: Ints, version: Ints) -> None:
        """Predictions of these panes carried these versions, shape (n,) each."""
        order = np.lexsort((version, pane))
        last = np.append(pane[order][1:] != pane[order][:-1], True)
        for at in order[last].tolist():
            number = int(pane[at])
            self._highest[number] = max(self._highest.get(number, -1), int(version[at]))

    def take_until(self, pane: int) -> int | None:
        """Highest version of the panes up to `pane` that were not taken before; None where they carried none."""
        taken = [self._highest.pop(number) for number in [n for n in self._highest if n <= pane]]
        return max(taken, default=None)
