"""`streamcal run` with faults at named points between two of its calls to the broker, and with sizes for tests.

    python tests/torture/faulty_monitor.py CONFIG '{"at": "delta after", "skip": 3, "signal": "SIGKILL"}'

Beside the fault: ``snapshot_after`` and ``chunk_bytes`` (bytes; see `MonitorSettings`) and ``ahead_bytes`` (see
`PacingSettings`). The product knows nothing of
all this: the points are in a cluster around its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamcal.errors import StreamcalError
from streamcal.maps.loop import PublishMap
from streamcal.runtime.cluster import Cluster, Fetched, Group, Part
from streamcal.runtime.daemon import run
from streamcal.runtime.held_roles import MonitorSettings

__all__ = ["POINTS"]

POINTS = (
    # a task: its claim, what it reads of its state, its delta, its parts and mark, its snapshot
    *("claim before", "claim after", "restore middle", "delta before", "delta sent", "delta after"),
    *("counts before", "counts middle", "counts after", "snapshot before", "snapshot middle", "snapshot after"),
    # the aggregator: parts taken in, its own snapshot, maps, what it takes back
    *("merge before", "merge after", "decision before", "decision after", "maps before", "maps after"),
    *("tombstones before", "tombstones after", "trim before", "trim after", "group before", "group after"),
)
"""Where a process can be hit; ``middle``: some records are with the broker, others are not."""


class Faults:
    """Sends this process a signal when a point has been reached often enough; once.

    Parameters
    ----------
    at : str or None
        Of `POINTS`.
    skip : int
        Times it is passed unharmed before.
    how : str
        Name of the signal: SIGKILL, or SIGSTOP for a zombie that is woken later.
    """

    def __init__(self, at: str | None, skip: int, how: str) -> None:
        assert at is None or at in POINTS, at
        self._at, self._left, self._signal = at, skip + 1, signal.Signals[how]

    def reach(self, point: str) -> None:
        """A point is reached."""
        if point == self._at:
            self._left -= 1
            if self._left == 0:
                print(json.dumps({"event": "fault", "at": point, "signal": self._signal.name}), flush=True)
                os.kill(os.getpid(), self._signal)


class FaultyCluster:
    """A cluster with points before, within and after its calls."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._cluster, self._faults = cluster, faults
        self.sources, self.shards = cluster.sources, cluster.shards
        self.group: Group = FaultyGroup(cluster.group, faults)
        self.counts = FaultyCounts(cluster.counts, faults)

    def state(self, number: int) -> FaultyLog:
        return FaultyLog(self._cluster.state(number), self._faults, aggregates=number >= self.sources)

    def new_author(self) -> bytes:
        return self._cluster.new_author()

    def publish_maps(self, commands: Sequence[PublishMap]) -> None:
        self._faults.reach("maps before")
        self._cluster.publish_maps(commands)
        self._faults.reach("maps after")

    def published_maps(self) -> Mapping[str, Sequence[bytes]]:
        return self._cluster.published_maps()

    def newest_maps(self) -> Mapping[str, bytes | None]:
        return self._cluster.newest_maps()

    def close(self) -> None:
        self._cluster.close()


class FaultyGroup:
    """Membership; the counts topic is read through it."""

    def __init__(self, group: Group, faults: Faults) -> None:
        self._group, self._faults = group, faults
        self._merging = False

    def poll(self, timeout_s: float) -> Fetched:
        fetched = self._group.poll(timeout_s)
        if any(role == "counts" for role, _ in fetched):
            self._faults.reach("merge before")
            self._merging = True
        elif self._merging:
            # The parts of the poll before are in, and nothing has followed from them yet.
            self._merging = False
            self._faults.reach("merge after")
        return fetched

    @property
    def generation(self) -> int:
        return self._group.generation

    @property
    def parts(self) -> frozenset[Part]:
        return self._group.parts

    def open(self, part: Part, offset: int | None) -> int:
        return self._group.open(part, offset)

    def pause(self, parts: Sequence[Part], *, paused: bool) -> None:
        self._group.pause(parts, paused=paused)

    def commit(self, offsets: Mapping[Part, int]) -> bool:
        self._faults.reach("group before")
        taken = self._group.commit(offsets)
        self._faults.reach("group after")
        return taken

    def say(self, notes: Mapping[Part, str]) -> None:
        self._group.say(notes)

    def said(self) -> Mapping[Part, str]:
        return self._group.said()

    def lag(self) -> Mapping[Part, int]:
        return self._group.lag()

    def close(self) -> None:
        self._group.close()


