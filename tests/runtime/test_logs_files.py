"""Recorded events as a log: which record comes when, and what a line may hold."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcal.engine import Slice
from streamcal.errors import InputFileError
from streamcal.runtime.logs import files
from streamcal.runtime.logs.base import Advance, LogRecord, Poll
from streamcal.runtime.logs.files import EventsFile, FilePair, FilesLog
from streamcal.stream.watermark import BEGINNING

TIMES = st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=25)


def clock(topic: str, records: Sequence[LogRecord]) -> np.ndarray:
    """Each line is its own time; an empty one has none."""
    times = [record.value for record in records]
    return np.array([int(text) if text else BEGINNING for text in times], dtype=np.int64)


def write(path: Path, times: Sequence[int | None]) -> Path:
    path.write_text("".join(f"{'' if t is None else t}\n" for t in times))
    return path


def in_order(polls: Iterator[Poll]) -> list[tuple[str, int, bytes | None]]:
    """Topic, offset and value in the order in which the engine would read the records."""
    read = []
    for poll in polls:
        assert len({(piece.topic, piece.partition) for piece in poll.slices}) == len(poll.slices)
        placed = [
            (int(place), piece.topic, record.offset, record.value)
            for piece in poll.slices
            for place, record in zip(order(piece), piece.records, strict=True)
        ]
        assert sorted(place for place, *_ in placed) == list(range(len(placed)))
        read += [tuple(entry[1:]) for entry in sorted(placed)]
    return read


def order(piece: Slice) -> np.ndarray:
    assert piece.order is not None
    assert (np.diff(piece.order) > 0).all()
    return piece.order


def merged(first: Sequence[int | None], second: Sequence[int | None]) -> list[tuple[str, int]]:
    """The rule, record by record: the earlier head is read first, predictions on ties, what has no time at once."""
    heads = {"predictions": list(enumerate(first)), "outcomes": list(enumerate(second))}
    read = []
    while any(heads.values()):
        ready = [
            (-1 if head[0][1] is None else head[0][1], i, topic)
            for i, (topic, head) in enumerate(heads.items())
            if head
        ]
        topic = min(ready)[2]
        read.append((topic, heads[topic].pop(0)[0]))
    return read


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TIMES, second=TIMES, block=st.sampled_from([1, 2, 3, 7, 20_000]))
def test_two_files_are_merged_by_their_heads_whatever_is_read_at_once(
    tmp_path: Path, first: list[int | None], second: list[int | None], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_BLOCK", block)
        pair = FilePair(write(tmp_path / "p", first), write(tmp_path / "o", second), clock)
        read = in_order(pair.polls())
    expected = merged(first, second)
    # Records without a time may change places with each other: nothing depends on it. Each file keeps its own order.
    timed = {"predictions": first, "outcomes": second}
    assert [(t, i) for t, i, _ in read if timed[t][i] is not None] == [
        (t, i) for t, i in expected if timed[t][i] is not None
    ]
    for topic, times in timed.items():
        assert [i for t, i, _ in read if t == topic] == list(range(len(times)))


def test_predictions_go_first_on_ties_even_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BLOCK", 2)
    pair = FilePair(write(tmp_path / "p", [5] * 5), write(tmp_path / "o", [5] * 3), clock)
    assert [topic for topic, *_ in in_order(pair.polls())] == ["predictions"] * 5 + ["outcomes"] * 3


def test_a_log_of_files_ends_and_keeps_what_was_published() -> None:
    log = FilesLog(frozenset((0,)), iter([Poll(), Poll()]))
    assert log.open() == {}
    for _ in range(2):
        log.poll(0.0)
        assert not log.finished
    assert log.poll(0.0) == Poll()
    assert log.finished
    log.publish("default", b"x")
    assert log.documents == [("default", b"x")]


def line(topic: str, partition: int = 0, **fields: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, **fields}


def events(path: Path, *lines: dict[str, Any] | str) -> EventsFile:
    text = "\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in lines)
    path.write_bytes(gzip.compress(text.encode()))
    return EventsFile(path)


def polls(file: EventsFile) -> list[Poll]:
    return list(file.polls(file.extents()))


def test_records_keep_the_order_of_the_file_over_all_logs(tmp_path: Path) -> None:
    logs = [("predictions", 1), ("outcomes", 0), ("predictions", 1), ("predictions", 0), ("outcomes", 0)]
    file = events(tmp_path / "e", *[line(*log, value={"n": i}) for i, log in enumerate(logs)])
    values = [json.loads(value or b"")["n"] for *_, value in in_order(iter(polls(file)))]
    assert values == list(range(5))
    assert {log: extent.records for log, extent in file.extents().items()} == {
        log: logs.count(log) for log in set(logs)
    }


def test_a_line_may_hold_bytes_a_key_headers_and_a_time(tmp_path: Path) -> None:
    file = events(
        tmp_path / "e",
        line("outcomes", value={"a": [1, None]}, key="k", headers={"h": "v"}, timestamp_ms=7),
        line("outcomes", value_base64=base64.b64encode(b"\xff{").decode(), headers=[["h", "1"], ["h", "2"]]),
        line("outcomes", value=None),
        line("outcomes"),
    )
    records = [record for poll in polls(file) for piece in poll.slices for record in piece.records]
    assert json.loads(records[0].value or b"") == {"a": [1, None]}
    assert (records[0].key, list(records[0].headers), records[0].timestamp) == (b"k", [("h", b"v")], 7)
    assert (records[1].value, list(records[1].headers)) == (b"\xff{", [("h", b"1"), ("h", b"2")])
    assert [record.value for record in records[2:]] == [None, None]


def test_an_advance_comes_after_the_records_before_it_and_before_those_after_it(tmp_path: Path) -> None:
    file = events(
        tmp_path / "e",
        line("predictions", value=1),
        line("predictions", 1, advance_ms=50),
        line("predictions", value=2),
        line("outcomes", value=3),
    )
    assert file.extents()["predictions", 1].records == 0
    held = [([r.value for piece in poll.slices for r in piece.records], list(poll.advances)) for poll in polls(file)]
    first = next(i for i, (_, advances) in enumerate(held) if advances)
    assert held[first] == ([b"1"], [Advance("predictions", 1, 50)])
    assert [value for values, _ in held[first + 1 :] for value in values] == [b"2", b"3"]


@pytest.mark.parametrize("block", [1, 2, 20_000])
def test_a_log_ends_with_its_last_line_and_one_without_lines_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    lines = [line("predictions", 2, value=0), line("predictions", value=1), line("predictions", 2, value=2)]
    read: list[Any] = []
    for poll in polls(events(tmp_path / "e", *lines, "", line("outcomes", value=3))):
        read += [record.value for piece in poll.slices for record in piece.records]
        read += sorted(poll.ended)
    empty = [("outcomes", 2)]
    assert read == [*empty, b"0", b"1", ("predictions", 0), b"2", ("predictions", 2), b"3", ("outcomes", 0)]


@pytest.mark.parametrize(
    "bad",
    [
        "{", "[]", '{"partition": 0}', '{"topic": "maps", "value": {}}', '{"topic": "outcomes", "partition": -1}',
        '{"topic": "outcomes", "value_base64": "*"}', '{"topic": "outcomes", "valeu": {}}',
        '{"topic": "outcomes", "partition": 2147483648}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named_by_its_number(tmp_path: Path, bad: str) -> None:
    file = events(tmp_path / "e", line("outcomes", value={}), "", bad)
    with pytest.raises(InputFileError, match="line 3"):
        file.extents()


def test_lines_that_hold_nothing_are_passed_over_but_counted(tmp_path: Path) -> None:
    file = events(tmp_path / "e", "", line("outcomes", value=1), "  ", line("outcomes", value=2))
    assert file.extents()["outcomes", 0].last_line == 4
    values = [r.value for poll in polls(file) for piece in poll.slices for r in piece.records]
    assert values == [b"1", b"2"]
    assert list(itertools.chain.from_iterable(poll.ended for poll in polls(file))) == [
        ("predictions", 0),
        ("outcomes", 0),
    ]
