"""Which panes are final: counted once every source partition says that nothing in them can change any more.

A source has sealed the pane [start, end) once its prediction watermark has reached `end` (no prediction of the pane
can still be accepted) and its outcome watermark has passed `end + horizon` (no outcome can still match one).
There is no time-out: a source that stands still holds the panes of its model, and is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["Sealing", "sealed_before"]


def sealed_before(prediction_ms: int, outcome_ms: int, horizon_ms: int, pane_ms: int) -> int:
    """First pane that a source has not sealed.

    Parameters
    ----------
    prediction_ms, outcome_ms : int
        The source's watermarks.
    horizon_ms : int
        Of the model.
    pane_ms : int
        Pane `k` is [k * pane_ms, (k + 1) * pane_ms).

    Examples
    --------
    The outcome watermark has to be beyond the end and the horizon, not at it:

    >>> sealed_before(120_000, 180_000, 60_000, 60_000), sealed_before(120_000, 180_001, 60_000, 60_000)
    (1, 2)
    """
    return min(prediction_ms, outcome_ms - horizon_ms - 1) // pane_ms


class Sealing:
    """What each source partition has sealed, for one model.

    Guarantee: `before` never falls, and no pane below it can still change at any source.

    Parameters
    ----------
    sources : iterable of int
        All source partitions of the model; a pane is used only once each of them has sealed it.
    """

    STATE = ("_before",)

    def __init__(self, sources: Iterable[int]) -> None:
        self._before: dict[int, int | None] = dict.fromkeys(sorted(sources))

    @classmethod
    def from_state(cls, state: Mapping[int, int | None]) -> Sealing:
        """Take up from `state`."""
        sealing = cls(state)
        sealing._before.update(state)
        return sealing

    def state(self) -> dict[int, int | None]:
        """First unsealed pane by source; None where a source has sealed nothing yet."""
        return dict(self._before)

    def seal(self, source: int, before: int) -> None:
        """`source` has sealed every pane below `before`; what it said earlier is never taken back.

        Raises
        ------
        KeyError
            If the source is unknown.
        """
        held = self._before[source]
        self._before[source] = before if held is None else max(held, before)

    @property
    def before(self) -> int | None:
        """Every pane below it may be used; None while a source has sealed nothing."""
        lowest = self.blocking
        return None if lowest is None else self._before[lowest]

    @property
    def blocking(self) -> int | None:
        """The source the next pane waits for, the one furthest behind (of several the lowest); None without sources."""
        return min(self._before, key=self._reach, default=None)

    def _reach(self, source: int) -> float:
        held = self._before[source]
        return float("-inf") if held is None else held
