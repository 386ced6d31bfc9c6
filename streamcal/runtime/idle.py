"""Silent partitions: which are idle, and how far their watermarks follow.

A partition is idle once it is read to its end and has been silent for a while; one that is held back, or that nobody
listened to because something else took long or the broker was away, is not silent. It follows the lowest partition of
its topic that is not idle, in whatever process that is; of those elsewhere it knows what their processes said with
their last commit to the group. What is said may be old: a watermark is then lower than it is by now, and a partition
of which nothing is known holds everyone back. So nothing is advanced too far, only later. Each advance is written
down with the task, so that a recount knows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from streamcal.runtime.cluster import Part
from streamcal.stream.events import TOPICS

__all__ = ["Idle", "IdleRules", "Standing", "targets"]

_EVERY_S: Final = 1.0
"""Between two looks: each advance is a record in the state, and figures are shown once a second."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """How a partition stands.

    Attributes
    ----------
    watermark_ms : int
    idle : bool
    """

    watermark_ms: int
    idle: bool

    def to_text(self) -> str:
        """For the group: what goes along with a committed offset."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> Standing | None:
        """Read what `to_text` wrote; None where it is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            return None


class IdleRules(msgspec.Struct, frozen=True):
    """When partitions are idle, and what then.

    Attributes
    ----------
    timeout_s : float
        Silence of the wall clock after which a partition that is read to its end is idle.
    behind_clock_ms : int or None
        Where a whole topic is idle it follows the wall clock this far behind; None: it stands still.
    steady_ms : int
        By how much the wall clock may run away from the monotonic one before it counts as set.
    """

    timeout_s: float
    behind_clock_ms: int | None = None
    steady_ms: int = 1_000


def targets(
    standings: Mapping[int, Standing], ours: Collection[int], partitions: int, clock_ms: int | None = None
) -> dict[int, int]:
    """How far the watermarks of our idle partitions of one topic are to be lifted.

    Parameters
    ----------
    standings : mapping of int to Standing
        Of all partitions that anything is known of.
    ours : collection of int
    partitions : int
        Of the topic.
    clock_ms : int or None
        Where the topic goes if all of it is idle.

    >>> here = {0: Standing(50, True), 1: Standing(100, False), 2: Standing(80, False)}
    >>> targets(here, [0, 1], 3)
    {0: 80}
    >>> targets(here, [0, 1], 4)
    {}
    >>> targets({0: Standing(50, True), 1: Standing(70, True)}, [0], 2)
    {}
    >>> targets({0: Standing(50, True), 1: Standing(70, True)}, [0], 2, 90)
    {0: 90}
    """
    if len(standings) < partitions:
        return {}
    awake = [standing.watermark_ms for standing in standings.values() if not standing.idle]
    to_ms = min(awake) if awake else clock_ms
    if to_ms is None:
        return {}
    return {number: to_ms for number in ours if standings[number].idle and standings[number].watermark_ms < to_ms}


class Advancing(Protocol):
    """What is joined of a partition number."""

    @property
    def watermarks(self) -> tuple[int, int]:
        """Of predictions and outcomes."""
        ...


@dataclass(frozen=True, slots=True)
class Advance:
    """A watermark that is to be lifted."""

    topic: str
    number: int
    to_ms: int


class Idle:
    """Keeps when each partition was heard of last.

    Parameters
    ----------
    rules : IdleRules
    partitions : int
        Of each topic.
    now : callable
        Monotonic seconds.
    wall_ms : callable
        Wall clock.
    """

    def __init__(self, rules: IdleRules, partitions: int, now: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._partitions = partitions
        self._now = now
        self._wall_ms = wall_ms
        self._heard: dict[Part, float] = {}
        self._looked_s = self._listened_s = now()
        self._began_ms, self._steady_s = wall_ms() - round(now() * 1000), -math.inf

    def heard(self, part: Part) -> None:
        """Records came, or the partition was opened."""
        self._heard[part] = self._now()

    def listen(self) -> None:
        """Records have just been asked for; where that was not done for long, silence begins anew."""
        now, before = self._now(), self._listened_s
        self._listened_s = now
        if now - before > max(_EVERY_S, self._rules.timeout_s / 2):
            self.deaf()

    def deaf(self) -> None:
        """Nothing can be heard, or could until now: silence begins anew."""
        self._heard = dict.fromkeys(self._heard, self._now())

    def forget(self, parts: Iterable[Part]) -> None:
        """These are not ours any more."""
        for part in parts:
            self._heard.pop(part, None)

    def standings(self, tasks: Mapping[int, Advancing], lag: Mapping[Part, int]) -> dict[Part, Standing]:
        """How our partitions stand, to be told to the others."""
        now = self._now()
        found = {}
        for number, task in tasks.items():
            for topic, watermark in zip(TOPICS, task.watermarks, strict=True):
                part = (topic, number)
                silent = lag.get(part) == 0 and now - self._heard.get(part, now) >= self._rules.timeout_s
                found[part] = Standing(watermark, silent)
        return found

    def advances(self, ours: Mapping[Part, Standing], elsewhere: Callable[[], Mapping[Part, str]]) -> list[Advance]:
        """What is to be lifted now; `elsewhere` is asked for what others said only where it matters."""
        found = []
        for topic in TOPICS:
            here = {number: standing for (name, number), standing in ours.items() if name == topic}
            if not any(standing.idle for standing in here.values()):
                continue
            known = here
            if len(here) < self._partitions:
                known = _told(topic, elsewhere()) | here
            found += [Advance(topic, n, to) for n, to in targets(known, here, self._partitions, self._clock()).items()]
        return found

    def due(self) -> bool:
        """Whether it is time to look again."""
        now = self._now()
        if now - self._looked_s < _EVERY_S:
            return False
        self._looked_s = now
        return True

    def _clock(self) -> int | None:
        """Where a topic that is idle as a whole goes to; nowhere while the wall clock has just been set.

        An advance is for good, so a clock that stood wrong for a moment would make the next events late.
        """
        behind_ms, now, wall_ms = self._rules.behind_clock_ms, self._now(), self._wall_ms()
        began_ms = wall_ms - round(now * 1000)
        if abs(began_ms - self._began_ms) > self._rules.steady_ms:
            self._began_ms, self._steady_s = began_ms, now
        if behind_ms is None or now - self._steady_s < self._rules.timeout_s:
            return None
        return wall_ms - behind_ms


def _told(topic: str, said: Mapping[Part, str]) -> dict[int, Standing]:
    found = {}
    for (name, number), text in said.items():
        standing = Standing.from_text(text) if name == topic else None
        if standing is not None:
            found[number] = standing
    return found
