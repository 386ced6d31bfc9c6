"""The moments of event time at which something happens: full hours for the history, multiples of ``refit.every``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["HOUR_MS", "Repeat", "moments", "next_moment"]

HOUR_MS = 3_600_000


class Repeat(NamedTuple):
    """Something that happens at each UTC multiple of `every_ms`.

    `span_ms` is how long after the start of a pane it can still see the rows in it: beyond, it has nothing to do.
    """

    every_ms: int
    span_ms: int


def next_moment(now_ms: int, repeats: Iterable[Repeat]) -> int:
    """The first moment after `now_ms`."""
    return min((now_ms // repeat.every_ms + 1) * repeat.every_ms for repeat in repeats)


def moments(before_ms: int, now_ms: int, repeats: Iterable[Repeat], panes_ms: Sequence[int]) -> list[int]:
    """Moments in (before, now], ascending, but for those after a jump that could see no row.

    Parameters
    ----------
    panes_ms : sequence of int
        Starts of the panes that hold rows, ascending.

    Examples
    --------
    >>> moments(5, 10**12, [Repeat(10, 20)], [35, 10**11])
    [10, 20, 30, 40, 50, 60, 100000000000, 100000000010, 100000000020, 100000000030]
    """
    found: set[int] = set()
    for every, span in repeats:
        for start, stop in _stretches(before_ms, panes_ms, span + every):
            found.update(range((start // every + 1) * every, min(stop, now_ms) // every * every + 1, every))
    return sorted(found)


def _stretches(before_ms: int, panes_ms: Sequence[int], reach_ms: int) -> list[tuple[int, int]]:
    """Stretches of time (start, stop] that begin with `before_ms` or a pane and go on while rows can be seen."""
    found = [(before_ms, before_ms + reach_ms)]
    for pane in panes_ms:
        start, stop = found[-1]
        if pane > stop:
            found.append((pane - 1, pane + reach_ms))
        else:
            found[-1] = start, max(stop, pane + reach_ms)
    return found
