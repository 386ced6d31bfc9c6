"""`streamcal transform` killed, stopped, fenced and cut off: what readers see who read committed is each record once.

The quick form; `python tests/torture/transform_kills.py` is the long one.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from daemon_process import wait_until
from kafka_broker import Broker
from torture.transform_kills import PARTITIONS, Arena, kill, zombie
from transform_process import random_raw

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_killed_and_fenced_members_leave_each_record_once_in_order(kafka: str, tmp_path: Path) -> None:
    draw = random.Random(5)
    with Arena(kafka, tmp_path, random_raw(12_000, PARTITIONS, seed=5), rate=2_000) as arena:
        victim = arena.member("one")
        for _ in range(2):
            kill(arena, victim, draw)
        heir = arena.member("two")
        # An exit with an error, or a return to the group: both are right, writing something twice is not.
        assert zombie(arena, victim, heir, draw) in (None, 4)
        arena.finish(victim, heir)


def test_a_successor_of_the_same_name_ends_the_one_before_it(kafka: str, tmp_path: Path) -> None:
    with Arena(kafka, tmp_path, random_raw(5_000, PARTITIONS, seed=6), rate=2_000) as arena:
        first = arena.member("one")
        arena.wait_work(first)
        first.send(signal.SIGSTOP)
        second = arena.successor("one")
        wait_until(lambda: second.event("partitions assigned") is not None)
        first.send(signal.SIGCONT)
        assert first.wait() == 4
        assert "took over as instance 'one'" in first.errors
        assert first.errors.count("\n") == 1
        arena.finish(second)


def test_a_killed_broker_is_survived_or_ends_it_with_a_clear_line(kafka_broker: Broker, tmp_path: Path) -> None:
    with Arena(kafka_broker.bootstrap, tmp_path, random_raw(6_000, PARTITIONS, seed=7), rate=2_000) as arena:
        process = arena.member("one")
        arena.wait_work(process)
        kafka_broker.kill()
        kafka_broker.start()
        arena.finish(process)
        assert all(line.startswith("streamcal: ") for line in process.errors.splitlines())
