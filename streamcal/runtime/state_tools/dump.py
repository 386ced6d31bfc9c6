"""The inputs from where the state began to where it is, as a file that `streamcal replay --events` reads.

A recount of the file finds what the state holds: its lines are the records as they are on the topics, and before the
record at which a silent partition was advanced that advance.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from streamcal.errors import StreamcalError
from streamcal.parts.source_counts import CountSettings
from streamcal.roles.task import Task
from streamcal.runtime.cluster import Part
from streamcal.runtime.state_tools.store import StateStore, left_in
from streamcal.state.claimed_log import ClaimedLog
from streamcal.state.reading import StateLostError
from streamcal.stream.events import TOPICS, Record
from streamcal.stream.source import SourceSettings

__all__ = ["Dumped", "dump_events", "lines"]


@dataclass(frozen=True, slots=True)
class Dumped:
    """What was written.

    Attributes
    ----------
    records, advances : int
    missing : int
        Records of the state's past that the topics do not hold any more.
    """

    records: int
    advances: int
    missing: int


@dataclass(slots=True)
class _Reach:
    """What a state has read of one log."""

    part: Part
    begun: int
    stop: int
    first: int
    advances: list[tuple[int, int]]


def dump_events(
    store: StateStore,
    sources: SourceSettings,
    counts: CountSettings,
    path: Path,
    *,
    partial: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Dumped:
    """Write the file.

    Parameters
    ----------
    store : StateStore
    sources : SourceSettings
    counts : CountSettings
    path : Path
        Compressed where it ends in ``.gz``.
    partial : bool
        Also where the topics do not hold everything any more.
    on_progress : callable
        Called with records written and records in all.

    Raises
    ------
    StateLostError
        Something is missing that a recount needs.
    StreamcalError
        The file cannot be written.
    """
    reaches, dropped = _reaches(store, sources, counts)
    missing = sum(max(0, min(reach.first, reach.stop) - reach.begun) for reach in reaches)
    if (missing or dropped) and not partial:
        what = f"{missing:,} records" if missing else f"{dropped:,} recorded advances"
        raise StateLostError(
            f"{what} of what the state has read are not kept any more; a recount would not find what it holds",
            hint="--partial writes what is there",
        )
    total = sum(reach.stop - max(reach.begun, reach.first) for reach in reaches)
    records = advances = 0
    try:
        with _opened(path) as out:
            for line, is_record in lines(store, reaches):
                out.write(line)
                records += is_record
                advances += not is_record
                if on_progress is not None and is_record and records % 10_000 == 0:
                    on_progress(records, total)
    except OSError as error:
        raise StreamcalError(error.strerror or str(error), where=str(path), hint="check the path") from error
    return Dumped(records, advances, missing)


def lines(store: StateStore, reaches: list[_Reach]) -> Iterator[tuple[bytes, bool]]:
    """Lines of the file, and whether each is a record."""
    due = {reach.part: [held for held in reach.advances if held[0] >= reach.first] for reach in reaches}
    parts = [(reach.part, max(reach.begun, reach.first), reach.stop) for reach in reaches]
    for part, record in store.inputs([entry for entry in parts if entry[1] < entry[2]]):
        while due[part] and due[part][0][0] <= record.offset:
            yield _advance(part, due[part].pop(0)[1]), False
        yield _line(part, record), True
    for part, held in due.items():
        for _, to_ms in held:
            yield _advance(part, to_ms), False


def _reaches(store: StateStore, sources: SourceSettings, counts: CountSettings) -> tuple[list[_Reach], int]:
    found, dropped = [], 0
    for number in range(store.sources):
        task = Task(number, sources, counts, ClaimedLog(store.state(number), b""))
        for _ in task.take_up(left_in(store, number)):
            pass
        source = task.source
        dropped += source.advances.dropped
        for topic in TOPICS:
            if topic in source.offsets:
                first, _ = store.input_kept((topic, number))
                begun, stop = source.begun.get(topic, 0), source.offsets[topic]
                found.append(_Reach((topic, number), begun, stop, first, source.advances.of(topic)))
    return found, dropped


def _advance(part: Part, to_ms: int) -> bytes:
    return msgspec.json.encode({"topic": part[0], "partition": part[1], "advance_ms": to_ms}) + b"\n"


def _line(part: Part, record: Record) -> bytes:
    line: dict[str, Any] = {"topic": part[0], "partition": part[1]}
    value = record.value
    if value is None:
        line["value"] = None
    elif _is_plain(value):
        line["value"] = msgspec.Raw(value)
    else:
        line["value_base64"] = base64.b64encode(value).decode()
    if record.key is not None:
        try:
            line["key"] = record.key.decode()
        except UnicodeDecodeError:
            line["key_base64"] = base64.b64encode(record.key).decode()
    if record.headers:
        line["headers"] = [(name, held.decode(errors="replace")) for name, held in record.headers]
    if record.timestamp is not None:
        line["timestamp_ms"] = record.timestamp
    return msgspec.json.encode(line) + b"\n"


def _is_plain(value: bytes) -> bool:
    """Whether a value comes back to the byte as part of a line."""
    if not value.startswith(b"{") or not value.endswith(b"}") or b"\n" in value or b"\r" in value:
        return False
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb"))