class FaultyLog:
    """A partition of the state topic."""

    def __init__(self, log: Any, faults: Faults, *, aggregates: bool) -> None:
        self._log, self._faults, self._aggregates = log, faults, aggregates

    def send(self, values: Sequence[bytes]) -> Callable[[], list[int]]:
        point = self._point(values)
        self._faults.reach(f"{point} before")
        half = len(values) // 2
        sent: list[Callable[[], list[int]]] = []
        for place, value in enumerate(values):
            if place == half and place:
                for wait in sent:
                    wait()  # what is there before a kill in the middle
                self._faults.reach(f"{point} middle")
            sent.append(self._log.send([value]))
        if point == "delta":
            self._faults.reach("delta sent")

        def finished() -> list[int]:
            offsets = [offset for wait in sent for offset in wait()]
            self._faults.reach(f"{point} after")
            return offsets

        return finished

    def read(self, start: int | None, stop: int) -> Iterator[tuple[int, bytes] | None]:
        for place, record in enumerate(self._log.read(start, stop)):
            if place == 1:
                self._faults.reach("restore middle")
            yield record

    def delete_before(self, offset: int) -> None:
        self._faults.reach("trim before")
        self._log.delete_before(offset)
        self._faults.reach("trim after")

    def _point(self, values: Sequence[bytes]) -> str:
        if b"claim" in values[0][:16]:
            return "claim"
        if self._aggregates:
            return "decision"
        return "snapshot" if b"snapshot" in values[0][:16] else "delta"


class FaultyCounts:
    """The counts topic."""

    def __init__(self, counts: Any, faults: Faults) -> None:
        self._counts, self._faults = counts, faults
        self._waiting: list[tuple[str | None, bytes, bytes | None]] = []

    def publish(self, model: str | None, key: bytes, value: bytes | None) -> None:
        self._waiting.append((model, key, value))

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        point = "tombstones" if all(value is None for *_, value in waiting) else "counts"
        self._faults.reach(f"{point} before")
        half = len(waiting) // 2
        self._store(waiting[:half])
        if half and point == "counts":
            self._faults.reach("counts middle")
        self._store(waiting[half:])
        self._faults.reach(f"{point} after")

    def _store(self, records: Sequence[tuple[str | None, bytes, bytes | None]]) -> None:
        for record in records:
            self._counts.publish(*record)
        self._counts.flush()


def main(path: str, options: str) -> None:
    """Run a monitor with a fault."""
    from streamcal.runtime.config import load_config

    given = json.loads(options)
    faults = Faults(given.get("at"), given.get("skip", 0), given.get("signal", "SIGKILL"))
    sizes = {name: given[name] for name in ("snapshot_after", "chunk_bytes") if name in given}
    ahead = {name: given[name] for name in ("ahead_bytes",) if name in given}

    def rearrange(settings: MonitorSettings, cluster: Cluster) -> tuple[MonitorSettings, Cluster]:
        pacing = replace(settings.pacing, **ahead)
        return replace(settings, pacing=pacing, **sizes), FaultyCluster(cluster, faults)

    try:
        run(load_config(Path(path), environ={}, require_kafka=True), rearrange=rearrange)
    except StreamcalError as error:  # as the command does
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
