"""Records taken from the end of a topic, or from a file, to be looked at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamcal.errors import InputFileError
from streamcal.runtime.logs.files import EventsFile
from streamcal.runtime.logs.lines import read_line_blocks

__all__ = ["Sample", "SampledRecord", "sample_events", "sample_lines"]

_BLOCK = 1000


class SampledRecord(NamedTuple):
    """A record with its partition; see `streamcal.stream.events.Record`."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp: int | None = None
    offset: int = 0
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Records of one topic, those of a partition in log order.

    Attributes
    ----------
    partitions : int
        Of the topic, read or not.
    complete : bool
        Nothing of the topic comes before these records.
    keyed : bool
        The source has keys and partitions at all; files of lines have not.
    """

    records: Sequence[SampledRecord]
    partitions: int = 1
    complete: bool = True
    keyed: bool = True

    def before(self, earlier: Sample) -> Sample:
        """The sample with what comes before it."""
        return Sample([*earlier.records, *self.records], self.partitions, earlier.complete, self.keyed)


def sample_lines(path: Path, most: int) -> Sample:
    """The first lines of a file of values.

    Raises
    ------
    InputFileError
        It cannot be read.
    """
    blocks = itertools.chain.from_iterable(read_line_blocks(path, _BLOCK))
    lines = itertools.islice((line for line in blocks if line.strip()), most)
    records = [SampledRecord(line, offset=i) for i, line in enumerate(lines)]
    if not records:
        raise InputFileError("holds no events", where=str(path), hint="give a file with one JSON object per line")
    return Sample(records, keyed=False)


def sample_events(path: Path, most: int) -> tuple[Sample, Sample]:
    """The first records of each topic in a file of records of both.

    Raises
    ------
    InputFileError
        It cannot be read, or lacks a topic.
    """
    source = EventsFile(path)
    extents = source.extents()
    taken: dict[str, list[SampledRecord]] = {"predictions": [], "outcomes": []}
    for poll in source.polls(extents):
        for piece in poll.slices:
            taken[piece.topic] += [
                SampledRecord(r.value, r.key, r.headers, r.timestamp, r.offset, piece.partition) for r in piece.records
            ]
        if all(len(records) >= most for records in taken.values()):
            break
    for topic, records in taken.items():
        if not records:
            raise InputFileError(f"holds no {topic}", where=str(path), hint="both topics are needed")
    partitions = max(partition for _, partition in extents) + 1
    keyed = any(record.key is not None for records in taken.values() for record in records)
    found = [Sample(taken[topic][:most], partitions, keyed=keyed) for topic in ("predictions", "outcomes")]
    return found[0], found[1]
