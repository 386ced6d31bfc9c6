"""Which roles are ours: what the group gives and takes, claims, recoveries, and what is left alone for a while.

A role is a task (a partition number of both inputs) or the aggregation of a partition of the counts topic. It is ours
once its state was claimed and taken up; it is dropped, without a word to anyone, when the group takes it, when another
claims it, or when its log does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import structlog

from streamcal.parts.source_counts import CountSettings
from streamcal.roles.aggregation import Aggregation
from streamcal.roles.task import SNAPSHOT_AFTER, Task
from streamcal.runtime.cluster import COUNTS, Cluster, Part
from streamcal.runtime.pacing import Pacing, PacingSettings
from streamcal.runtime.recovery import Recovery
from streamcal.settings import EngineSettings
from streamcal.state.claimed_log import CHUNK_BYTES, ClaimedLog, FencedError, LogUnavailableError
from streamcal.stream.events import TOPICS
from streamcal.stream.source import SourceSettings

__all__ = ["HeldRoles", "MonitorSettings"]

_RECOVER_S: Final = 0.2
"""Of each step, for recoveries: what is ready goes on beside them."""

_AGAIN_S: Final = 1.0
"""Pause before a role is claimed again whose log did not answer."""

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What the monitor needs to know.

    Attributes
    ----------
    engine, sources, counts
        How events are read, joined and counted.
    about : bytes
        What our claims say: product version and configuration.
    pacing : PacingSettings
        How logs keep step.
    retry_s : float
        How long a role is left alone after another has claimed it.
    chunk_bytes, snapshot_after : int
        Size of a record of the state, and of what a snapshot is worth.
    outbid_s : float
        Between two looks at what others publish as maps.
    """

    engine: EngineSettings
    sources: SourceSettings
    counts: CountSettings
    about: bytes
    pacing: PacingSettings = field(default_factory=PacingSettings)
    retry_s: float = 5.0
    chunk_bytes: int = CHUNK_BYTES
    snapshot_after: int = SNAPSHOT_AFTER
    outbid_s: float = 60.0


