"""When the monitor commits and shows itself: pace, readiness, pictures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import structlog

from streamcal.published import WindowCounts
from streamcal.runtime.loop import Pace, Readers
from streamcal.runtime.map_requests import MapDesk
from streamcal.runtime.monitor import Monitor
from streamcal.serve.live import Recovering

__all__ = ["Running"]

_POLL_S = 0.25
"""Longest wait for records; bounds how late a stop signal or a picture can be."""
_PROGRESS_S = 5.0
"""A recovery is told of so often."""

log = structlog.get_logger(__name__)


class Running:
    """Drives a monitor until stopped.

    Parameters
    ----------
    monitor : Monitor
    readers : Readers
    commit_every_s : float
    session_s : float
        Pictures stop when the group has not confirmed us for so long: another may have taken over.
    desk : MapDesk, optional
        Where requests to change maps are carried out.
    """

    def __init__(
        self,
        monitor: Monitor,
        readers: Readers,
        commit_every_s: float,
        session_s: float,
        desk: MapDesk | None = None,
    ) -> None:
        self._monitor = monitor
        self._readers = readers
        self._commit_pace = Pace(commit_every_s)
        self._commit_every_s = commit_every_s
        self._progress_pace = Pace(_PROGRESS_S)
        self._session_s = session_s
        self._since_s: float | None = None
        self._desk = desk

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Work until `should_stop`; what was joined is durable before it returns."""
        try:
            while not should_stop():
                self._monitor.step(_POLL_S)
                self._tell_readiness()
                self._readers.counts.answer(self._counts)
                if self._commit_pace.due():
                    self._commit()
                    self._show()
        finally:
            self._readers.readiness.not_ready("stopping")
        self._commit()
        self._show()

    def _commit(self) -> None:
        started = time.monotonic()
        if self._desk is not None:
            self._desk.take()
        self._monitor.commit()
        if self._desk is not None:
            self._desk.answer()
        self._readers.commits.observe(time.monotonic() - started)

    def _show(self) -> None:
        """Publish the newest picture; none where the aggregator is elsewhere or may be by now."""
        until_s = self._good_until_s()
        if until_s is not None and time.monotonic() < until_s and (pictures := self._monitor.pictures()):
            self._readers.holder.publish(pictures[0], until_s=until_s)
        else:
            self._readers.holder.withdraw()

    def _good_until_s(self) -> float | None:
        """When what the group last confirmed of us is too old to go by; None: nothing yet."""
        good = self._monitor.last_good_s
        # It confirms with commits: where they are further apart than the session is long, one has to be missed.
        return None if good is None else good + max(self._session_s, 2 * self._commit_every_s)

    def _tell_readiness(self) -> None:
        recovering = self._monitor.roles.recovering
        if recovering:
            self._since_s = self._since_s or time.time()
            remaining = self._monitor.roles.remaining
            reason = "recovering " + ", ".join(f"{role} {n}" for role, n in sorted(recovering))
            self._readers.readiness.recovering(reason, Recovering(self._since_s, remaining))
            if self._progress_pace.due():
                told = {f"{role}[{n}]": records for (role, n), records in sorted(recovering.items())}
                log.info("recovering", records=told, remaining=sum(remaining.values()))
            return
        if self._since_s is not None:
            log.info("all recovered", seconds=round(time.time() - self._since_s, 1))
            self._since_s = None
        if self._monitor.roles.assigned:
            until_s = self._good_until_s() if self._monitor.roles.works else None
            self._readers.readiness.ready(until_s=math.inf if until_s is None else until_s)

    def _counts(self) -> list[WindowCounts]:
        return [held for role in self._monitor.aggregations.values() for held in role.aggregator.published.counts()]
