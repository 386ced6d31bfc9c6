"""The one loop, on the log in memory: what is polled is folded, published, committed and shown."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from engine_streams import HOUR_MS, START_MS, TOPIC, engine, over_confident
from recount import COUNTERS, recount
from recount_events import Event, Rules
from structlog.testing import capture_logs

from streamcal.engine import Slice
from streamcal.maps.document import decode, encode, new_document
from streamcal.maps.families import Platt, Prior
from streamcal.runtime.logs.base import Advance, LogRecord, Poll
from streamcal.runtime.logs.memory import MemoryBroker, MemoryLog
from streamcal.runtime.loop import Pace, Readers, Runtime

RULES = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000)


def send(broker: MemoryBroker, events: Iterable[Event]) -> None:
    for topic, _, value, _ in events:
        broker.send(TOPIC[topic], json.dumps(value).encode(), value["id"].encode(), timestamp=value["ts"])


def memory(partitions: int = 1, **options: int) -> MemoryBroker:
    return MemoryBroker(partitions, now_ms=lambda: START_MS, **options)


def run_until_read(runtime: Runtime, broker: MemoryBroker) -> None:
    runtime.run(lambda: not any(broker.unread().values()))


def test_what_was_sent_is_counted_and_the_maps_made_are_published() -> None:
    events = over_confident(3, hours=20, per_hour=60)
    broker, readers = memory(), Readers()
    send(broker, events)
    machine = engine(RULES)
    run_until_read(Runtime(machine, MemoryLog(broker, max_records=500), readers=readers), broker)
    truth = recount(events, RULES)
    snapshot = readers.holder.latest
    assert snapshot is not None
    assert {name: snapshot.counters[name] for name in COUNTERS} == dict(truth.counters)
    assert snapshot.pending == truth.pending
    published = [decode(document) for key, document in broker.maps_from(0) if key == "default"]
    assert [document.version for document in published] == list(range(1, len(published) + 1))
    assert len(published) >= 1
    assert snapshot.models[0].champion is not None
    assert snapshot.models[0].champion.version == len(published)


def test_a_second_run_goes_on_from_the_maps_of_the_first() -> None:
    events = over_confident(3, hours=20, per_hour=60)
    broker = memory()
    for key, version in (("default", 6), ("default", 7), ("default#shadow", 9), ("other#1", 4)):
        document = new_document(key.removesuffix("#shadow"), version, Platt(slope=0.5, intercept=0.5), at_ms=5)
        broker.publish_map(key, encode(document))
    send(broker, events)
    machine = engine(RULES, priors={"default": Prior(negative_sampling_rate=0.1)})
    run_until_read(Runtime(machine, MemoryLog(broker)), broker)
    new = [decode(document) for _, document in broker.maps_from(4)]
    assert [document.version for document in new] == [10 + i for i in range(len(new))]
    assert all(document.family == "platt" for document in new)
    assert len(new) >= 1
    assert new[0].parent == 7
    other = machine.loop(machine.names.model("other#1")).state()
    assert other is not None
    assert other.version == 4


def test_the_map_of_day_0_is_published_before_anything_is_read() -> None:
    broker = memory()
    machine = engine(RULES, priors={"a": Prior(negative_sampling_rate=0.1)})
    Runtime(machine, MemoryLog(broker)).run(lambda: True)
    assert [(key, decode(document).version) for key, document in broker.maps_from(0)] == [("a", 1)]


class Scripted:
    """A log that tells in turn what a test wants."""

    def __init__(self, polls: Sequence[Poll | frozenset[int]]) -> None:
        self._polls = list(polls)
        self.partitions = frozenset((0,))

        self.calls: list[str] = []

    @property
    def finished(self) -> bool:
        return not self._polls

    def open(self) -> Mapping[str, Sequence[bytes]]:
        return {}

    def poll(self, timeout_s: float) -> Poll:
        self.calls.append("poll")
        found = self._polls.pop(0)
        if isinstance(found, Poll):
            return found
        self.partitions = found
        return Poll([piece("predictions", number, START_MS) for number in sorted(found)])

    def lag(self) -> dict[tuple[str, int], int]:
        return {("predictions", 0): 3}

    def publish(self, key: str, document: bytes) -> None:
        self.calls.append(f"publish {key}")

    def commit(self) -> None:
        self.calls.append("commit")

    def close(self) -> None:
        self.calls.append("close")


def piece(topic: str, partition: int, ts: int) -> Slice:
    value = {"id": f"{topic}{ts}", "ts": ts, "score": 0.3, "label": 1}
    return Slice(topic, partition, [LogRecord(json.dumps(value).encode())])


def test_records_of_partitions_that_came_with_the_poll_are_joined() -> None:
    log = Scripted([frozenset((0,)), frozenset((0, 1)), frozenset((1,))])
    machine = engine(RULES)
    Runtime(machine, log).run()
    assert machine.logs == [("predictions", 1), ("outcomes", 1)]
    assert machine.decoding.records["predictions", 1] == 2


def test_what_was_folded_is_committed_at_the_end_and_then_shown() -> None:
    log, readers = Scripted([Poll([piece("predictions", 0, START_MS)])]), Readers()
    Runtime(engine(RULES), log, readers=readers).run()
    assert log.calls == ["poll", "commit"]
    snapshot = readers.holder.latest
    assert snapshot is not None
    assert snapshot.lag == {("predictions", 0): 3}
    assert snapshot.counters["accepted_prediction"] == 1
    assert readers.readiness.reason == "stopping"


def test_nothing_is_committed_when_folding_fails() -> None:
    log = Scripted([Poll([piece("predictions", 0, START_MS), piece("predictions", 7, START_MS)])])
    runtime = Runtime(engine(RULES), log)
    try:
        runtime.run()
    except KeyError:
        assert log.calls == ["poll"]
    else:
        raise AssertionError("a record of a partition that is not ours went through")


def test_recorded_advances_come_after_the_records_of_their_poll_and_ended_logs_follow() -> None:
    log = Scripted(
        [
            Poll(ended=[("predictions", 1)]),
            Poll([piece("predictions", 0, START_MS)], [Advance("outcomes", 0, START_MS + 5)]),
            Poll([piece("outcomes", 1, START_MS + 90_000)], ended=[("outcomes", 0)]),
        ]
    )
    log.partitions = frozenset((0, 1))
    machine = engine(RULES)
    Runtime(machine, log).run()
    assert machine.watermark("predictions", 1) == machine.watermark("predictions", 0) == START_MS - 60_000
    assert machine.watermark("outcomes", 1) == START_MS + 30_000
    assert machine.watermark("outcomes", 0) == START_MS + 30_000


def test_a_pace_is_due_once_per_interval() -> None:
    assert Pace(0.0).due()
    assert not Pace(3600.0).due()


def test_a_full_topic_holds_its_producer_until_records_are_read() -> None:
    broker = memory(capacity=10)
    events = over_confident(3, hours=1, per_hour=60)
    sent: list[int] = []

    def produce() -> None:
        send(broker, events)
        sent.append(len(events))

    machine = engine(RULES)
    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    deadline = time.monotonic() + 30
    Runtime(machine, MemoryLog(broker, max_records=4)).run(
        lambda: (bool(sent) and not any(broker.unread().values())) or time.monotonic() > deadline
    )
    broker.close()
    producer.join()
    assert sent == [len(events)]
    read = machine.decoding.records.total()
    assert read == len(events)
    assert {name: machine.tally.total()[name] for name in COUNTERS} == dict(recount(events, RULES).counters)


def test_records_with_one_key_share_a_partition_of_both_topics() -> None:
    broker = memory(4)
    events = over_confident(3, hours=2, per_hour=60)
    send(broker, events)
    taken = broker.take(0.0, 1000)
    places: dict[str, set[int]] = {}
    for (_, number), records in taken.items():
        for record in records:
            places.setdefault(json.loads(record.value or b"")["id"], set()).add(number)
    assert all(len(numbers) == 1 for numbers in places.values())
    assert len(set().union(*places.values())) == 4
    assert all(
        np.diff([record.offset for record in records]).tolist() == [1] * (len(records) - 1)
        for records in taken.values()
    )


def test_rejected_events_are_told_of_by_place_and_reason_and_nothing_they_say() -> None:
    broker = memory()
    broker.send("predictions", b'{"id": "secret", "score": 7, "ts": 1700000000000}')
    broker.send("outcomes", b"not json")
    with capture_logs() as told:
        run_until_read(Runtime(engine(RULES), MemoryLog(broker)), broker)
    lines = {tuple(line[name] for name in ("topic", "partition", "offset", "reason")) for line in told}
    assert lines == {("predictions", 0, 0, "bad_score"), ("outcomes", 0, 0, "malformed")}
    assert "secret" not in repr(told)


def test_what_is_no_map_document_in_the_maps_topic_is_passed_over() -> None:
    broker = memory()
    broker.publish_map("default", b"damaged")
    with capture_logs() as told:
        Runtime(engine(RULES), MemoryLog(broker)).run(lambda: True)
    assert [line["key"] for line in told if line["event"] == "map document passed over"] == ["default"]
