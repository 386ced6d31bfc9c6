"""The one loop behind `run`, `demo` and `replay`: poll, fold, publish, commit, picture.

Runs in one thread and is the only writer of the engine. The wall clock decides when to commit, to take a
picture and to call a partition idle, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import structlog

from streamcal.engine import Engine
from streamcal.maps.loop import PublishMap
from streamcal.runtime.adopting import readable
from streamcal.runtime.counts_desk import CountsDesk
from streamcal.runtime.logs.base import Log
from streamcal.serve.live import CommitRecorder, Readiness, SnapshotHolder
from streamcal.serve.process_counters import ProcessCounters

__all__ = ["Pace", "Readers", "Runtime"]

_REJECTIONS_S = 60.0
"""Rejected events are told of once a minute; the counters have them all."""
_POLL_S = 0.25
"""Longest wait for records; bounds how late a stop signal or a picture can be."""

log = structlog.get_logger(__name__)


class Pace:
    """Says when something that repeats is due again, by the monotonic clock."""

    def __init__(self, every_s: float, *, at_once: bool = False) -> None:
        self._every_s = every_s
        self._next = time.monotonic() + (0.0 if at_once else every_s)

    def due(self) -> bool:
        """Whether the interval has passed; starts the next one if so."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every_s
        return True


@dataclass(frozen=True, slots=True)
class Readers:
    """Where other threads find what the loop has to show."""

    holder: SnapshotHolder = field(default_factory=SnapshotHolder)
    commits: CommitRecorder = field(default_factory=CommitRecorder)
    readiness: Readiness = field(default_factory=Readiness)
    counts: CountsDesk = field(default_factory=CountsDesk)
    counters: ProcessCounters = field(default_factory=ProcessCounters)


class Runtime:
    """Drives an engine over a log until stopped or until the log is finished.

    Parameters
    ----------
    engine : Engine
    source : Log
        Opened by `run`, closed by whoever made it.
    readers : Readers, optional
    commit_every_s, snapshot_every_s : float
    after_poll : callable, optional
        Called after each folded poll.
    """

    def __init__(
        self,
        engine: Engine,
        source: Log,
        *,
        readers: Readers | None = None,
        commit_every_s: float = 1.0,
        snapshot_every_s: float = 1.0,
        after_poll: Callable[[], None] | None = None,
    ) -> None:
        self.engine = engine
        self._source = source
        self._readers = readers or Readers()
        self._commit_pace = Pace(commit_every_s)
        self._snapshot_pace = Pace(snapshot_every_s)
        self._rejection_pace = Pace(_REJECTIONS_S, at_once=True)
        self._after_poll = after_poll

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Work until `should_stop` or the end of the log; commits what was folded before returning."""
        self._adopt()
        self._readers.readiness.ready()
        try:
            while not should_stop() and not self._source.finished:
                self.step()
        finally:
            self._readers.readiness.not_ready("stopping")
        self._commit()
        self.picture()

    def step(self) -> None:
        """One poll and what follows from it."""
        poll = self._source.poll(_POLL_S)
        self._assign()
        self._publish(self.engine.handle(poll.slices))
        for advance in poll.advances:
            self._publish(self.engine.advance_idle(advance.topic, advance.partition, advance.to_ms))
        for ended in poll.ended:
            self._publish(self.engine.end(*ended))
        self._tell_rejections()
        if self._after_poll is not None:
            self._after_poll()
        self._readers.counts.answer(self.engine.published.counts)
        if self._commit_pace.due():
            self._commit()
        if self._snapshot_pace.due():
            self.picture()

    def _assign(self) -> None:
        """Join what is ours after the poll: it may have changed that, and its records belong to the new state."""
        self.engine.assign(self._source.partitions)

    def picture(self) -> None:
        """Publish a snapshot to all readers."""
        self._readers.holder.publish(self.engine.snapshot(lag=self._source.lag()))

    def _adopt(self) -> None:
        """Go on from the maps already published; what is no document is passed over, as transformers do."""
        published = {name: readable(name, documents) for name, documents in self._source.open().items()}
        self.engine.adopt({name: documents for name, documents in published.items() if documents})
        self._publish(self.engine.handle([]))

    def _publish(self, commands: list[PublishMap]) -> None:
        for command in commands:
            self._source.publish(command.key, command.document)
            log.info("map published", model=command.key, bytes=len(command.document))

    def _commit(self) -> None:
        started = time.monotonic()
        self._source.commit()
        self._readers.commits.observe(time.monotonic() - started)

    def _tell_rejections(self) -> None:
        """Log where rejected events are, at a limited rate; never what they say, for ids are personal data."""
        if self.engine.decoding.rejections and self._rejection_pace.due():
            for rejected in self.engine.decoding.rejections:
                log.warning("event rejected", **asdict(rejected))
            self.engine.decoding.rejections.clear()
