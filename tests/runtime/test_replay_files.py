"""What `replay` reads: the order of two files, the fields of an events file, and files that cannot be read."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamcal.errors import InputFileError
from streamcal.runtime.config import Config, load_config
from streamcal.runtime.logs.files import FilePair
from streamcal.runtime.logs.lines import count_lines
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.serve.report import ReplayResult
from streamcal.serve.table import Progress
from streamcal.stream.watermark import BEGINNING

T = 1_700_000_000_000
SETTINGS = "join: {horizon: 1h, out_of_order: 0s}\nwindows: {lengths: [1h], pane: 60s}\nsegments: {cuts: []}\n"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return configured(tmp_path)


def configured(folder: Path, more: str = "") -> Config:
    path = folder / "config.yaml"
    path.write_text(SETTINGS + more, encoding="utf-8")
    return load_config(path, environ={}, require_kafka=False)


def lines(path: Path, values: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def p(key: str, at: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "score": 0.3, "ts": T + at, **more}


def o(key: str, at: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "label": 1, "ts": T + at, **more}


def replayed(config: Config, folder: Path, records: Sequence[Any], **options: Any) -> ReplayResult:
    return replay(config, ReplayOptions(events=lines(folder / "events.jsonl", records), **options))


# --- two files -----------------------------------------------------------------------------------------------


def read_order(tmp_path: Path, predictions: Sequence[int | None], outcomes: Sequence[int | None]) -> list[str]:
    """The records of two files as they are read: p0, p1, o0 and so on; a number is an event time."""

    def clock(topic: str, records: Sequence[Any]) -> Any:
        times = [json.loads(record.value) for record in records]
        return [BEGINNING if time is None else time for time in times]

    pair = FilePair(lines(tmp_path / "p", predictions), lines(tmp_path / "o", outcomes), clock)  # type: ignore[arg-type]
    read = []
    for poll in pair.polls():
        places = {
            place: f"{piece.topic[0]}{record.offset}"
            for piece in poll.slices
            for place, record in zip(piece.order.tolist(), piece.records, strict=True)
        }
        read += [places[place] for place in sorted(places)]
    return read


def test_the_earlier_head_is_read_first(tmp_path: Path) -> None:
    assert read_order(tmp_path, [10, 30], [20, 40]) == ["p0", "o0", "p1", "o1"]


def test_predictions_go_first_on_ties(tmp_path: Path) -> None:
    assert read_order(tmp_path, [10, 10], [10, 10]) == ["p0", "p1", "o0", "o1"]


def test_each_file_keeps_its_own_order(tmp_path: Path) -> None:
    # The record at 5 stands below one at 30, so its head is not seen before that one was read.
    assert read_order(tmp_path, [30, 5], [20, 40]) == ["o0", "p0", "p1", "o1"]


def test_a_record_without_a_time_follows_the_one_above_it(tmp_path: Path) -> None:
    assert read_order(tmp_path, [10, None, 50], [20, None]) == ["p0", "p1", "o0", "o1", "p2"]


def test_the_order_does_not_depend_on_how_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictions, outcomes = [3, 9, 9, 1, 20, 21, 40], [1, 9, 10, 21, 21, 5, 60]
    whole = read_order(tmp_path, predictions, outcomes)
    for block in (1, 2, 3):
        monkeypatch.setattr("streamcal.runtime.logs.files._BLOCK", block)
        assert read_order(tmp_path, predictions, outcomes) == whole


def test_gzip_and_plain_files_give_the_same_report(config: Config, tmp_path: Path) -> None:
    plain = lines(tmp_path / "p.jsonl", [p("a", 0), p("b", 5)]), lines(tmp_path / "o.jsonl", [o("a", 9)])
    packed = []
    for path in plain:
        packed.append(path.with_suffix(".gz"))
        packed[-1].write_bytes(gzip.compress(path.read_bytes()))
    results = [replay(config, ReplayOptions(*paths)) for paths in (plain, packed)]
    assert results[0].models == results[1].models
    assert results[0].counters == results[1].counters
    assert results[0].counters["matched"] == 1


def test_a_bad_line_is_counted_and_the_rest_is_read(config: Config, tmp_path: Path) -> None:
    predictions = tmp_path / "p.jsonl"
    predictions.write_bytes(b'{"id": \n\xff\xfe{}\n' + json.dumps(p("a", 0)).encode() + b"\n[]\n")
    result = replay(config, ReplayOptions(predictions, lines(tmp_path / "o.jsonl", [o("a", 1)])))
    assert result.rejected == {"malformed": 3}
    assert result.counters["matched"] == 1


def test_progress_begins_at_nothing_and_ends_with_all_lines(config: Config, tmp_path: Path) -> None:
    files = lines(tmp_path / "p.jsonl", [p("a", 0), p("b", 5)]), lines(tmp_path / "o.jsonl", [o("a", 9)])
    seen: list[Progress] = []
    replay(config, ReplayOptions(*files), on_progress=seen.append)
    assert (seen[0].done, seen[0].total) == (0, 3)
    assert (seen[-1].done, seen[-1].total, seen[-1].note) == (3, 3, "2023-11-14")


def test_empty_files_give_an_empty_report(config: Config, tmp_path: Path) -> None:
    result = replay(config, ReplayOptions(lines(tmp_path / "p.jsonl", []), lines(tmp_path / "o.jsonl", [])))
    assert (result.from_ms, result.to_ms, dict(result.models)) == (None, None, {})


# --- one file of records -------------------------------------------------------------------------------------


def test_records_are_taken_in_the_order_of_the_file(config: Config, tmp_path: Path) -> None:
    events = [
        {"topic": "predictions", "value": p("a", 100)},
        {"topic": "predictions", "value": p("b", 50)},  # late: its log is past it
        {"topic": "outcomes", "partition": 0, "value": o("a", 120)},
    ]
    counters = replayed(config, tmp_path, events).counters
    assert (counters["late_prediction"], counters["matched"]) == (1, 1)


def test_partitions_are_joined_apart(config: Config, tmp_path: Path) -> None:
    events = [
        {"topic": "predictions", "partition": 3, "value": p("a", 0)},
        {"topic": "outcomes", "partition": 3, "value": o("a", 1)},
        {"topic": "predictions", "partition": 5, "value": p("b", 0)},
        {"topic": "outcomes", "partition": 3, "value": o("b", 1)},  # not where its prediction is
    ]
    counters = replayed(config, tmp_path, events, drain=True).counters
    assert (counters["matched"], counters["orphan_outcome"]) == (1, 1)


def test_bytes_that_are_no_json_come_as_base64(config: Config, tmp_path: Path) -> None:
    events = [
        {"topic": "predictions", "value_base64": base64.b64encode(b"\xff\xfe").decode()},
        {"topic": "predictions", "value_base64": base64.b64encode(json.dumps(p("a", 0)).encode()).decode()},
        {"topic": "outcomes", "value": o("a", 1)},
    ]
    result = replayed(config, tmp_path, events)
    assert result.rejected == {"malformed": 1}
    assert result.counters["matched"] == 1


def test_keys_and_headers_are_fields_too(tmp_path: Path) -> None:
    config = configured(
        tmp_path, 'events: {prediction: {id: "$key", model: "$header.m"}, outcome: {id: "$key", label: "$header.hit"}}'
    )
    events = [
        {"topic": "predictions", "key": "a", "headers": {"m": "fraud"}, "value": {"score": 0.3, "ts": T}},
        {"topic": "outcomes", "key": "a", "headers": [["hit", "1"], ["x", "y"]], "value": {"ts": T + 1}},
    ]
    result = replayed(config, tmp_path, events)
    assert result.models["fraud"].segments["all"]["windows"]["all"]["raw"]["positives"] == 1


def test_the_records_own_time_can_be_the_events(tmp_path: Path) -> None:
    config = configured(tmp_path, "events: {prediction: {time_source: record}, outcome: {time_source: record}}")
    events = [
        {"topic": "predictions", "timestamp_ms": T, "value": {"id": "a", "score": 0.3}},
        {"topic": "outcomes", "timestamp_ms": T + 3_600_001, "value": {"id": "a", "label": 1}},
    ]
    assert replayed(config, tmp_path, events, drain=True).counters["late_outcome"] == 1


def test_a_time_far_past_the_records_own_is_refused(config: Config, tmp_path: Path) -> None:
    far = {"topic": "predictions", "timestamp_ms": T, "value": p("a", 300_001)}  # max_future is 5m
    assert replayed(config, tmp_path, [far]).rejected == {"future": 1}


def test_tombstones_are_ignored_and_counted(config: Config, tmp_path: Path) -> None:
    events = [{"topic": "predictions", "key": "a", "value": None}, {"topic": "outcomes", "key": "a", "value": None}]
    result = replayed(config, tmp_path, events)
    assert (result.counters["ignored"], result.rejected) == (2, {})


def test_a_recorded_advance_moves_its_log(config: Config, tmp_path: Path) -> None:
    events = [
        {"topic": "predictions", "value": p("a", 0)},
        {"topic": "outcomes", "value": o("z", 0)},
        {"topic": "outcomes", "advance_ms": T + 3_600_001},
    ]
    assert replayed(config, tmp_path, events[:2]).pending == 1
    result = replayed(config, tmp_path, events)
    assert (result.pending, result.counters["expired"]) == (0, 1)


def test_a_partition_at_its_end_is_idle(config: Config, tmp_path: Path) -> None:
    """Outcomes of partition 1 end early; those of partition 0 carry its time on."""
    events = [
        {"topic": "predictions", "partition": 1, "value": p("a", 0)},
        {"topic": "outcomes", "partition": 1, "value": o("z", 0)},
        {"topic": "predictions", "partition": 0, "value": p("b", 0)},
        {"topic": "outcomes", "partition": 0, "value": o("y", 3_600_001)},
    ]
    assert replayed(config, tmp_path, events).counters["expired"] == 2


def test_draining_settles_what_is_open_and_moves_no_window(config: Config, tmp_path: Path) -> None:
    events = [{"topic": "predictions", "value": p("a", 0)}, {"topic": "outcomes", "value": o("z", 5)}]
    open_, drained = (replayed(config, tmp_path, events, drain=drain) for drain in (False, True))
    assert (open_.pending, open_.counters["expired"], open_.counters["orphan_outcome"]) == (1, 0, 0)
    assert (drained.pending, drained.counters["expired"], drained.counters["orphan_outcome"]) == (0, 1, 1)
    assert open_.to_ms == drained.to_ms == T


def test_without_applying_scores_are_served_as_recorded(config: Config, tmp_path: Path) -> None:
    events = [
        {"topic": "predictions", "value": p("a", 0, raw_score=0.9, map_version=7)},
        {"topic": "outcomes", "value": o("a", 1)},
    ]
    for apply, served in ((False, 0.3), (True, 0.9)):  # no map was made on the way: served again as it came
        pair = replayed(config, tmp_path, events, apply=apply).models["default"].segments["all"]["windows"]["all"]
        assert pair["raw"]["mean_score"] == pytest.approx(0.9)
        assert pair["served"]["mean_score"] == pytest.approx(served)


def test_a_row_without_a_raw_score_stays_as_it_was_served(config: Config, tmp_path: Path) -> None:
    events = [
        {"topic": "predictions", "value": p("a", 0, map_version=7)},
        {"topic": "outcomes", "value": o("a", 1)},
    ]
    result = replayed(config, tmp_path, events)
    pair = result.models["default"].segments["all"]["windows"]["all"]
    assert result.counters["without_raw"] == 1
    assert pair["served"]["mean_score"] == pytest.approx(0.3)
    assert pair["raw"].get("n", 0) == 0


# --- files that cannot be read -------------------------------------------------------------------------------


def test_a_missing_file_is_named(config: Config, tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        replay(config, ReplayOptions(tmp_path / "no.jsonl", lines(tmp_path / "o.jsonl", [])))
    assert (caught.value.where, caught.value.what) == (str(tmp_path / "no.jsonl"), "No such file or directory")


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_cut_off_gzip_is_found_before_any_work(config: Config, tmp_path: Path, kept: float) -> None:
    packed = gzip.compress(b"".join(json.dumps(p(str(i), i)).encode() + b"\n" for i in range(1000)))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(packed[: int(len(packed) * kept)])
    seen: list[Progress] = []
    with pytest.raises(InputFileError, match="cut off or damaged"):
        replay(config, ReplayOptions(cut, lines(tmp_path / "o.jsonl", [])), on_progress=seen.append)
    assert seen == []


def test_damaged_gzip_is_found(config: Config, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(p("a", 0)).encode()))
    packed[-6] ^= 1  # in the checksum
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(packed)
    with pytest.raises(InputFileError, match="cut off or damaged"):
        replay(config, ReplayOptions(events=damaged))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "truncated"),
        ('{"topic": "maps", "value": {}}', "topic 'maps'"),
        ('{"topic": "outcomes", "partition": -1, "value": {}}', "partition -1"),
        ('{"topic": "outcomes", "valeu": {}}', "valeu"),
        ('{"topic": "outcomes", "value_base64": "*"}', "base64"),
        ('{"value": {}}', "topic"),
    ],
)
def test_a_line_that_is_no_record_is_named(config: Config, tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"topic": "predictions", "value": p("a", 0)}) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InputFileError) as caught:
        replay(config, ReplayOptions(events=path))
    assert caught.value.where == f"{path}, line 2"
    assert says in caught.value.what


@pytest.mark.parametrize(("content", "count"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3)])
def test_lines_are_counted_with_or_without_a_last_end(tmp_path: Path, content: bytes, count: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(content)
    assert count_lines(path) == count
    path.write_bytes(gzip.compress(content))
    assert count_lines(path) == count
