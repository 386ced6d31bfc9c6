"""The moments of event time at which something happens: full hours for the history, multiples of ``refit.every``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["HOUR_MS", "Repeat", "moments", "next_moment"]

HOUR_MS = 3_600_000


class Repeat(NamedTuple):
    """Something that happens at each UTC multiple of `every_ms`.

    `span_ms` is how long after a row it can still see it: beyond, it has nothing to do.
    """

    every_ms: int
    span_ms: int


def next_moment(now_ms: int, repeats: Iterable[Repeat]) -> int:
    """The first moment after `now_ms`."""
    return min((now_ms // repeat.every_ms + 1) * repeat.every_ms for repeat in repeats)


def moments(before_ms: int, now_ms: int, repeats: Iterable[Repeat], last_row_ms: int | None) -> list[int]:
    """Moments in (before, now], ascending, but for those after a jump that could see no row any more.

    Parameters
    ----------
    last_row_ms : int or None
        End of the last pane that holds anything; None where none does.

    Examples
    --------
    >>> moments(5, 10**12, [Repeat(10, 20)], 35)
    [10, 20, 30, 40, 50, 60]
    """
    found: set[int] = set()
    for every, span in repeats:
        seen = before_ms if last_row_ms is None else max(before_ms, last_row_ms)
        last = min(now_ms // every * every, (seen + span) // every * every + every)
        found.update(range((before_ms // every + 1) * every, last + 1, every))
    return sorted(found)
