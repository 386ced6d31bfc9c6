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

__all__ = ["Kind", "MapRequest", "RequestQueue", "Requests", "State", "TooManyRequestsError"]

Kind = Literal["refit", "promote", "rollback", "pin", "unpin"]
State = Literal["waiting", "done", "refused"]

_MOST_WAITING: Final = 100  # a person asks for one thing at a time; more is a script gone wrong
_MOST_KEPT: Final = 1000


class TooManyRequestsError(Exception):
    """More requests are waiting than anybody would ask for."""


@dataclass(frozen=True, slots=True)
class MapRequest:
    """One request.

    Attributes
    ----------
    number : int
        1, 2, ... in this process.
    kind : {"refit", "promote", "rollback", "pin", "unpin"}
    model : str
    version : int or None
        What to promote, roll back to or pin; None: the natural one (the candidate, the parent, the one in force).
    state : {"waiting", "done", "refused"}
    detail : str
        What came of it, in words.
    """

    number: int
    kind: Kind
    model: str
    version: int | None
    state: State = "waiting"
    detail: str = ""


class Requests(Protocol):
    """Where requests go; every method may be called from any thread."""

    def submit(self, kind: Kind, model: str, version: int | None) -> MapRequest:
        """Hand over a request.

        Raises
        ------
        TooManyRequestsError
            Too many are waiting.
        """

    def find(self, number: int) -> MapRequest | None:
        """The request of that number, and what came of it so far; None where there is none (any more)."""


class RequestQueue:
    """`Requests` within the process: `drain` and `settle` are the side of the loop.

    >>> queue = RequestQueue()
    >>> queue.submit("refit", "ctr", None).number
    1
    >>> [request.kind for request in queue.drain()], queue.drain()
    (['refit'], [])
    >>> queue.settle(1, "refused", "no_gain")
    >>> queue.find(1).detail
    'no_gain'
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count(1)
        self._waiting: deque[int] = deque()
        self._known: OrderedDict[int, MapRequest] = OrderedDict()

    def submit(self, kind: Kind, model: str, version: int | None) -> MapRequest:
        """Hand over a request; see `Requests.submit`."""
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                raise TooManyRequestsError
            request = MapRequest(next(self._numbers), kind, model, version)
            self._known[request.number] = request
            self._waiting.append(request.number)
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
            return request

    def find(self, number: int) -> MapRequest | None:
        """The request of that number; see `Requests.find`."""
        with self._lock:
            return self._known.get(number)

    def drain(self) -> list[MapRequest]:
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
