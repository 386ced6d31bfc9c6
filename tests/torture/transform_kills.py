"""`streamcal transform` killed again and again on a real broker: each input is written once, in order per partition.

A feeder writes raw scores from its own process the while. The victim is killed (SIGKILL) at random moments of its work
and started again; now and then it is stopped beyond its session (SIGSTOP) while a second member takes its partitions
over, and then goes on as a zombie; guests join the group and are killed, so that partitions move back and forth. At the
end the output is read committed and compared with the input, record by record.

    python tests/torture/transform_kills.py --kills 20 --zombies 2 --guests 4 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemon_process import wait_until
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka_broker import create_topics, running_broker
from transform_process import (
    Raw,
    TransformProcess,
    assert_each_once_in_order,
    group_position,
    publish_map,
    random_raw,
    stored_records,
    transform_config,
)

__all__ = ["Arena", "guest", "kill", "zombie"]

PARTITIONS = 4
PART = 200
"""Records the feeder sends at a time."""


class Arena:
    """Topics with a feeder, and the members of one group; leaving the context ends all processes.

    Parameters
    ----------
    bootstrap : str
    folder : Path
    records : sequence of Raw
        What the feeder sends.
    rate : float
        Records a second.
    """

    def __init__(self, bootstrap: str, folder: Path, records: Sequence[Raw], rate: float) -> None:
        names = [f"{role}-{uuid4().hex[:10]}" for role in ("raw", "served", "maps")]
        self.bootstrap, self.records, self.folder = bootstrap, records, folder
        self.output = names[1]
        create_topics(bootstrap, dict(zip(names, (PARTITIONS, PARTITIONS, 1), strict=True)))
        publish_map(bootstrap, names[2], "a", 1)
        self.config = transform_config(bootstrap, *names, commit_interval="20ms")
        # Short transactions, so that a blow hits any part of one.
        self.config["kafka"]["consumer"]["max_poll_records"] = 500
        self._feeder = multiprocessing.get_context("spawn").Process(
            target=feed, args=(bootstrap, names[0], records, rate), daemon=True
        )
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Arena:
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        if self._feeder.is_alive():
            self._feeder.kill()
        self._feeder.join()

    def member(self, name: str) -> TransformProcess:
        """Start a member of the group."""
        config = {**self.config, "transform": {**self.config["transform"], "instance_id": name}}
        return self._stack.enter_context(TransformProcess(config, self.folder / name))

    def successor(self, name: str) -> TransformProcess:
        """Start a member of a name that is taken, in a folder of its own."""
        config = {**self.config, "transform": {**self.config["transform"], "instance_id": name}}
        return self._stack.enter_context(TransformProcess(config, self.folder / f"{name}-successor"))

    def position(self) -> int:
        """Records the group has committed."""
        return group_position(self.bootstrap, self.config, PARTITIONS)

    def wait_work(self, process: TransformProcess, at_least: int = 1) -> None:
        """Wait until the group has gone on by some records; a member that ended is started again."""
        goal = min(self.position() + at_least, len(self.records))

        def reached() -> bool:
            restarted(process)
            return self.position() >= goal

        wait_until(reached, 120)

    def finish(self, *processes: TransformProcess) -> int:
        """Let the members write what is left, stop them, and compare; gives the records of aborted transactions."""
        self._feeder.join(120)
        assert self._feeder.exitcode == 0, "the feeder failed"

        def written() -> bool:
            for process in processes:
                restarted(process)
            return self.position() == len(self.records)

        wait_until(written, 180)
        for process in processes:
            # One that was started just now may not have come to where it takes a SIGTERM for a wish.
            if process.process.poll() is None:
                assert process.terminate() in (0, -signal.SIGTERM), process.errors
        assert_each_once_in_order(self.bootstrap, self.output, PARTITIONS, self.records)
        stored = stored_records(self.bootstrap, self.output, PARTITIONS, committed=False)
        return sum(map(len, stored.values())) - len(self.records)


def feed(bootstrap: str, topic: str, records: Sequence[Raw], rate: float) -> None:
    """Send `records` at `rate`; runs in a process of its own."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5, reconnect_backoff_max_ms=500)
    begin = time.monotonic()
    sent = []
    for start in range(0, len(records), PART):
        for one in records[start : start + PART]:
            options = {"headers": list(one.headers), "partition": one.partition, "timestamp_ms": one.timestamp}
            sent.append(producer.send(topic, one.value, key=one.key, **options))
        time.sleep(max(0.0, begin + (start + PART) / rate - time.monotonic()))
    producer.flush()
    for future in sent:
        future.get(timeout=60)
    producer.close()


