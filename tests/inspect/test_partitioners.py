from __future__ import annotations

import random

import pytest

from streamcal.inspect.partitioners import PARTITIONERS, likely_partitioner
from streamcal.inspect.sample import SampledRecord

KEYS = [f"{random.Random(i).getrandbits(80):020x}".encode() for i in range(300)]


def placed(name: str, partitions: int, keys: list[bytes] = KEYS) -> list[SampledRecord]:
    rule = PARTITIONERS[name]
    return [SampledRecord(b"", key, partition=rule(key) % partitions) for key in keys]


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        # Apache Kafka, UtilsTest.testMurmur2: the signed hashes, with the sign bit cleared as the partitioner does.
        ("murmur2", b"21", -973932308 & 0x7FFFFFFF),
        ("murmur2", b"foobar", -790332482 & 0x7FFFFFFF),
        ("murmur2", b"a-little-bit-long-string", -985981536 & 0x7FFFFFFF),
        ("murmur2", b"a-little-bit-longer-string", -1486304829 & 0x7FFFFFFF),
        ("murmur2", b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971 & 0x7FFFFFFF),
        # The check value of CRC-32/ISO-HDLC.
        ("crc32", b"123456789", 0xCBF43926),
        # The 32-bit test vector of the FNV authors for "foobar", as Sarama takes it: the absolute of the signed number.
        ("fnv1a", b"foobar", (1 << 32) - 0xBF9CF968),
        ("fnv1a", b"", (1 << 32) - 0x811C9DC5),
    ],
)
def test_hashes_are_those_of_the_producers(name: str, key: bytes, expected: int) -> None:
    assert PARTITIONERS[name](key) == expected


@pytest.mark.parametrize("partitions", [2, 3, 12])
@pytest.mark.parametrize("name", PARTITIONERS)
def test_the_rule_is_recognised(name: str, partitions: int) -> None:
    assert likely_partitioner(placed(name, partitions), partitions) == name


def test_a_few_keys_out_of_place_change_nothing() -> None:
    records = placed("crc32", 4)
    records[0] = records[0]._replace(partition=(records[0].partition + 1) % 4)
    assert likely_partitioner(records, 4) == "crc32"


def test_another_rule_is_unknown_and_too_little_is_nothing() -> None:
    scattered = [record._replace(partition=i % 3) for i, record in enumerate(placed("murmur2", 3))]
    assert likely_partitioner(scattered, 3) == "unknown"
    assert likely_partitioner(placed("murmur2", 3, KEYS[:5]), 3) is None
    assert likely_partitioner(placed("murmur2", 1), 1) is None
