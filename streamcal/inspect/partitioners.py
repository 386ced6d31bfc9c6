"""Which partitioner put the keys of a sample where they are; the rules are those of `runtime.logs.partitioner`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamcal.inspect.sample import SampledRecord
from streamcal.runtime.logs.partitioner import PARTITIONERS, likely_rule

__all__ = ["PARTITIONERS", "likely_partitioner", "partitioner_advice"]

_WRITERS: Final = {
    "murmur2": "the rule of Java clients",
    "crc32": "librdkafka's consistent_random, the default of confluent-kafka",
    "fnv1a": "Sarama's hash partitioner",
}
_KEYS: Final = 5000
"""Keys looked at: with two partitions a wrong rule agrees on half of them, give or take a hundred."""


def likely_partitioner(records: Sequence[SampledRecord], partitions: int) -> str | None:
    """The rule by which nearly all keys lie where they are.

    Returns
    -------
    str or None
        A name of `PARTITIONERS`; ``unknown`` where none fits; None where nothing can be said: one partition, or too
        few keys.

    Examples
    --------
    >>> import zlib
    >>> records = [SampledRecord(b"", str(i).encode(), partition=zlib.crc32(str(i).encode()) % 3) for i in range(99)]
    >>> likely_partitioner(records, 3)
    'crc32'
    """
    placed = dict(list({r.key: r.partition for r in records if r.key is not None}.items())[-_KEYS:])
    return likely_rule(placed, partitions)


def partitioner_advice(name: str) -> str:
    """What is known of a partitioner."""
    return _WRITERS.get(name, "none of murmur2, crc32 and fnv1a of the key")
