"""What the one writer thread hands to the threads that serve: the newest snapshot, readiness, commit times.

Each object has one writer and any number of readers, and a reader never waits for work: either one
attribute is swapped (atomic in CPython) or a lock is held for a few additions.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from streamcal.serve.trace import FigureTrace
from streamcal.snapshot import Snapshot

__all__ = ["COMMIT_BUCKETS", "CommitDurations", "CommitRecorder", "Readiness", "Recovering", "SnapshotHolder"]

COMMIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: from a local broker's few ms to the ten seconds after which a session is in danger."""


class _Shown(NamedTuple):
    snapshot: Snapshot
    at_s: float
    until_s: float


class SnapshotHolder:
    """The newest snapshot, swapped whole so that no reader sees half of one, and what the ones before it said."""

    __slots__ = ("_shown", "trace")

    def __init__(self) -> None:
        self._shown: _Shown | None = None
        self.trace = FigureTrace()

    @property
    def latest(self) -> Snapshot | None:
        """None until the first snapshot, after `withdraw`, and once the time of the last is over."""
        shown = self._shown
        return None if shown is None or monotonic() > shown.until_s else shown.snapshot

    def publish(self, snapshot: Snapshot, *, until_s: float = math.inf) -> None:
        """Make `snapshot` the one that readers get from now on, and none after `until_s` (monotonic) without another.

        The writer may be waiting for a broker by then, so readers look at the clock themselves.
        """
        self.trace.record(snapshot)
        self._shown = _Shown(snapshot, monotonic(), until_s)

    def withdraw(self) -> None:
        """Show nothing from now on: what was shown may be out of date."""
        self._shown = None

    def age_s(self) -> float | None:
        """Seconds of the wall clock since the newest snapshot was published; None without one."""
        shown = self._shown
        return None if shown is None or self.latest is None else monotonic() - shown.at_s


@dataclass(frozen=True, slots=True)
class Recovering:
    """A recovery under way.

    Attributes
    ----------
    started_s : float
        Wall clock, seconds since 1970.
    remaining : mapping of int to int
        Records of the state still to be read and applied, at most, by partition of its topic.
    """

    started_s: float
    remaining: Mapping[int, int]


class Readiness:
    """Whether the process takes part in the work, and if not, why.

    Starts as not ready ("starting"); reason and flag are one value, so they never disagree.

    Attributes
    ----------
    recovery : Recovering or None
        How far a recovery is; None without one.
    """

    __slots__ = ("_reason", "_until_s", "recovery")

    def __init__(self) -> None:
        self._reason: str | None = "starting"
        self._until_s = math.inf
        self.recovery: Recovering | None = None

    @property
    def reason(self) -> str | None:
        """Why it is not ready; None when it is."""
        reason = self._reason
        if reason is None and monotonic() > self._until_s:
            return "no commit has gone through for longer than the session of the group; see the log"
        return reason

    @property
    def declared(self) -> bool:
        """Whether the process was declared ready, however long ago."""
        return self._reason is None

    def ready(self, *, until_s: float = math.inf) -> None:
        """Declare the process ready, up to `until_s` (monotonic): its writer may be waiting for a broker by then."""
        self._until_s = until_s
        self._reason = self.recovery = None

    def recovering(self, reason: str, recovery: Recovering) -> None:
        """Declare the process not ready because it takes state up."""
        self._reason, self.recovery = reason, recovery

    def not_ready(self, reason: str) -> None:
        """Declare the process not ready, with a few words for the operator."""
        self._reason, self.recovery = reason, None


@dataclass(frozen=True, slots=True)
class CommitDurations:
    """A histogram at one moment.

    Attributes
    ----------
    at_most : sequence of int
        Observations not above each of `COMMIT_BUCKETS` (cumulative).
    count : int
        All observations.
    total_s : float
        Their sum in seconds.
    """

    at_most: Sequence[int]
    count: int
    total_s: float


class CommitRecorder:
    """Counts how long commits took.

    >>> commits = CommitRecorder()
    >>> commits.observe(0.004)
    >>> commits.observe(99.0)
    >>> taken = commits.taken()
    >>> taken.at_most[:3], taken.count, taken.total_s
    ((0, 0, 1), 2, 99.004)
    """

    __slots__ = ("_counts", "_lock", "_total_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(COMMIT_BUCKETS) + 1)
        self._total_s = 0.0
        self._lock = Lock()

    def observe(self, seconds: float) -> None:
        """Count one commit that took `seconds`."""
        bucket = bisect_left(COMMIT_BUCKETS, seconds)
        with self._lock:
            self._counts[bucket] += 1
            self._total_s += seconds

    def taken(self) -> CommitDurations:
        """Everything observed so far."""
        with self._lock:
            counts, total_s = list(self._counts), self._total_s
        at_most, running = [], 0
        for count in counts[:-1]:
            running += count
            at_most.append(running)
        return CommitDurations(tuple(at_most), running + counts[-1], total_s)
