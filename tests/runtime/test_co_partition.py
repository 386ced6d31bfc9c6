"""Which partitioner wrote a topic, and whether two topics put an id into the same partition."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_the_client
from raw_records import RawRecord

from streamcal.runtime.logs.co_partition import EVERY, CoPartition
from streamcal.runtime.logs.partitioner import PARTITIONERS, likely_rule, murmur2
from streamcal.runtime.logs.record_ids import IdReader
from streamcal.serve.process_counters import ProcessCounters
from streamcal.stream.events import Record

NAMES = {"predictions": "scored", "outcomes": "known"}


def test_murmur2_is_that_of_the_client() -> None:
    draw = random.Random(4)
    for length in range(70):
        key = draw.randbytes(length)
        assert murmur2(key) == murmur2_of_the_client(key)


# Java: Utils.murmur2 in Kafka's UtilsTest; crc32 and FNV-1a: the check values of their definitions.
def test_hashes_have_their_published_values() -> None:
    published = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    published |= {b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}
    for key, value in published.items():
        assert murmur2(key) == value & 0xFFFFFFFF
    assert PARTITIONERS["crc32"](b"123456789") == 0xCBF43926
    assert PARTITIONERS["fnv1a"](b"a") == (1 << 32) - 0xE40C292C


@pytest.mark.parametrize("partitions", [2, 3, 12])
@pytest.mark.parametrize("rule", PARTITIONERS)
def test_a_rule_is_told_from_a_sample(rule: str, partitions: int) -> None:
    keys = [f"id-{number}".encode() for number in range(300)]
    assert likely_rule({key: PARTITIONERS[rule](key) % partitions for key in keys}, partitions) == rule


def test_too_few_keys_or_one_partition_tell_nothing_and_chance_is_no_rule() -> None:
    draw = random.Random(7)
    assert likely_rule({b"%d" % n: 0 for n in range(500)}, 1) is None
    assert likely_rule({b"%d" % n: n % 2 for n in range(19)}, 2) is None
    assert likely_rule({b"%d" % n: draw.randrange(2) for n in range(500)}, 2) == "unknown"


def records(ids: Sequence[str], key: Callable[[str], bytes | None] = str.encode, offset: int = 0) -> list[Record]:
    return [
        RawRecord(json.dumps({"id": text}).encode(), key=key(text), offset=offset + place)
        for place, text in enumerate(ids)
    ]


def watch_of(counters: ProcessCounters | None = None, **further: object) -> CoPartition:
    reader = IdReader("id")
    return CoPartition(dict.fromkeys(NAMES, reader.many), 4, NAMES, counters, **further)  # type: ignore[arg-type]


def show(
    watch: CoPartition, role: str, ids: Sequence[str], rule: str, key: Callable[[str], bytes | None] = str.encode
) -> None:
    by_partition: dict[int, list[str]] = {}
    for text in ids:
        hashed = (key(text) or text.encode()) if rule == "murmur2 of the key" else text.encode()
        place = PARTITIONERS["murmur2" if rule == "murmur2 of the key" else rule](hashed) % 4
        by_partition.setdefault(place, []).append(text)
    for partition, held in by_partition.items():
        watch.look(role, partition, records(held, key))


IDS = [f"id-{number}" for number in range(400)]
OTHERS = [f"another-{number}" for number in range(400)]


@pytest.mark.parametrize("rule", PARTITIONERS)
@pytest.mark.parametrize("ids", [IDS, OTHERS])
def test_topics_written_by_the_same_rule_are_fine(rule: str, ids: list[str]) -> None:
    watch = watch_of()
    show(watch, "predictions", IDS, rule)
    show(watch, "outcomes", ids, rule)
    assert watch.problem() is None


def test_different_partitioners_are_refused_and_named() -> None:
    for ids in (IDS, OTHERS):
        watch = watch_of()
        show(watch, "predictions", IDS, "crc32")
        show(watch, "outcomes", ids, "murmur2")
        problem = watch.problem()
        assert problem is not None
        assert "'scored' is placed by crc32, librdkafka's default (set partitioner=murmur2_random" in problem.what
        assert "'known' is placed by murmur2" in problem.what
        assert "join.repartition: predictions" in problem.remedy


@pytest.mark.parametrize(
    ("key", "told"),
    [(lambda text: b"customer-" + text[-1:].encode(), "keyed by something else"), (lambda _: None, "has no keys")],
)
def test_a_topic_keyed_by_something_else_is_refused(key: Callable[[str], bytes | None], told: str) -> None:
    watch = watch_of()
    show(watch, "predictions", IDS, "murmur2")
    draw, spread = random.Random(1), [[] for _ in range(4)]  # type: list[list[str]]
    for text in OTHERS:
        spread[draw.randrange(4)].append(text)
    for partition, held in enumerate(spread):
        watch.look("outcomes", partition, records(held, key))
    problem = watch.problem()
    assert problem is not None
    assert told in problem.what
    assert "join.repartition: outcomes" in problem.remedy


def test_topics_that_share_another_key_meet_and_are_fine() -> None:
    def customer(text: str) -> bytes:
        return b"customer-" + text[-2:].encode()

    watch = watch_of()
    for role in NAMES:
        show(watch, role, IDS, "murmur2 of the key", customer)
    assert watch.rule("predictions") == "unknown"
    assert watch.problem() is None


def test_a_topic_of_ours_makes_the_other_follow_its_rule() -> None:
    watch = watch_of(rewritten={"outcomes"})
    show(watch, "predictions", IDS, "crc32")
    problem = watch.problem()
    assert problem is not None
    assert "join.repartition: both" in problem.remedy


def test_one_record_in_a_thousand_is_looked_at_and_those_elsewhere_are_counted() -> None:
    counters = ProcessCounters()
    watch = watch_of(counters)
    show(watch, "predictions", IDS, "murmur2")
    already = counters.value("streamcal_partitioner_checked", ("scored",))
    bounds = [0, 1, 700, 2500, 2500, 9000]
    for start, end in pairwise(bounds):
        watch.sample("predictions", 3, records([f"id-{n}" for n in range(start, end)], offset=start))
    assert counters.value("streamcal_partitioner_checked", ("scored",)) - already == 9000 // EVERY
    wrong = sum(PARTITIONERS["murmur2"](b"id-%d" % n) % 4 != 3 for n in range(0, 9000, EVERY))
    assert counters.value("streamcal_partitioner_mismatch", ("scored",)) == wrong


@pytest.mark.parametrize(
    ("path", "record", "found"),
    [
        ("id", RawRecord(b'{"id":"a"}'), "a"),
        ("id", RawRecord(b'{"id":12345678901234567890123}'), "12345678901234567890123"),
        ("id", RawRecord(b'{"id":1.5}'), None),
        ("id", RawRecord(b'{"id":true}'), None),
        ("id", RawRecord(b'{"id":""}'), None),
        ("id", RawRecord(b"{"), None),
        ("id", RawRecord(None), None),
        ("a.b", RawRecord(b'{"a":{"b":"x"}}'), "x"),
        ("a.b", RawRecord(b'{"a":3}'), None),
        ("$key", RawRecord(b"{}", key=b"k"), "k"),
        ("$key", RawRecord(b"{}", key=b"\xff"), None),
        ("$header.h", RawRecord(b"{}", headers=(("h", b"v"),)), "v"),
    ],
)
def test_ids_are_read_as_the_codec_reads_them(path: str, record: RawRecord, found: str | None) -> None:
    assert IdReader(path).many([record]) == [found]
