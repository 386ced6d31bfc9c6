"""What the one writer thread hands to the threads that serve: the newest snapshot, readiness, commit times.

Each object has one writer and any number of readers, and a reader never waits for work: either one
attribute is swapped (atomic in CPython) or a lock is held for a few additions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Final

from streamcal.serve.trace import FigureTrace
from streamcal.snapshot import Snapshot

__all__ = ["COMMIT_BUCKETS", "CommitDurations", "CommitRecorder", "Readiness", "Recovering", "SnapshotHolder"]

COMMIT_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: from a local broker's few ms to the ten seconds after which a session is in danger."""


class SnapshotHolder:
    """The newest snapshot, swapped whole so that no reader sees half of one, and what the ones before it said."""

    __slots__ = ("_at_s", "latest", "trace")

    def __init__(self) -> None:
        self.latest: Snapshot | None = None
        """None until the first snapshot."""
        self.trace = FigureTrace()
        self._at_s = 0.0

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the one that readers get from now on."""
        self.trace.record(snapshot)
        self._at_s = monotonic()
        self.latest = snapshot

    def withdraw(self) -> None:
        """Show nothing from now on: what was shown may be out of date."""
        self.latest = None

    def age_s(self) -> float | None:
        """Seconds of the wall clock since the newest snapshot was published; None without one."""
        return None if self.latest is None else monotonic() - self._at_s


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

    __slots__ = ("_reason", "recovery")

    def __init__(self) -> None:
        self._reason: str | None = "starting"
        self.recovery: Recovering | None = None

    @property
    def reason(self) -> str | None:
        """Why it is not ready; None when it is."""
        return self._reason

    def ready(self) -> None:
        """Declare the process ready."""
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
