"""Whether a consumer that is behind gets anything: several releases of the client had faults by which it does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["STALLED_S", "ProgressWatch"]

STALLED_S: Final = 60.0
"""Behind for so long without a record: twice the client's longest back-off and a broker's restart."""


class ProgressWatch:
    """Measures how long a consumer has been behind without a record.

    Parameters
    ----------
    stalled_s : float
    now : callable
        Monotonic seconds.

    >>> clock = iter([0.0, 50.0, 110.0, 111.0, 171.0])
    >>> watch = ProgressWatch(60.0, lambda: next(clock))
    >>> watch.stalled(progress=False, behind=True), watch.stalled(progress=True, behind=True)
    (False, False)
    >>> watch.stalled(progress=False, behind=True), watch.stalled(progress=False, behind=True)
    (False, True)
    """

    def __init__(self, stalled_s: float = STALLED_S, now: Callable[[], float] = time.monotonic) -> None:
        self._stalled_s = stalled_s
        self._now = now
        self._since_s = now()

    def begin(self) -> None:
        """An assignment was settled, or a consumer made."""
        self._since_s = self._now()

    def stalled(self, *, progress: bool, behind: bool) -> bool:
        """Whether the consumer is to be made anew; asked after every poll."""
        now = self._now()
        if progress or not behind:
            self._since_s = now
        return now - self._since_s > self._stalled_s
