"""Integer counts for other threads: asked for there, copied by the loop, written out by who asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Condition
from typing import Any

import numpy as np

from streamcal.published import WindowCounts
from streamcal.stats.cells import KINDS

__all__ = ["CountsDesk", "counts_document"]


class CountsDesk:
    """Hands counts from the loop's thread to whoever asks, at the loop's next step.

    Guarantees that an answer was taken after the question, and that the loop never waits.

    Parameters
    ----------
    patience_s : float
        Longest wait for an answer; a loop that takes longer is held up by its broker.
    """

    def __init__(self, patience_s: float = 15.0) -> None:
        self._patience_s = patience_s
        self._changed = Condition()
        self._asked = self._answered = 0
        self._counts: Sequence[WindowCounts] = ()

    def ask(self) -> Mapping[str, Any]:
        """The counts per model, as `counts_document` writes them; waits for the loop.

        Raises
        ------
        TimeoutError
            The loop did not come by in time.
        """
        with self._changed:
            self._asked += 1
            mine = self._asked
            if not self._changed.wait_for(lambda: self._answered >= mine, self._patience_s):
                raise TimeoutError(f"the loop did not answer within {self._patience_s:.0f} s")
            counts = self._counts
        return counts_document(counts)

    def answer(self, take: Callable[[], Sequence[WindowCounts]]) -> None:
        """Take the counts if anybody waits for them; called by the loop between two polls."""
        if self._answered == self._asked:
            return
        with self._changed:
            asked = self._asked
        counts = take()
        with self._changed:
            self._counts, self._answered = counts, asked
            self._changed.notify_all()


def counts_document(counts: Sequence[WindowCounts]) -> dict[str, Any]:
    """Per model, ``{"segments": {key: {"cut": cut, "windows": {name: {"raw": {bin: columns}, "served": {}}}}}}``.

    Segment keys and window names are those of the report; only bins with rows are written, with the columns of the
    layout in their order.
    """
    document: dict[str, Any] = {}
    for held in counts:
        segments = document.setdefault(held.model, {"segments": {}})["segments"]
        for place, series in enumerate(held.series):
            entry = segments.setdefault(series.segment, {"cut": series.cut, "windows": {}})
            entry["windows"][held.window] = {
                kind: {int(b): held.counts[place, k, b].tolist() for b in np.flatnonzero(held.counts[place, k, :, 0])}
                for k, kind in enumerate(KINDS)
            }
    return document
