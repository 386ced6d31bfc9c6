"""Requests to change maps, from whoever asked to the aggregator of this process, and what came of them.

A request is done just before a commit and told of as done only once it is durable. Where the aggregator is lost in
between, to another process or to a log that does not answer, it may have become durable or not: whoever asked is told
so, and finds the truth in the map history. A commit that was put off answers nothing; the next one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from streamcal.errors import StreamcalError
from streamcal.maps.loop import MapRequest
from streamcal.roles.aggregation import Aggregation
from streamcal.runtime.cluster import COUNTS
from streamcal.runtime.monitor import Monitor
from streamcal.serve.requests import RequestQueue, State, Tracked

__all__ = ["MapDesk"]

_NOT_DURABLE: Final = (
    "this process lost the aggregator's role before the change was safe: it may have been made or not\n"
    "  Look at the map history before asking again."
)
_ELSEWHERE: Final = "this process does not aggregate\n  Ask the process of the group that does."
_RECOVERING: Final = "this process is still taking over the aggregator's state\n  Ask again in a moment."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _CarriedOut:
    """A request and what came of it; `by` is None where nothing was changed by it."""

    request: Tracked
    state: State
    detail: str
    by: Aggregation | None = None


class MapDesk:
    """Carries requests out.

    Guarantee: what is told of as done survives this process.

    Parameters
    ----------
    queue : RequestQueue
    monitor : Monitor
    """

    def __init__(self, queue: RequestQueue, monitor: Monitor) -> None:
        self._queue = queue
        self._monitor = monitor
        self._done: list[_CarriedOut] = []

    def take(self) -> None:
        """Do what was asked since the last call, in order; just before a commit."""
        self._done += [self._carry_out(request) for request in self._queue.drain()]

    def answer(self) -> None:
        """Say what came of everything that is settled by now; right after a commit."""
        done, self._done = self._done, []
        for each in done:
            if each.by is None:
                self._tell(each.request, each.state, each.detail)
            elif all(held is not each.by for held in self._monitor.aggregations.values()):
                self._tell(each.request, "refused", _NOT_DURABLE)
            elif each.by.waiting:
                self._done.append(each)
            else:
                self._tell(each.request, each.state, each.detail)

    def _tell(self, request: Tracked, state: State, detail: str) -> None:
        self._queue.settle(request.number, state, detail)
        asked = request.asked
        log.info("map request", what=asked.what, model=asked.model, who=asked.who, state=state, detail=detail)

    def _carry_out(self, request: Tracked) -> _CarriedOut:
        asked = request.asked
        aggregation = next(iter(self._monitor.aggregations.values()), None)
        if aggregation is None:
            recovering = any(role == COUNTS for role, _ in self._monitor.roles.recovering)
            return _CarriedOut(request, "refused", _RECOVERING if recovering else _ELSEWHERE)
        wanted = MapRequest(asked.what, asked.who, asked.why, asked.version, asked.family)
        try:
            attempted = aggregation.ask(asked.model, wanted)
        except StreamcalError as error:
            return _CarriedOut(request, "refused", str(error))
        return _CarriedOut(request, "done" if attempted.done else "refused", attempted.detail, aggregation)
