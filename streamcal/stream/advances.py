"""Recorded advances of silent logs: which watermark was lifted before which record, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

__all__ = ["Advances"]

_KEPT: Final = 100_000
"""Per log; one a minute for ten weeks is 1.6 MB in a snapshot."""


class Advances:
    """What a recount of the logs has to know beside them.

    Guarantee: lifting each log's watermark to `to_ms` before the record at `offset` leads to the state this belongs to.
    Of several advances before one record the last says it all, since a watermark is only looked at by records of its
    own log or once all is read.

    Attributes
    ----------
    dropped : int
        Advances forgotten, the oldest first: a recount from before them is not exact.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[int, int]]] = {}
        self.dropped = 0

    def add(self, topic: str, offset: int, to_ms: int) -> None:
        """The log of `topic` was lifted to `to_ms` before its record at `offset`."""
        held = self._held.setdefault(topic, [])
        if held and held[-1][0] == offset:
            held[-1] = (offset, to_ms)
            return
        held.append((offset, to_ms))
        if len(held) > _KEPT:
            del held[0]
            self.dropped += 1

    def of(self, topic: str) -> list[tuple[int, int]]:
        """(offset, to_ms), ascending."""
        return list(self._held.get(topic, ()))

    def dump_state(self) -> dict[str, Any]:
        """As columns, for there may be many."""
        held = {topic: np.array(pairs, dtype=np.int64).reshape(-1, 2) for topic, pairs in self._held.items()}
        return {"dropped": self.dropped, "held": held}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        self.dropped = state["dropped"]
        self._held = {topic: [(at, to_ms) for at, to_ms in table.tolist()] for topic, table in state["held"].items()}