def restarted(process: TransformProcess) -> bool:
    """What a supervisor does: start what has ended with an error; what ended well is left alone."""
    code = process.process.poll()
    if code in (None, 0):
        return False
    process.start()
    return True


def kill(arena: Arena, victim: TransformProcess, draw: random.Random) -> None:
    """SIGKILL at a random moment of its work, and start it again."""
    arena.wait_work(victim)
    time.sleep(draw.expovariate(1 / 0.15))  # any point of a transaction, not one that this process knows
    victim.kill()
    victim.start()


def zombie(arena: Arena, victim: TransformProcess, heir: TransformProcess, draw: random.Random) -> int | None:
    """SIGSTOP until the group has gone on without it, then SIGCONT; gives its exit code if it ended."""
    arena.wait_work(victim)
    time.sleep(draw.expovariate(1 / 0.1))
    victim.send(signal.SIGSTOP)
    try:
        wait_until(lambda: not is_member(arena, "one"), 60)
        arena.wait_work(heir)
    finally:
        victim.send(signal.SIGCONT)
    wait_until(lambda: victim.process.poll() is not None or is_member(arena, "one"), 90)
    return victim.process.poll()


def guest(arena: Arena, number: int, draw: random.Random) -> None:
    """Let a member join, take partitions and be killed; it stays in the group until its session is over."""
    process = arena.member(f"guest-{number}")
    process.wait_assigned()
    time.sleep(draw.expovariate(1 / 0.3))
    process.kill()
    wait_until(lambda: not is_member(arena, f"guest-{number}"), 60)


def is_member(arena: Arena, name: str) -> bool:
    """Whether the group has the instance `name`."""
    admin = KafkaAdminClient(bootstrap_servers=arena.bootstrap)
    try:
        group = f"{arena.config['kafka']['group_id']}-transform"
        found: list[dict[str, Any]] = admin.describe_groups([group])[group]["members"]
        return any(member["group_instance_id"] == name for member in found)
    finally:
        admin.close()


@contextlib.contextmanager
def broker_at(address: str | None) -> Iterator[str]:
    """The broker given, or one started for this run."""
    if address:
        yield address
        return
    with running_broker() as broker:
        yield broker.bootstrap


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; prints one line per blow and the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--zombies", type=int, default=2)
    parser.add_argument("--guests", type=int, default=4)
    parser.add_argument("--records", type=int, default=120_000)
    parser.add_argument("--rate", type=float, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", metavar="HOST:PORT", help="an address; without it a broker is started")
    given = parser.parse_args(argv)
    draw = random.Random(given.seed)
    records = random_raw(given.records, PARTITIONS, seed=given.seed)
    with (
        broker_at(given.broker) as bootstrap,
        tempfile.TemporaryDirectory(prefix="streamcal-torture-") as folder,
        Arena(bootstrap, Path(folder), records, given.rate) as arena,
    ):
        victim = arena.member("one")
        victim.wait_assigned()
        for number in range(given.kills):
            kill(arena, victim, draw)
            print(json.dumps({"kill": number + 1, "written": arena.position()}), flush=True)
        members = [victim]
        if given.zombies:
            members.append(arena.member("two"))
        for number in range(given.zombies):
            code = zombie(arena, victim, members[1], draw)
            print(json.dumps({"zombie": number + 1, "exit": code, "written": arena.position()}), flush=True)
        for number in range(given.guests):
            guest(arena, number, draw)
            print(json.dumps({"guest": number + 1, "written": arena.position()}), flush=True)
        aborted = arena.finish(*members)
    blows = f"{given.kills} kills, {given.zombies} zombies, {given.guests} guests"
    print(f"{len(records)} records, {blows}: read committed, each record once, in order")
    print(f"{aborted} records were in transactions that were cut off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
