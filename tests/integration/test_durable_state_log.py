"""The log with one owner on a partition of a real broker: fences, gaps, ends that are not records."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_state import KafkaRecordLog, Producing
from streamcal.state.claimed_log import (
    ClaimedLog,
    FencedError,
    LogUnavailableError,
    Restored,
    StateLostError,
)

pytestmark = pytest.mark.kafka

Owner = Callable[[str], ClaimedLog]


@pytest.fixture
def clients(kafka: str) -> KafkaClients:
    return KafkaClients(Kafka(bootstrap_servers=(kafka,), group_id=f"group-{uuid4().hex[:10]}"))


@pytest.fixture
def producing(clients: KafkaClients) -> Iterator[Producing]:
    held = Producing(clients)
    yield held
    held.close()


@pytest.fixture
def topic(topics: Callable[..., tuple[str, ...]]) -> str:
    return topics("state", configs={"cleanup.policy": "delete", "retention.ms": "-1"})[0]


@pytest.fixture
def log(clients: KafkaClients, producing: Producing, topic: str) -> KafkaRecordLog:
    return KafkaRecordLog(clients, producing, topic, 0)


@pytest.fixture
def owner(log: KafkaRecordLog) -> Owner:
    return lambda name: ClaimedLog(log, name.encode(), where="state[0]", chunk_bytes=100)


def taken_over(owner: ClaimedLog) -> Restored:
    """What the owners before have left."""
    *_, restored = owner.take_over(b"test")
    return restored


def test_a_delta_written_behind_anothers_claim_is_ignored_and_its_author_told(owner: Owner) -> None:
    first, second = owner("first"), owner("second")
    taken_over(first)
    first.append(b"one")
    assert taken_over(second).deltas == [b"one"]
    with pytest.raises(FencedError, match=r"claimed by another at offset 2"):
        first.append(b"a zombie's")
    second.append(b"two")
    restored = taken_over(owner("third"))
    assert restored.deltas == [b"one", b"two"]
    assert restored.ignored == 1


def test_chunks_of_a_zombie_between_those_of_its_heir_are_left_out(owner: Owner, log: KafkaRecordLog) -> None:
    first, second = owner("first"), owner("second")
    taken_over(first)
    taken_over(second)
    whole = bytes(range(250)) * 2
    records = [second._record("delta", whole[at : at + 100], at // 100, 5) for at in range(0, 500, 100)]
    for record in records:
        log.send([record])()
        log.send([first._record("delta", b"a zombie's", 0, 1)])()
    assert taken_over(owner("third")).deltas == [whole]


def test_a_partition_that_was_emptied_is_no_fresh_start(kafka: str, owner: Owner, topic: str) -> None:
    first = owner("first")
    taken_over(first)
    first.append(b"one")
    delete_before(kafka, topic, 2)
    with pytest.raises(StateLostError, match="nothing is left before offset 2") as error:
        taken_over(owner("second"))
    assert "streamcal state" in str(error.value)


def test_a_partition_cut_in_the_middle_of_a_claim_is_refused(kafka: str, owner: Owner, topic: str) -> None:
    first = owner("first")
    taken_over(first)
    first.append(b"one")
    first.append(b"two")
    delete_before(kafka, topic, 2)
    with pytest.raises(StateLostError, match="begins at offset 2 in the middle"):
        taken_over(owner("second"))


def test_what_lies_before_the_snapshot_before_the_last_is_deleted_and_nothing_is_missed(owner: Owner) -> None:
    first = owner("first")
    taken_over(first)
    for number in range(3):
        first.append(b"delta %d" % number)
        first.snapshot(b"snapshot %d " % number * 50)
    first.append(b"last")
    restored = taken_over(owner("second"))
    assert restored.snapshot == b"snapshot 2 " * 50
    assert restored.deltas == [b"last"]
    # from the first chunk of the snapshot before on: two snapshots of six chunks, two deltas
    assert restored.records == 14


def test_a_restore_ends_at_its_claim_where_the_last_record_before_it_is_no_record(
    kafka: str, owner: Owner, topic: str
) -> None:
    first = owner("first")
    taken_over(first)
    first.append(b"one")
    with transaction(kafka) as producer:
        producer.begin_transaction()
        producer.send(topic, b"never to be read", partition=0)
        producer.flush()
        producer.abort_transaction()
    assert taken_over(owner("second")).deltas == [b"one"]


def test_a_restore_waits_for_a_transaction_left_open_and_misses_nothing(kafka: str, owner: Owner, topic: str) -> None:
    first = owner("first")
    taken_over(first)
    with transaction(kafka) as producer:
        producer.begin_transaction()
        producer.send(topic, b"never to be read", partition=0)
        producer.flush()
        first_step = owner("second").take_over(b"test")
        assert next(first_step).deltas == []
        producer.abort_transaction()
        *_, restored = first_step
    assert restored.records == 1


def test_a_log_whose_owner_deletes_what_is_being_read_is_claimed_again_and_not_lost(
    clients: KafkaClients, producing: Producing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = KafkaRecordLog(clients, producing, topic, 0)
    first, waiting = ClaimedLog(held, b"first", where="state[0]"), list[int]()
    taken_over(first)
    for number in range(3):  # larger than a fetch
        for _ in range(22):
            first.append(random.Random(number).randbytes(850_000))
        if number == 2:
            monkeypatch.setattr(held, "delete_before", waiting.append)  # on its way while another takes over
        first.snapshot(b"snapshot %d" % number)
    second = ClaimedLog(KafkaRecordLog(clients, producing, topic, 0), b"second", where="state[0]")

    def take_over_while_it_is_deleted() -> None:
        for restored in second.take_over(b"test"):
            if restored.records >= 2 and waiting:
                delete_before(clients.servers, topic, waiting.pop())

    with pytest.raises(LogUnavailableError):
        take_over_while_it_is_deleted()
    restored = taken_over(ClaimedLog(held, b"third", where="state[0]"))
    assert restored.snapshot == b"snapshot 2"
    assert restored.deltas == []


class transaction:  # noqa: N801, used like a function
    """A transactional producer for a ``with`` block."""

    def __init__(self, kafka: str) -> None:
        self._producer: Any = KafkaProducer(bootstrap_servers=kafka, transactional_id=f"foreign-{uuid4().hex[:8]}")

    def __enter__(self) -> Any:
        self._producer.init_transactions()
        return self._producer

    def __exit__(self, *_: object) -> None:
        self._producer.close()


def delete_before(kafka: str, topic: str, offset: int) -> None:
    """Delete records as an operator, or a retention, would."""
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        admin.delete_records({TopicPartition(topic, 0): offset})
    finally:
        admin.close()
