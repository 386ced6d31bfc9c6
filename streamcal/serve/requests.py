"""What an operator asks of the maps, on its way from whoever asked to the one thread that decides.

The serving side only hands requests over. The loop drains them between two polls, decides, and says what came of
each; there is one writer, and that is not us.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock
from typing import Final, Literal, Protocol

__all__ = ["Asked", "RequestQueue", "Requests", "State", "TooManyRequestsError", "Tracked", "What"]

What = Literal["refit", "promote", "rollback", "pin", "unpin"]
State = Literal["waiting", "done", "refused"]

_MOST_WAITING: Final = 100  # a person asks for one thing at a time; more is a script gone wrong
_MOST_KEPT: Final = 1000


class TooManyRequestsError(Exception):
    """More requests are waiting than anybody would ask for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asks of the maps of a model.

    Attributes
    ----------
    what : {"refit", "promote", "rollback", "pin", "unpin"}
    model : str
    version : int or None
        To promote or to go back to; None: see `family`; for a roll-back, the parent.
    family : str or None
        To promote: its newest fit.
    who, why : str
        Kept in the map history.
    """

    what: What
    model: str
    version: int | None = None
    family: str | None = None
    who: str = "api"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Tracked:
    """A request and what came of it so far.

    Attributes
    ----------
    number : int
        1, 2, ... in this process.
    asked : Asked
    state : {"waiting", "done", "refused"}
    detail : str
        What came of it, in words.
    """

    number: int
    asked: Asked
    state: State = "waiting"
    detail: str = ""


class Requests(Protocol):
    """Where requests go; every method may be called from any thread."""

    def submit(self, asked: Asked) -> Tracked:
        """Hand over a request.

        Raises
        ------
        TooManyRequestsError
            Too many are waiting.
        """

    def find(self, number: int) -> Tracked | None:
        """The request of that number, and what came of it so far; None where there is none (any more)."""


class RequestQueue:
    """`Requests` within the process: `drain` and `settle` are the side of the loop.

    >>> queue = RequestQueue()
    >>> queue.submit(Asked("refit", "ctr")).number
    1
    >>> [request.asked.what for request in queue.drain()], queue.drain()
    (['refit'], [])
    >>> queue.settle(1, "refused", "no_gain")
    >>> queue.find(1).detail
    'no_gain'
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count(1)
        self._waiting: deque[int] = deque()
        self._known: OrderedDict[int, Tracked] = OrderedDict()

    def submit(self, asked: Asked) -> Tracked:
        """Hand over a request; see `Requests.submit`."""
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                raise TooManyRequestsError
            request = Tracked(next(self._numbers), asked)
            self._known[request.number] = request
            self._waiting.append(request.number)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
            return request

    def find(self, number: int) -> Tracked | None:
        """The request of that number; see `Requests.find`."""
        with self._lock:
            return self._known.get(number)

    def drain(self) -> list[Tracked]:
        """Take everything that waits, in order; called by the loop, which never waits for it."""
        if not self._waiting:
            return []
        with self._lock:
            taken = [self._known[number] for number in self._waiting]
            self._waiting.clear()
            return taken

    def settle(self, number: int, state: State, detail: str = "") -> None:
        """Say what came of a request."""
        with self._lock:
            if number in self._known:
                self._known[number] = replace(self._known[number], state=state, detail=detail)
