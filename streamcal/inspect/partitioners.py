"""Which partitioner put keys where they are.

Two topics are joined partition by partition, so both must have been written with the same rule. The usual ones:

- ``murmur2``: Java and everything built on it, kafka-python, and librdkafka with ``partitioner=murmur2_random``:
  ``(murmur2(key) & 0x7fffffff) % n``;
- ``crc32``: librdkafka's default (confluent-kafka, node-rdkafka, PHP): ``crc32(key) % n``;
- ``fnv1a``: Sarama (Go): the absolute value of the 32-bit FNV-1a hash, ``% n``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafka.partitioner.default import murmur2

from streamcal.inspect.sample import SampledRecord

__all__ = ["PARTITIONERS", "likely_partitioner", "partitioner_advice"]


def _murmur2(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFFFFFF


def _fnv1a(key: bytes) -> int:
    found = 0x811C9DC5
    for byte in key:
        found = ((found ^ byte) * 0x01000193) & 0xFFFFFFFF
    signed = found - (1 << 32) if found & 0x80000000 else found
    return abs(signed)


PARTITIONERS: Final[Mapping[str, Callable[[bytes], int]]] = {"murmur2": _murmur2, "crc32": zlib.crc32, "fnv1a": _fnv1a}

_WRITERS: Final = {
    "murmur2": "the rule of Java clients",
    "crc32": "librdkafka's consistent_random, the default of confluent-kafka",
    "fnv1a": "Sarama's hash partitioner",
}
_AGREEMENT: Final = 0.98
_KEYS: Final = 5000
"""Keys looked at: with two partitions a wrong rule agrees on half of them, give or take a hundred."""
_FEWEST: Final = 20


def likely_partitioner(records: Sequence[SampledRecord], partitions: int) -> str | None:
    """The rule by which nearly all keys lie where they are.

    Returns
    -------
    str or None
        A name of `PARTITIONERS`; ``unknown`` where none fits; None where nothing can be said: one partition, or too
        few keys.

    Examples
    --------
    >>> records = [SampledRecord(b"", str(i).encode(), partition=zlib.crc32(str(i).encode()) % 3) for i in range(99)]
    >>> likely_partitioner(records, 3)
    'crc32'
    """
    placed = dict(list({r.key: r.partition for r in records if r.key is not None}.items())[-_KEYS:])
    if partitions < 2 or len(placed) < _FEWEST:
        return None
    for name, rule in PARTITIONERS.items():
        agreeing = sum(rule(key) % partitions == partition for key, partition in placed.items())
        if agreeing >= _AGREEMENT * len(placed):
            return name
    return "unknown"


def partitioner_advice(name: str) -> str:
    """What is known of a partitioner."""
    return _WRITERS.get(name, "none of murmur2, crc32 and fnv1a of the key")
