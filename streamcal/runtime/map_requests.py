"""Requests to change maps, from whoever asked to the aggregator of this process, and what came of them.

A request is done between two polls and told of as done only once it is durable and published.
"""

from __future__ import annotations

from typing import Final

import structlog

from streamcal.errors import StreamcalError
from streamcal.maps.loop import MapRequest
from streamcal.runtime.monitor import Monitor
from streamcal.serve.requests import RequestQueue, State, Tracked

__all__ = ["MapDesk"]

_NOT_DURABLE: Final = "it could not be made durable; look at the map history, then ask again"
_ELSEWHERE: Final = "another process of the group aggregates; ask there"

log = structlog.get_logger(__name__)


class MapDesk:
    """Carries requests out.

    Parameters
    ----------
    queue : RequestQueue
    monitor : Monitor
    """

    def __init__(self, queue: RequestQueue, monitor: Monitor) -> None:
        self._queue = queue
        self._monitor = monitor
        self._done: list[tuple[Tracked, State, str]] = []

    def take(self) -> None:
        """Do what was asked since the last call; just before a commit."""
        for request in self._queue.drain():
            state, detail = self._carry_out(request)
            self._done.append((request, state, detail))

    def answer(self, *, durable: bool) -> None:
        """Say what came of it, once the commit has been made."""
        done, self._done = self._done, []
        for request, state, detail in done:
            lost = state == "done" and not durable
            told: tuple[State, str] = ("refused", _NOT_DURABLE) if lost else (state, detail)
            self._queue.settle(request.number, *told)
            asked = request.asked
            log.info("map request", what=asked.what, model=asked.model, who=asked.who, state=told[0], detail=told[1])

    def _carry_out(self, request: Tracked) -> tuple[State, str]:
        asked = request.asked
        if not self._monitor.aggregations:
            return "refused", _ELSEWHERE
        (aggregation,) = self._monitor.aggregations.values()
        wanted = MapRequest(asked.what, asked.who, asked.why, asked.version, asked.family)
        try:
            aggregation.ask(asked.model, wanted)
        except StreamcalError as error:
            return "refused", str(error)
        loop = aggregation.aggregator.loop(aggregation.names.model(asked.model))
        entry = loop.history[-1] if loop.history else None
        if entry is None:
            return "refused", "nothing to do"
        if entry.promoted or asked.what in ("pin", "unpin"):
            return "done", f"version {entry.version}" if entry.promoted else asked.what
        return "refused", entry.reason
