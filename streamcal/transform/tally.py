"""A counter that many threads raise without waiting for each other."""

from __future__ import annotations

from threading import get_ident

__all__ = ["Tally"]


class Tally:
    """Counts exactly and takes no lock: each thread raises a number of its own.

    Invariant: only the thread with an identifier writes under it. Identifiers of threads that ended are given to new
    ones, which count on from there, so that memory follows the most threads there were at once.

    Examples
    --------
    >>> tally = Tally()
    >>> tally.add(3)
    >>> tally.value
    3
    """

    __slots__ = ("_of_thread",)

    def __init__(self) -> None:
        self._of_thread: dict[int, int] = {}

    def add(self, count: int) -> None:
        """Raise it by `count`."""
        numbers, thread = self._of_thread, get_ident()
        numbers[thread] = numbers.get(thread, 0) + count

    @property
    def value(self) -> int:
        """What all threads have counted so far."""
        # The list is made in one step of the interpreter, whatever is added meanwhile.
        return sum(list(self._of_thread.values()))
