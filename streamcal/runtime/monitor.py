"""The loop of `run`: poll, join, commit; and where the counts topic is ours, aggregate and publish.

Runs in one thread. The wall clock decides when to commit, to take a picture and to call a partition idle, nothing else.
One step is: poll; settle what the group gave or took; go on with recoveries; join; commit. What a commit promises is in
`streamcal.roles.task`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from streamcal.runtime.cluster import COUNTS, Cluster, Fetched, Part
from streamcal.runtime.held_roles import HeldRoles, MonitorSettings
from streamcal.runtime.pacing import Pacing
from streamcal.snapshot import Snapshot
from streamcal.stream.events import TOPICS, Record
from streamcal.stream.source import Intake

__all__ = ["Monitor", "Observer"]


class Observer:
    """Told of what happens; every method may be left as it is."""

    def took_in(self, part: Part, intake: Intake, records: Sequence[Record]) -> None:
        """Records were joined."""

    def before_commit(self) -> bool:
        """Whether the commit may go on; where it may not, nothing more is read until it may."""
        return True


class Monitor:
    """Both roles of one process.

    Parameters
    ----------
    settings : MonitorSettings
    cluster : Cluster
    now : callable
        Monotonic seconds.
    observer : Observer, optional

    Attributes
    ----------
    roles : HeldRoles
    tasks, aggregations : dict
        Those of `roles`.
    last_good_s : float or None
        When the group last took our offsets.
    read : Counter
        Records by part.
    """

    def __init__(
        self,
        settings: MonitorSettings,
        cluster: Cluster,
        now: Callable[[], float],
        observer: Observer | None = None,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._now = now
        self._observer = observer or Observer()
        self._pacing = Pacing(settings.pacing, cluster, now)
        self.roles = HeldRoles(settings, cluster, now, self._pacing)
        self.tasks, self.aggregations = self.roles.tasks, self.roles.aggregations
        self._held_back: set[int] = set()
        self._outbid_at_s = now() + settings.outbid_s
        self.last_good_s: float | None = None
        self.read: Counter[str] = Counter()

    def step(self, timeout_s: float) -> None:
        """One poll and what follows from it; commits are apart."""
        fetched = self._cluster.group.poll(timeout_s)
        self.roles.step()
        self._join(fetched)
        self._aggregate(fetched)
        if not self._held_back:  # of what is held back nothing can be heard
            self._pacing.step(self.tasks)

    def commit(self) -> bool:
        """Make everything joined durable, then what was aggregated; whether the group took our offsets."""
        if not self._observer.before_commit():
            self._hold_back()
            self._pacing.deaf()
            return False
        self._go_on()
        wrote = [n for n, task in list(self.tasks.items()) if self.roles.guarded(task.write, ("task", n))]
        told = self._tell(wrote)
        for aggregation in self.aggregations.values():  # from what was read before, while that is on its way
            aggregation.follow()
        self._settle_tasks(told)
        for shard, aggregation in list(self.aggregations.items()):
            self.roles.guarded(
                partial(aggregation.settle, self._cluster.publish_maps, self._cluster.counts), (COUNTS, shard)
            )
        offsets = {(topic, n): at for n, task in self.tasks.items() for topic, at in task.offsets.items()}
        offsets |= {(COUNTS, n): held.position for n, held in self.aggregations.items() if held.position is not None}
        taken = self._cluster.group.commit(offsets)
        if taken:
            self.last_good_s = self._now()
            self._outbid()
        else:
            self._pacing.deaf()
        return taken

    def close(self) -> None:
        """Give up recoveries that are under way."""
        self.roles.close()

    def pictures(self) -> list[Snapshot]:
        """What the aggregators here show."""
        return [aggregation.picture() for aggregation in self.aggregations.values()]

    def _outbid(self) -> None:
        """Publish maps in force once more where older ones stand behind them, as long as the group confirms us.

        One who aggregated before us and was stopped right before it published does so when it wakes, behind our maps:
        a topic that is compacted then would keep its map alone.
        """
        if not self.aggregations or self._now() < self._outbid_at_s:
            return
        self._outbid_at_s = self._now() + self._settings.outbid_s
        newest = self._cluster.newest_maps()
        for shard, aggregation in list(self.aggregations.items()):
            self.roles.guarded(partial(aggregation.outbid, newest, self._cluster.publish_maps), (COUNTS, shard))

    def _hold_back(self) -> None:
        """Read no more: what is read is remembered until it can be committed. Polls go on, so we stay a member."""
        self._held_back.update(self.tasks)
        self._cluster.group.pause([(topic, number) for number in self.tasks for topic in TOPICS], paused=True)

    def _go_on(self) -> None:
        held, self._held_back = self._held_back & self.tasks.keys(), set()
        for number in held:
            self._cluster.group.pause([(topic, number) for topic in TOPICS], paused=False)
            self._pacing.opened(number)

    def _tell(self, wrote: Sequence[int]) -> list[int]:
        """Wait until what tasks wrote is durable, and tell of it; those where that went well."""
        lag = self._cluster.group.lag()
        for number in wrote:
            unread = {topic: lag[topic, number] for topic in TOPICS if (topic, number) in lag}
            self.roles.guarded(partial(self.tasks[number].tell, self._cluster.counts, unread), ("task", number))
        return [number for number in wrote if number in self.tasks]

    def _settle_tasks(self, told: Sequence[int]) -> None:
        """Wait once for all that was told; where that fails nobody knows which of it is stored."""
        self.roles.guarded(self._cluster.counts.flush, *(("task", number) for number in told))
        for number in told:
            if number in self.tasks:
                self.roles.guarded(self.tasks[number].settle, ("task", number))

    def _join(self, fetched: Fetched) -> None:
        for topic in TOPICS:
            for (role, number), (records, next_offset) in fetched.items():
                task = self.tasks.get(number)
                if role == topic and task is not None and next_offset > task.offsets.get(topic, -1):
                    intake = task.read(topic, records, next_offset)
                    self.read[f"{role}[{number}]"] += len(records)
                    self._observer.took_in((role, number), intake, records)
                    if records:
                        self._pacing.heard((role, number))

    def _aggregate(self, fetched: Fetched) -> None:
        for (role, shard), (records, next_offset) in fetched.items():
            aggregation = self.aggregations.get(shard)
            if role == COUNTS and aggregation is not None:
                aggregation.take((record.offset, record.key, record.value) for record in records)
                aggregation.position = next_offset
