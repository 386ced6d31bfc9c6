"""`streamcal run` killed again and again over a disturbed stream: what is counted is each pair, once.

One monitor is killed at random moments of its work and at named points between two of its calls to the broker
(`torture.faulty_monitor`), and started again on nothing but Kafka. Then several share the work: they join and leave,
are stopped beyond their session and woken as zombies, lose the broker, die in mid-merge. `torture.monitor_arena` says
what must be true at the end.

    python tests/torture/monitor_kills.py --labels both --pairs 500000 --kills 30 --blows 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_process import wait_until
from kafka.admin import KafkaAdminClient
from kafka_broker import Broker, running_broker
from torture.disturbed_streams import StreamPlan
from torture.faulty_monitor import POINTS
from torture.monitor_arena import Member, MonitorArena

__all__ = ["BLOWS", "Crowd", "kill_again_and_again", "strike"]

PATIENCE_S = 12.0
"""For a point to be reached; some are rare (maps), then the kill is at a random moment."""


def kills_anywhere(kills: int, draw: random.Random) -> list[str | None]:
    """Where to kill: every fourth time at a random moment (None), else at points in turn."""
    points = [point for _ in range(kills // len(POINTS) + 1) for point in draw.sample(POINTS, len(POINTS))]
    return [point if number % 4 else None for number, point in enumerate(points[:kills])]


def kill_again_and_again(
    arena: MonitorArena, where: Sequence[str | None], draw: random.Random, share: float = 0.9
) -> None:
    """Feed `share` of the stream to one monitor after the other, each of which is killed; the last one lives."""
    kills = len(where)
    for number, point in enumerate(where):
        fault = {"at": point, "skip": int(draw.expovariate(1 / 3))} if point else None
        victim = arena.member("one", fault)
        arena.feeder.send(share * (number + 1) / kills, 2.0)
        _await_blow(arena, victim, draw)
        arena.feeder.wait()
        print(json.dumps({"kill": number + 1, "at": victim.fault or "random", "read": arena.position()}), flush=True)
    arena.member("one")


def _await_blow(arena: MonitorArena, victim: Member, draw: random.Random) -> None:
    """Wait for the fault, or strike at a random moment of its work."""
    wait_until(lambda: not victim.alive or victim.event("recovered") is not None, 90)
    deadline = time.monotonic() + (PATIENCE_S if victim.meant else draw.expovariate(1 / 1.5))
    while victim.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not victim.alive or not victim.errors, victim.errors
    if victim.alive:
        victim.kill()
    victim.process.wait()
    arena.hit[f"kill: {victim.fault or 'at a random moment'}"] += 1
    arena.check()


class Crowd:
    """Several monitors of one group, and what befalls them.

    Parameters
    ----------
    arena : MonitorArena
    broker : Broker
    draw : Random
    blows : int
        What there is of the stream has to do for so many.
    size : int
    """

    def __init__(
        self, arena: MonitorArena, broker: Broker, draw: random.Random, blows: int = 12, size: int = 3
    ) -> None:
        self.arena, self.broker, self.draw, self.size = arena, broker, draw, size
        self.share = 0.5 / blows
        """Of the stream, with each blow; as much again at most for what is awaited in its course."""
        self._fed = 0.0
        for _ in range(size):
            arena.member()

    def feed(self, share: float, seconds: float = 3.0) -> None:
        """Go on with the stream while something befalls."""
        self._fed = min(1.0, self._fed + share)
        self.arena.feeder.send(self._fed, seconds)

    def settle(self) -> None:
        """As many members as at first, and all of the stream so far on its way."""
        self.arena.feeder.wait()
        self._thin_out(self.size)
        while len(self.arena.alive) < self.size:
            self.arena.member()
        # One that is still starting where the broker goes away says so and ends, for its supervisor to start again.
        wait_until(lambda: all(one.event("serving") for one in self.arena.alive), 90)
        self.arena.check()

    def _thin_out(self, most: int) -> None:
        """Let members leave: one more than there are partitions would have no work."""
        while len(self.arena.alive) > most:
            self.left()

    def _with_fault(self, fault: Mapping[str, Any]) -> Member:
        """A member with a fault in it, in the place of another."""
        self._thin_out(self.size - 1)
        return self.arena.member(None, fault)

    def any(self) -> Member:
        """A member that has taken part."""
        wait_until(lambda: any(member.event("partitions assigned") for member in self.arena.alive), 90)
        return self.draw.choice([member for member in self.arena.alive if member.event("partitions assigned")])

    def aggregator(self) -> Member:
        """The member that has the counts topic, as far as the last assignments say."""
        wait_until(lambda: any(member.aggregates for member in self.arena.alive), 90)
        return next(member for member in self.arena.alive if member.aggregates)

    def killed(self) -> None:
        """One dies at a random moment."""
        victim = self.any()
        time.sleep(self.draw.expovariate(1 / 0.5))
        victim.kill()

    def aggregator_killed(self) -> None:
        """The one that aggregates dies at a random moment."""
        victim = self.aggregator()
        time.sleep(self.draw.expovariate(1 / 0.5))
        victim.kill()

    def left(self) -> None:
        """One leaves in order."""
        victim = self.draw.choice(self.arena.alive)
        wait_until(lambda: not victim.alive or victim.event("serving") is not None, 90)
        victim.expected = True
        assert victim.terminate() == 0, victim.errors
        assert victim.errors == ""

    def joined(self) -> None:
        """One more joins, and takes over what others had."""
        guest = self.arena.member()
        wait_until(lambda: not guest.alive or guest.event("partitions assigned") is not None, 90)

    def stopped_beyond_its_session(self) -> None:
        """One is stopped until the group has gone on without it, then woken: a zombie."""
        victim = self.any()
        time.sleep(self.draw.expovariate(1 / 0.3))
        self._asleep(victim)

    def aggregator_stopped_beyond_its_session(self) -> None:
        """The one that aggregates is stopped until another does."""
        self._asleep(self.aggregator())

    def stopped_between_delta_and_counts(self) -> None:
        """One is stopped right after its delta was acknowledged, and goes on with the parts as a zombie."""
        self._stopped_at("delta after")

    def stopped_before_its_delta(self) -> None:
        """One is stopped with a delta in its hands, which it writes behind the claim of another."""
        self._stopped_at("delta before")

    def stopped_in_mid_merge(self) -> None:
        """An aggregator is stopped before a decision, which it writes behind the claim of another."""
        self._stopped_at("decision before")

    def died_in_mid_merge(self) -> None:
        """An aggregator dies with parts taken in of which nothing has followed."""
        victim = self._with_fault({"at": "merge after", "skip": 1})
        self._other_aggregators_leave(victim)
        self._await_fault(victim)
        victim.kill()

    def broker_stopped(self) -> None:
        """The broker is stopped and started."""
        self.broker.stop()
        self.broker.start()

    def broker_killed(self) -> None:
        """The broker is killed and started."""
        self.broker.kill()
        self.broker.start()

    def _stopped_at(self, point: str) -> None:
        victim = self._with_fault({"at": point, "skip": int(point.startswith("delta")), "signal": "SIGSTOP"})
        if point.startswith("decision"):
            self._other_aggregators_leave(victim)
        self._await_fault(victim)
        self._asleep(victim)

    def _await_fault(self, victim: Member) -> None:
        """Go on with the stream until the fault strikes; where it is too rare, this strikes instead."""
        for _ in range(40):
            if not victim.alive or victim.fault is not None:
                break
            self.arena.feeder.wait()
            self.feed(self.share / 80, 1.0)
            time.sleep(0.2)
        if victim.alive and victim.fault is None:
            self.arena.hit["crowd: a point was not reached"] += 1

    def _other_aggregators_leave(self, heir: Member) -> None:
        """Let members that aggregate leave until `heir` does; the assignor goes by names we do not choose."""
        wait_until(lambda: heir.event("partitions assigned") is not None, 90)
        while not heir.aggregates and heir.fault is None:
            others = [member for member in self.arena.alive if member.aggregates and member is not heir]
            for member in others:
                member.expected = True
                member.terminate()
            time.sleep(0.5)

    def _asleep(self, victim: Member) -> None:
        """SIGSTOP until a rebalance without it is over and somebody has worked, then SIGCONT."""
        victim.process.send_signal(signal.SIGSTOP)
        try:
            others = len(self.arena.alive) - 1
            if others == 0:
                self.arena.member()
                others = 1
            wait_until(lambda: self._members() <= others, 90)
            self.arena.feeder.wait()
            self.feed(self.share / 4, 1.0)
            self.arena.wait_work(timeout_s=90)
        finally:
            victim.process.send_signal(signal.SIGCONT)
        wait_until(lambda: not victim.alive or self._members() > others, 90)

    def _members(self) -> int:
        admin = KafkaAdminClient(bootstrap_servers=self.arena.bootstrap)
        try:
            group = self.arena.names["group"]
            return len(admin.describe_groups([group])[group]["members"])
        finally:
            admin.close()


BLOWS = (
    *("killed", "aggregator_killed", "left", "joined", "stopped_beyond_its_session"),
    *("aggregator_stopped_beyond_its_session", "stopped_between_delta_and_counts", "stopped_before_its_delta"),
    *("stopped_in_mid_merge", "died_in_mid_merge", "broker_stopped", "broker_killed"),
)
"""What can befall a crowd: methods of `Crowd`."""


def strike(crowd: Crowd, blow: str) -> None:
    """One blow, while the stream goes on."""
    crowd.feed(crowd.share)
    getattr(crowd, blow)()
    crowd.settle()
    crowd.arena.hit[f"crowd: {blow.replace('_', ' ')}"] += 1
    print(json.dumps({"blow": blow, "read": crowd.arena.position(), "alive": len(crowd.arena.alive)}), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; prints one line per blow and the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--labels", choices=("both", "positives_only"), action="append")
    parser.add_argument("--pairs", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--blows", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    for labels in given.labels or ("both", "positives_only"):
        plan = StreamPlan(given.pairs, 3, given.seed, gap_ms=200, horizon_ms=30 * 60_000, labels=labels)
        draw = random.Random(f"{given.seed} {labels}")
        with running_broker() as broker, kept_on_failure() as folder:
            if given.kills:
                with MonitorArena(broker.bootstrap, Path(folder) / "kills", plan, sizes_for(given.pairs)) as arena:
                    kill_again_and_again(arena, kills_anywhere(given.kills, draw), draw)
                    _verdict(arena, labels)
            if given.blows:
                with MonitorArena(broker.bootstrap, Path(folder) / "crowd", plan, sizes_for(given.pairs)) as arena:
                    crowd = Crowd(arena, broker, draw, given.blows)
                    blows = [blow for _ in range(given.blows) for blow in draw.sample(BLOWS, len(BLOWS))]
                    for blow in blows[: given.blows]:
                        strike(crowd, blow)
                    _verdict(arena, labels)
    return 0


def sizes_for(pairs: int) -> dict[str, int]:
    """Sizes with which a run has dozens of snapshots, of dozens of pieces each."""
    return {"snapshot_after": max(60_000, 5 * pairs), "chunk_bytes": max(20_000, pairs)}


@contextlib.contextmanager
def kept_on_failure() -> Iterator[str]:
    """A temporary folder that stays, with what the monitors logged, where something went wrong."""
    folder = tempfile.mkdtemp(prefix="streamcal-torture-")
    try:
        yield folder
    except BaseException:
        print(f"logs are in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder)


def _verdict(arena: MonitorArena, labels: str) -> None:
    verdict = arena.finish(1200)
    verdict.check_all()
    print(f"{len(verdict.events)} events, labels {labels}: counts per pane and segment and counters equal the recount;")
    print("figures, alarms, evidence and maps equal those of an engine that nothing happened to")
    print("per pair:", {kind: round(share, 3) for kind, share in verdict.shares.items()})
    told = Counter(
        line["event"] for member in arena.members for line in member.logged if line.get("level") == "warning"
    )
    print("warned:", dict(told))
    print("hit:", dict(sorted(arena.hit.items())), flush=True)


if __name__ == "__main__":
    sys.exit(main())
