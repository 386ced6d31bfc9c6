"""Logs in memory: one partition of the state topic, and the compacted counts topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamcal.state.reading import Sent

__all__ = ["MemoryCounts", "MemoryRecordLog"]


class MemoryRecordLog:
    """A `RecordLog` in memory.

    Attributes
    ----------
    records : list of (offset, value)
    next_offset : int
    """

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self.next_offset = 0

    def send(self, values: Sequence[bytes]) -> Sent:
        """Store records at once; see `RecordLog.send`."""
        offsets = self.append(values)
        return lambda: offsets

    def append(self, values: Sequence[bytes]) -> list[int]:
        """Store records; their offsets."""
        offsets = list(range(self.next_offset, self.next_offset + len(values)))
        self.records += zip(offsets, values, strict=True)
        self.next_offset += len(values)
        return offsets

    def read(self, start: int | None, stop: int) -> Iterator[tuple[int, bytes] | None]:
        """Records from `start` (None: the first kept) up to `stop`."""
        yield from [record for record in self.records if (start is None or record[0] >= start) and record[0] < stop]

    def delete_before(self, offset: int) -> None:
        """Let go of records before `offset`."""
        self.records = [record for record in self.records if record[0] >= offset]


class MemoryCounts:
    """A partition of the counts topic in memory.

    Attributes
    ----------
    records : list of (offset, key, value)
        In order; a value of None takes a key back.
    """

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes | None]] = []
        self.next_offset = 0

    def publish(self, model: str | None, key: bytes, value: bytes | None) -> None:  # noqa: ARG002, one partition
        """Append."""
        self.records.append((self.next_offset, key, value))
        self.next_offset += 1

    def flush(self) -> None:
        """All is stored already."""

    def since(self, offset: int) -> list[tuple[int, bytes, bytes | None]]:
        """Records from an offset on."""
        return [record for record in self.records if record[0] >= offset]

    def compact(self) -> None:
        """Keep the last record of each key, and none of those taken back."""
        last = {key: offset for offset, key, _ in self.records}
        self.records = [r for r in self.records if last[r[1]] == r[0] and r[2] is not None]