class HeldRoles:
    """Roles of one process.

    Parameters
    ----------
    settings : MonitorSettings
    cluster : Cluster
    now : callable
        Monotonic seconds.
    pacing : Pacing
        Told of tasks that come and go.

    Attributes
    ----------
    tasks, aggregations : dict
        Those that are taken up, by number.
    """

    def __init__(self, settings: MonitorSettings, cluster: Cluster, now: Callable[[], float], pacing: Pacing) -> None:
        self._settings = settings
        self._cluster = cluster
        self._now = now
        self._pacing = pacing
        self._generation: int | None = None
        self.tasks: dict[int, Task] = {}
        self.aggregations: dict[int, Aggregation] = {}
        self._recovering: dict[Part, Recovery[Task | Aggregation]] = {}
        self._fenced: dict[Part, float] = {}

    def step(self) -> None:
        """Settle what the group gave or took since the last step, and go on with recoveries."""
        if self._cluster.group.generation != self._generation:
            self._reassign()
        self._claim_again()
        self._recover()

    @property
    def assigned(self) -> bool:
        """Whether the group has said what is ours; nothing, where there are more processes than partitions."""
        return self._generation is not None and self._cluster.group.generation > 0

    @property
    def works(self) -> bool:
        """Whether a role is ours and taken up."""
        return bool(self.tasks or self.aggregations)

    @property
    def recovering(self) -> Mapping[Part, int]:
        """Records read so far by each recovery."""
        return {part: recovery.restored.records for part, recovery in self._recovering.items()}

    @property
    def remaining(self) -> Mapping[int, int]:
        """Records of the state still to be read and applied by each recovery, at most; by partition of its topic."""
        first = {"task": 0, COUNTS: self._cluster.sources}
        return {
            first[role] + number: recovery.restored.remaining
            for (role, number), recovery in sorted(self._recovering.items())
        }

    def guarded(self, act: Callable[[], Result], *roles: Part) -> Result | None:
        """Do something for roles that may turn out not to be ours; then they are dropped, to be claimed again."""
        try:
            return act()
        except FencedError as error:
            log.warning("taken over by another process; dropped here", roles=roles, error=str(error))
            self._drop_for(self._settings.retry_s, roles)
        except LogUnavailableError as error:
            log.warning("the state does not answer; claiming again", roles=roles, error=str(error))
            self._drop_for(_AGAIN_S, roles)
        return None

    def _drop_for(self, seconds: float, roles: Sequence[Part]) -> None:
        for role in roles:
            self._drop(role)
            self._fenced[role] = self._now() + seconds

    def close(self) -> None:
        """Give up recoveries that are under way."""
        while self._recovering:
            self._recovering.popitem()[1].close()

    def _wanted(self) -> set[Part]:
        """Roles of the parts that are ours."""
        parts = self._cluster.group.parts
        tasks = {("task", n) for n in range(self._cluster.sources) if all((topic, n) in parts for topic in TOPICS)}
        return tasks | {part for part in parts if part[0] == COUNTS}

    def _reassign(self) -> None:
        """Drop what went elsewhere, take over what came, and go on with what stayed."""
        self._generation = self._cluster.group.generation
        wanted = self._wanted()
        held = {("task", n) for n in self.tasks} | {(COUNTS, n) for n in self.aggregations} | self._recovering.keys()
        for role in (held | self._fenced.keys()) - wanted:
            self._drop(role)
            self._fenced.pop(role, None)
        for number, task in list(self.tasks.items()):
            self.guarded(partial(self._open_task, number, task), ("task", number))
        for shard, aggregation in list(self.aggregations.items()):
            part = (COUNTS, shard)
            self.guarded(partial(self._cluster.group.open, part, aggregation.position), part)
        for role in sorted(wanted - held - self._fenced.keys()):
            self._begin(role)
        log.info(
            "partitions assigned",
            partitions=sorted(n for role, n in wanted if role == "task"),
            aggregating=sorted(n for role, n in wanted if role == COUNTS),
            gone=sorted(f"{role} {n}" for role, n in held - wanted),
        )

    def _drop(self, role: Part) -> None:
        """Forget a role; nothing is written any more."""
        self._recovering.pop(role, None)
        if role[0] == COUNTS:
            self.aggregations.pop(role[1], None)
        else:
            self.tasks.pop(role[1], None)
            self._pacing.dropped(role[1])
        parts = [role] if role[0] == COUNTS else [(topic, role[1]) for topic in TOPICS]
        ours = self._cluster.group.parts
        self._cluster.group.pause([part for part in parts if part in ours], paused=True)

    def _claim_again(self) -> None:
        now = self._now()
        for role in [role for role, at in self._fenced.items() if at <= now]:
            del self._fenced[role]
            self._begin(role)

    def _begin(self, role: Part) -> None:
        kind, number = role
        fresh = self._new_aggregation(number) if kind == COUNTS else self._new_task(number)
        self._recovering[role] = Recovery(fresh, self._settings.about)

    def _new_task(self, number: int) -> Task:
        settings = self._settings
        state = self._claimed(number)
        return Task(number, settings.sources, settings.counts, state, snapshot_after=settings.snapshot_after)

    def _new_aggregation(self, shard: int) -> Aggregation:
        state = self._claimed(self._cluster.sources + shard)
        settings = self._settings
        return Aggregation(
            settings.engine, settings.counts, self._cluster.sources, state, snapshot_after=settings.snapshot_after
        )

    def _claimed(self, number: int) -> ClaimedLog:
        return ClaimedLog(
            self._cluster.state(number),
            self._cluster.new_author(),
            where=f"state[{number}]",
            chunk_bytes=self._settings.chunk_bytes,
        )

    def _recover(self) -> None:
        deadline = self._now() + _RECOVER_S
        while self._recovering:
            for role, recovery in list(self._recovering.items()):
                self.guarded(partial(self._recover_one, role, recovery), role)
            if self._now() >= deadline:
                return

    def _recover_one(self, role: Part, recovery: Recovery[Task | Aggregation]) -> None:
        found = recovery.step()
        if found is not None:
            del self._recovering[role]
            self._resume(role, found)

    def _resume(self, role: Part, found: Task | Aggregation) -> None:
        if isinstance(found, Task):
            self.tasks[role[1]] = found
            self._open_task(role[1], found)
        else:
            self._resume_aggregation(role[1], found)
        log.info("recovered", role=role)

    def _resume_aggregation(self, shard: int, found: Aggregation) -> None:
        self.aggregations[shard] = found
        self._cluster.newest_maps()  # from here on; see `_outbid`
        if found.fresh:
            found.adopt(self._cluster.published_maps())
        else:
            found.republish(self._cluster.publish_maps)
        self._cluster.group.open((COUNTS, shard), found.position)

    def _open_task(self, number: int, task: Task) -> None:
        for topic in TOPICS:
            first = self._cluster.group.open((topic, number), task.offsets.get(topic))
            if topic not in task.offsets:
                task.begin(topic, first)
        self._pacing.opened(number)
