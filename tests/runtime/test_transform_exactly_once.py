"""The moments of a transform that a real broker shows too rarely, with a client that plays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, ProducerFencedError, UnknownError
from kafka.structs import ConsumerGroupMetadata, MemberState

from streamcal.errors import BrokerError
from streamcal.runtime.config import Config
from streamcal.runtime.transforming.membership import Batch, Membership
from streamcal.runtime.transforming.plan import Plan, make_plan
from streamcal.runtime.transforming.transaction import Outgoing, Transactions
from streamcal.runtime.transforming.watchdog import Watchdog

PART = TopicPartition("raw", 0)
ME = ConsumerGroupMetadata("g", 5, "me", "one", MemberState.STABLE)


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    with Watchdog(60, exit_code=4) as made:
        yield made


def plan(**transform: Any) -> Plan:
    given = {"input": "raw", "instance_id": "one", "commit_interval": "0s", **transform}
    kafka = {"bootstrap_servers": ["localhost:9092"], "group_id": "g", "start_from": "earliest"}
    return make_plan(Config.model_validate({"kafka": kafka, "transform": given}))


class Consumer:
    """Plays one script: each poll does its next step, which gives records or moves partitions."""

    def __init__(self, *steps: Callable[[Consumer], dict[Any, list[Any]]], committed: int | None = 0) -> None:
        self.config = {"max_poll_records": 1000}
        self.steps = list(steps)
        self.at = committed
        self.member = ME
        self.sought: list[int] = []
        self.listener: Any = None
        self.reached: int | None = None

    def partitions_for_topic(self, _: str) -> set[int]:
        return {0}

    def subscribe(self, _: list[str], listener: Any) -> None:
        self.listener = listener

    def poll(self, timeout_ms: int) -> dict[Any, list[Any]]:
        return self.steps.pop(0)(self) if self.steps else {}

    def assignment(self) -> set[TopicPartition]:
        return {PART}

    def committed(self, _: Any, timeout_ms: int) -> int | None:
        return self.at

    def beginning_offsets(self, parts: list[Any], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(parts, 3)

    def end_offsets(self, parts: list[Any], timeout_ms: int) -> dict[Any, int]:
        return dict.fromkeys(parts, 9)

    def seek(self, _: Any, offset: int) -> None:
        self.sought.append(offset)

    def position(self, _: Any, timeout_ms: int) -> int | None:
        return self.reached

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self.member


def records(*offsets: int) -> Callable[[Consumer], dict[Any, list[Any]]]:
    return lambda _: {PART: [SimpleNamespace(offset=offset) for offset in offsets]}


def assigned(consumer: Consumer) -> dict[Any, list[Any]]:
    consumer.listener.on_partitions_assigned({PART})
    return {}


def revoked(consumer: Consumer) -> dict[Any, list[Any]]:
    consumer.listener.on_partitions_revoked({PART})
    return {}


def becoming(**change: Any) -> Callable[[Consumer], dict[Any, list[Any]]]:
    def step(consumer: Consumer) -> dict[Any, list[Any]]:
        consumer.member = ME._replace(**change)
        return records(0, 1)(consumer)

    return step


def reading(watchdog: Watchdog, consumer: Consumer, **transform: Any) -> Membership:
    return Membership(consumer, plan(**transform), check=lambda: None, watchdog=watchdog, where="x")


def test_records_are_handed_out_with_the_offsets_behind_them_and_who_read_them(watchdog: Watchdog) -> None:
    membership = reading(watchdog, Consumer(assigned, records(4, 5), committed=4))
    assert membership.batch(0) is None
    assert membership.batch(0) is None  # placed; nothing to commit
    batch = membership.batch(0)
    assert batch is not None
    assert batch.offsets == {PART: 6}
    assert batch.member is ME


def test_what_is_no_record_is_passed_with_the_records_before_it_and_by_itself(watchdog: Watchdog) -> None:
    consumer = Consumer(assigned, records(4, 5), committed=4)
    membership = reading(watchdog, consumer)
    assert [membership.batch(0), membership.batch(0)] == [None, None]
    consumer.reached = 7  # a marker at 6
    batch = membership.batch(0)
    assert batch is not None
    assert batch.offsets == {PART: 7}
    membership.committed(batch)
    assert membership.batch(0) is None
    consumer.reached = 20  # a transaction that was aborted
    assert membership.batch(0) == Batch({}, {PART: 20}, ME)


def test_records_in_hand_are_dropped_when_partitions_are_revoked_meanwhile(watchdog: Watchdog) -> None:
    consumer = Consumer(assigned, records(0), revoked, assigned, records(0), committed=0)
    membership = reading(watchdog, consumer, commit_interval="10s")
    consumer.config["max_poll_records"] = 2
    found = [membership.batch(0) for _ in range(4)]
    assert found == [None, None, None, None]
    assert consumer.sought == [0, 0], "read again from where the group stands"


@pytest.mark.parametrize(
    "change", [{"generation_id": -1, "member_id": ""}, {"state": MemberState.REBALANCING, "generation_id": 6}]
)
def test_nothing_is_written_between_two_memberships(watchdog: Watchdog, change: dict[str, Any]) -> None:
    consumer = Consumer(assigned, becoming(**change), committed=0)
    membership = reading(watchdog, consumer)
    assert [membership.batch(0) for _ in range(4)] == [None] * 4


def test_a_start_is_committed_before_any_record_as_who_was_asked_for_it(watchdog: Watchdog) -> None:
    membership = reading(watchdog, Consumer(assigned, committed=None))
    assert membership.batch(0) is None
    batch = membership.batch(0)
    assert batch == Batch({}, {PART: 3}, ME)


def test_a_record_that_comes_a_second_time_is_a_broken_promise(watchdog: Watchdog) -> None:
    membership = reading(watchdog, Consumer(assigned, records(3), committed=4))
    assert [membership.batch(0), membership.batch(0)] == [None, None]
    with pytest.raises(AssertionError, match="read again from 3"):
        membership.batch(0)


class Future:
    def __init__(self, error: Exception | None = None, *, late: bool = False) -> None:
        self.error, self.late = error, late

    def succeeded(self) -> bool:
        return self.error is None and not self.late

    def get(self, timeout: float) -> None:
        if self.error is not None:
            raise self.error


class Producer:
    """Notes what is asked of it."""

    def __init__(self, *futures: Future, flush: Exception | None = None, offsets: Exception | None = None) -> None:
        self.futures = list(futures)
        self.errors = {"flush": flush, "send_offsets_to_transaction": offsets}
        self.asked: list[str] = []

    def send(self, *_: Any, **__: Any) -> Future:
        return self.futures.pop(0)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*_: Any) -> None:
            self.asked.append(name)
            if error := self.errors.get(name):
                raise error

        return call


def commit(watchdog: Watchdog, producer: Producer) -> None:
    outgoing = [Outgoing(b"k", b"v", (), 0, 1, number) for number in range(len(producer.futures))]
    Transactions(producer, plan(), watchdog=watchdog, where="x").commit(outgoing, Batch({}, {PART: 2}, ME))


def test_a_record_that_failed_without_the_transaction_knowing_is_not_committed_around(watchdog: Watchdog) -> None:
    producer = Producer(Future(), Future(KafkaTimeoutError("expired")))
    with pytest.raises(BrokerError, match="expired"):
        commit(watchdog, producer)
    assert producer.asked == ["begin_transaction", "flush", "abort_transaction"]


def test_parts_of_a_batch_that_was_split_are_waited_for(watchdog: Watchdog) -> None:
    producer = Producer(Future(), Future(late=True), flush=UnknownError("Future not done"))
    commit(watchdog, producer)
    assert producer.asked == ["begin_transaction", "flush", "send_offsets_to_transaction", "commit_transaction"]


def test_a_fence_is_told_as_what_it_is(watchdog: Watchdog) -> None:
    for error in (ProducerFencedError(), KafkaError("unusable", ProducerFencedError())):
        producer = Producer(Future(), offsets=error)
        with pytest.raises(BrokerError, match="took over as instance 'one' of group 'g-transform'"):
            commit(watchdog, producer)
        assert "commit_transaction" not in producer.asked
