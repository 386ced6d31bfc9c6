"""How the logs of all tasks keep step: idle partitions follow, and the side that is far ahead waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamcal.roles.task import Task
from streamcal.runtime.back_pressure import AHEAD_BYTES, BackPressure
from streamcal.runtime.cluster import Cluster, Part
from streamcal.runtime.idle import Idle, IdleRules
from streamcal.stream.events import TOPICS

__all__ = ["Pacing", "PacingSettings", "wall_clock_ms"]


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class PacingSettings:
    """What there is to decide by.

    Attributes
    ----------
    idle : IdleRules or None
        When partitions are idle; None: never.
    ahead_bytes, max_pending
        See `BackPressure`.
    wall_ms : callable
        Wall clock.
    """

    idle: IdleRules | None = None
    ahead_bytes: int = AHEAD_BYTES
    max_pending: int | None = None
    wall_ms: Callable[[], int] = wall_clock_ms


class Pacing:
    """Looks at all tasks of a process between two polls.

    Parameters
    ----------
    settings : PacingSettings
    cluster : Cluster
    now : callable
        Monotonic seconds.
    """

    def __init__(self, settings: PacingSettings, cluster: Cluster, now: Callable[[], float]) -> None:
        self._cluster = cluster
        self._idle = None
        if settings.idle is not None:
            self._idle = Idle(settings.idle, cluster.sources, now, settings.wall_ms)
        self._pressure = BackPressure(settings.ahead_bytes, settings.max_pending)

    def heard(self, part: Part) -> None:
        """Records of a part came."""
        if self._idle is not None:
            self._idle.heard(part)

    def opened(self, number: int) -> None:
        """Both topics of a task are read from now on."""
        self._pressure.forget(number)
        for topic in TOPICS:
            self.heard((topic, number))

    def dropped(self, number: int) -> None:
        """A task is not ours any more."""
        self._pressure.forget(number)
        if self._idle is not None:
            self._idle.forget((topic, number) for topic in TOPICS)

    def deaf(self) -> None:
        """The broker does not confirm us, or nothing may be read: no silence is one."""
        if self._idle is not None:
            self._idle.deaf()

    def step(self, tasks: Mapping[int, Task]) -> None:
        """Let idle partitions follow, and the side of a task wait that is too far ahead.

        Raises
        ------
        StateLimitError
            Too many predictions wait for release.
        """
        if self._idle is not None:
            self._idle.listen()
        if not tasks:
            return
        lag = self._cluster.group.lag()
        self._follow(tasks, lag)
        for number, task in tasks.items():
            source = task.source
            topic = self._pressure.decide(number, source.watermarks, lag, source.nbytes, source.pending)
            self._pressure.apply(number, topic, self._pause)

    def _follow(self, tasks: Mapping[int, Task], lag: Mapping[Part, int]) -> None:
        idle = self._idle
        for number, topic in self._pressure.held.items():
            self.heard((topic, number))
        if idle is None or not idle.due():
            return
        standings = idle.standings({number: task.source for number, task in tasks.items()}, lag)
        self._cluster.group.say({part: standing.to_text() for part, standing in standings.items()})
        for advance in idle.advances(standings, self._cluster.group.said):
            tasks[advance.number].advance(advance.topic, advance.to_ms)

    def _pause(self, part: Part, paused: bool) -> None:
        self._cluster.group.pause([part], paused=paused)
