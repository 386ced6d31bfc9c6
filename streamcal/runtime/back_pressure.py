"""Which side of a task waits while the other catches up.

What is remembered of a task grows with how far one topic is read ahead of the other. Beyond a limit the side with the
higher watermark waits, as long as there is something unread on the other: reading that is what lets go of what is
remembered. Never both wait, and none where the other side is read to its end: its outcomes may take days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streamcal.errors import StateLimitError
from streamcal.runtime.cluster import Part
from streamcal.stream.events import TOPICS

__all__ = ["AHEAD_BYTES", "BackPressure", "waiting"]

AHEAD_BYTES: Final = 32 * 2**20
"""Of a task: some 300,000 predictions, seconds of work, and little beside the process itself."""


def waiting(
    watermarks: tuple[int, int],
    lag: tuple[int | None, int | None],
    remembered: int,
    limit: int | None,
) -> str | None:
    """The topic that waits, or None.

    Parameters
    ----------
    watermarks : pair of int
        Of predictions and outcomes.
    lag : pair of int or None
        Unread records of both; None: not known.
    remembered, limit : int
        In the same unit, bytes or rows; a limit of None is none.

    >>> waiting((100, 10), (5_000, 70), 11, limit=10)
    'predictions'
    >>> waiting((100, 10), (5_000, 0), 11, limit=10) is None  # the outcomes are read to their end
    True
    >>> waiting((10, 100), (3, 0), 11, limit=10)
    'outcomes'
    >>> waiting((100, 10), (5_000, 70), 10, limit=10) is None
    True
    """
    if limit is None or remembered <= limit or watermarks[0] == watermarks[1]:
        return None
    ahead = 0 if watermarks[0] > watermarks[1] else 1
    return TOPICS[ahead] if lag[1 - ahead] else None


class BackPressure:
    """Decides for all tasks of a process, and remembers who waits.

    Parameters
    ----------
    ahead_bytes : int
        What a task may remember while one side is behind.
    max_pending : int or None
        Predictions of a task that may wait for release, at all.

    Attributes
    ----------
    held : dict of int to str
        The topic that waits, by task.
    """

    def __init__(self, ahead_bytes: int, max_pending: int | None) -> None:
        self._ahead_bytes = ahead_bytes
        self._max_pending = max_pending
        self.held: dict[int, str] = {}

    def decide(
        self, number: int, watermarks: tuple[int, int], lag: Mapping[Part, int], nbytes: int, pending: int
    ) -> str | None:
        """The topic of a task that is to wait, or None.

        Raises
        ------
        StateLimitError
            As many predictions wait as are allowed, and there is nothing to read that could release them.
        """
        behind = (lag.get((TOPICS[0], number)), lag.get((TOPICS[1], number)))
        if self._max_pending is not None and pending > self._max_pending:
            if watermarks[0] > watermarks[1] and behind[1] != 0:
                return TOPICS[0]
            raise _full(number, pending, self._max_pending)
        return waiting(watermarks, behind, nbytes, self._ahead_bytes)

    def apply(self, number: int, topic: str | None, pause: Callable[[Part, bool], None]) -> None:
        """Let `pause` hold a topic of a task back, and let go of the one that waited before."""
        held = self.held.get(number)
        if held == topic:
            return
        if held is not None:
            pause((held, number), False)
            del self.held[number]
        if topic is not None:
            pause((topic, number), True)
            self.held[number] = topic

    def forget(self, number: int) -> None:
        """The parts of a task are opened anew, or gone."""
        self.held.pop(number, None)


def _full(number: int, pending: int, limit: int) -> StateLimitError:
    return StateLimitError(
        f"{pending:,} predictions of partition {number} wait for their outcomes, and join.max_pending is {limit:,}",
        hint="Nothing was dropped, and nothing more is read. Raise join.max_pending (memory is rate x horizon, see "
        "`streamcal check-config`), or see why outcomes do not come; a shorter join.horizon or a lower "
        "events.sample_rate needs `streamcal state rebuild`.",
    )
