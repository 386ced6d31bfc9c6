"""What has gone wrong in other stream processors, replayed on a real broker; `docs/scenarios.md` is the list."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from daemon_process import wait_until
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka_broker import Broker, create_topics
from topic_dump import read_all
from torture.disturbed_streams import START_MS, StreamPlan
from torture.monitor_arena import Member, MonitorArena

from streamcal.errors import BrokerError
from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_membership import KafkaMembership
from streamcal.state.about import ConfigChangeError
from streamcal.state.claimed_log import LogUnavailableError

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Topics = Callable[..., tuple[str, ...]]


def admin_of(kafka: str) -> Any:
    return KafkaAdminClient(bootstrap_servers=kafka)


class Quiet:
    """Nothing goes on beside reading."""

    def check(self) -> None: ...
    def sample(self, *_: object) -> None: ...
    def said(self) -> dict[Any, str]:
        return {}

    def behind(self) -> frozenset[str]:
        return frozenset()


class AssignmentMovedError(Exception):
    """What was opened is paused again."""


class Reader(threading.Thread):
    """A member that reads whatever it is given, from where the last one came to."""

    def __init__(
        self, kafka: str, group: str, topics: Mapping[str, str], reached: dict[Any, int], **options: int
    ) -> None:
        super().__init__()
        quick = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, **options}
        clients = KafkaClients(Kafka(bootstrap_servers=(kafka,), group_id=group, consumer=quick))
        self.membership: Callable[[], KafkaMembership] = lambda: KafkaMembership(
            clients.group_consumer,
            topics,
            "earliest",
            check=lambda _: None,
            beside=Quiet(),
            from_earliest=(),
            group_id=group,
            where=kafka,
        )
        self._reached = reached
        self.leave = threading.Event()

    def run(self) -> None:
        membership, generation = self.membership(), None
        while not self.leave.is_set():
            fetched = membership.poll(0.1)
            if membership.generation != generation:
                generation = membership.generation
                for part in membership.parts:
                    membership.open(part, self._reached.get(part))
            for part, (_, following) in fetched.items():
                self._reached[part] = max(following, self._reached.get(part, 0))
            membership.commit({part: self._reached[part] for part in membership.parts if part in self._reached})
        membership.close()


def test_after_every_joining_and_leaving_all_partitions_are_read_on(kafka: str, topics: Topics) -> None:
    names = dict(zip(("predictions", "outcomes"), topics("p", "o", partitions=3), strict=True))
    group, draw, reached = f"group-{uuid4().hex[:10]}", random.Random(1), dict[Any, int]()
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all")
    readers = [Reader(kafka, group, names, reached) for _ in range(2)]

    def join() -> None:
        readers.append(Reader(kafka, group, names, reached))
        readers[-1].start()

    def all_read() -> None:
        sent = {(role, n): producer.send(name, b"-", partition=n) for role, name in names.items() for n in range(3)}
        ends = {part: future.get(timeout=30).offset + 1 for part, future in sent.items()}
        wait_until(lambda: all(reached.get(part, 0) >= end for part, end in ends.items()))

    try:
        for reader in readers:
            reader.start()
        for _ in range(20):
            join()
            all_read()
            readers.pop(draw.randrange(len(readers))).leave.set()
            all_read()
    finally:
        for reader in readers:
            reader.leave.set()
        for thread in threading.enumerate():
            if isinstance(thread, Reader):
                thread.join()
        producer.close()


def test_a_partition_that_was_held_back_in_the_middle_of_a_fetch_is_read_on(kafka: str, topics: Topics) -> None:
    names = dict(zip(("predictions", "outcomes"), topics("p", "o"), strict=True))
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all", linger_ms=50)
    for name, count in ((names["predictions"], 100), (names["outcomes"], 10)):
        for _ in range(count):
            producer.send(name, b"-", partition=0)
    producer.close()
    reading = Reader(kafka, f"group-{uuid4().hex[:10]}", names, {}, max_poll_records=7)
    membership, held, read = reading.membership(), ("predictions", 0), dict[Any, int]()

    def poll_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
        generation = membership.generation

        def once() -> bool:
            for part, (_, following) in membership.poll(0.1).items():
                read[part] = following
            if generation and membership.generation != generation:
                raise AssignmentMovedError
            return holds()

        wait_until(once, timeout_s)

    def hold_back_and_let_go() -> None:
        read.clear()
        poll_until(lambda: len(membership.parts) == 2)
        membership.open(held, 0)
        poll_until(lambda: bool(read))
        assert read[held] < 100
        membership.pause([held], paused=True)
        membership.open(("outcomes", 0), 0)
        poll_until(lambda: read.get(("outcomes", 0)) == 10)
        membership.pause([held], paused=False)
        poll_until(lambda: read[held] == 100, 20)

    try:
        for last in (False, False, True):  # a group that is new may assign twice, and then all parts are opened anew
            try:
                hold_back_and_let_go()
                break
            except AssignmentMovedError:
                assert not last, "the assignment moved each time"
    finally:
        membership.close()


def test_a_partition_that_is_not_ours_any_more_is_no_mistake_of_ours(kafka: str, topics: Topics) -> None:
    names = dict(zip(("predictions", "outcomes"), topics("p", "o"), strict=True))
    membership = Reader(kafka, f"group-{uuid4().hex[:10]}", names, {}).membership()
    try:
        with pytest.raises(LogUnavailableError, match="Unassigned partition"):
            membership.open(("predictions", 0), 0)  # nothing was assigned yet
    finally:
        membership.close()


@pytest.fixture
def half_read(kafka: str, tmp_path: Path) -> Iterator[MonitorArena]:
    """An arena whose only monitor has read half of the stream and was killed."""
    with MonitorArena(kafka, tmp_path, StreamPlan(4_000, 2, seed=11)) as arena:
        first = arena.member("one")
        arena.feeder.send(0.5, 0.0)
        arena.feeder.wait()
        arena.wait_work()
        first.kill()
        yield arena


def test_offsets_the_group_has_lost_change_nothing_for_the_state_decides(kafka: str, half_read: MonitorArena) -> None:
    group = half_read.names["group"]
    admin = admin_of(kafka)
    try:
        wait_until(lambda: not admin.describe_groups([group])[group]["members"])
        admin.delete_groups([group])
    finally:
        admin.close()
    assert half_read.position() == 0
    half_read.member("two")
    half_read.finish().check_all()


def test_input_that_was_deleted_before_it_was_read_is_refused_with_what_is_there(
    kafka: str, half_read: MonitorArena
) -> None:
    half_read.feeder.send(1.0, 0.0)
    half_read.feeder.wait()
    admin, part = admin_of(kafka), TopicPartition(half_read.names["o"], 1)
    try:
        end = admin.list_partition_offsets({part: OffsetSpec.LATEST})[part].offset
        admin.delete_records({part: end - 3})
    finally:
        admin.close()
    second = half_read.member("two")
    second.expected = True
    assert second.process.wait(timeout=90) == BrokerError.exit_code
    assert f"{part.topic}[1] goes on at offset" in second.errors
    assert f"the log holds {end - 3} to {end}" in second.errors
    assert "streamcal state" in second.errors


def test_a_commit_larger_than_a_record_goes_in_pieces_and_comes_back_whole(kafka: str, tmp_path: Path) -> None:
    with MonitorArena(kafka, tmp_path, StreamPlan(40_000, 1, seed=12, gap_ms=100), sizes={}) as arena:
        arena.config["kafka"] |= {"commit_interval": "5s"}
        arena.config["kafka"]["consumer"] |= {"max_poll_records": 20_000}
        arena.feeder.send(0.9, 0.0)
        arena.feeder.wait()
        first = arena.member("one")
        arena.wait_work()
        first.kill()
        kinds = [msgspec.msgpack.decode(record.value) for record in read_all(kafka, arena.config["topics"]["state"])]
        assert any(kind == "delta" and pieces > 1 for _, kind, _, _, _, pieces, *_ in kinds)
        arena.member("one")
        arena.finish().check_all()


def test_a_broker_that_hangs_in_the_middle_of_a_commit_loses_and_repeats_nothing(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    pid = getattr(kafka_broker, "pid", None)
    if pid is None:
        pytest.skip("the process of the broker is not known")
    with MonitorArena(kafka_broker.bootstrap, tmp_path, StreamPlan(4_000, 2, seed=13)) as arena:
        member = arena.member("one", {"at": "delta before", "skip": 20, "signal": "SIGSTOP"})
        arena.feeder.send(0.3, 0.0)
        wait_until(lambda: shows_figures(member))
        arena.feeder.wait()
        arena.feeder.send(0.8, 10.0)
        wait_until(lambda: member.fault is not None)
        arena.feeder.wait()
        os.kill(pid, signal.SIGSTOP)
        try:
            member.process.send_signal(signal.SIGCONT)  # with a delta in its hands
            # The session is over: nobody knows whether another aggregates by now.
            wait_until(lambda: not shows_figures(member) and readiness(member).startswith("not ready: no commit"))
            # And what was on its way is given up.
            wait_until(lambda: member.event("the state does not answer; claiming again") is not None, 120)
        finally:
            os.kill(pid, signal.SIGCONT)
        arena.finish().check_all()


def shows_figures(member: Member) -> bool:
    """Whether anything of the stream is in the metrics."""
    return any(name == "streamcal_labelled_predictions" for name, _ in member.samples())


def readiness(member: Member) -> str:
    """What ``/readyz`` says."""
    try:
        return member.get("/readyz").decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def test_figures_are_shown_by_the_one_that_aggregates_alone(kafka: str, tmp_path: Path) -> None:
    with MonitorArena(kafka, tmp_path, StreamPlan(2_000, 2, seed=15)) as arena:
        later = arena.member("b")
        arena.feeder.send(0.5, 0.0)
        arena.feeder.wait()
        wait_until(lambda: shows_figures(later))
        heir = arena.member("a")  # parts are given out by names
        wait_until(lambda: heir.aggregates and not later.aggregates)
        wait_until(lambda: shows_figures(heir) and not shows_figures(later))
        assert readiness(later) == "ready\n"
        arena.finish().check_all()


def test_nothing_is_missing_where_only_the_end_of_a_transaction_was_not_read(kafka: str, tmp_path: Path) -> None:
    with MonitorArena(kafka, tmp_path, StreamPlan(0, 1, seed=16)) as arena:
        ends = {}
        for topic, rest in (("p", {"score": 0.5}), ("o", {"label": 1})):
            name = arena.names[topic]
            producer = KafkaProducer(bootstrap_servers=kafka, transactional_id=f"{name}-writer")
            producer.init_transactions()
            for end in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                for number in range(10):
                    event = {"id": f"id-{number}", "ts": START_MS + number, **rest}
                    producer.send(name, json.dumps(event).encode(), key=b"-", partition=0, timestamp_ms=event["ts"])
                producer.flush()
                end()
            producer.close()
            ends[TopicPartition(name, 0)] = 22  # ten records and a marker, twice
        first = arena.member("one")
        wait_until(lambda: arena.position() == sum(ends.values()))
        assert first.terminate() == 0
        first.expected = True
        admin = admin_of(kafka)
        try:
            admin.delete_records(ends)  # as their retention would
        finally:
            admin.close()
        second = arena.member("two")
        second.wait_ready()
        wait_until(lambda: shows_figures(second))
        arena.stop()


def test_inputs_that_were_deleted_and_made_anew_are_refused_however_much_they_hold(
    kafka: str, half_read: MonitorArena
) -> None:
    admin, name = admin_of(kafka), half_read.names["o"]
    try:
        admin.delete_topics([name])
        wait_until(lambda: name not in admin.list_topics())
        create_topics(kafka, {name: half_read.plan.partitions})
    finally:
        admin.close()
    producer = KafkaProducer(bootstrap_servers=kafka)
    for number in range(20_000):
        producer.send(name, b"{}", key=b"-", partition=number % half_read.plan.partitions)
    producer.close()
    second = half_read.member("two")
    second.expected = True
    assert second.process.wait(timeout=90) == ConfigChangeError.exit_code
    assert "(id of topics.outcomes)" in second.errors
    assert "streamcal state rebuild" in second.errors


def test_without_records_a_monitor_hardly_uses_the_processor(kafka: str, tmp_path: Path) -> None:
    with MonitorArena(kafka, tmp_path, StreamPlan(0, 4, seed=14)) as arena:
        arena.config["kafka"] |= {"commit_interval": "1s"}
        member = arena.member("one")
        member.wait_ready()

        def used_s() -> float:
            fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        before, began = used_s(), time.monotonic()
        threading.Event().wait(10.0)
        share = (used_s() - before) / (time.monotonic() - began)
        arena.stop()
    assert share < 0.05
