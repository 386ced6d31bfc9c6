"""States written by this and earlier releases are read as the recount says, and gone on from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recount import COUNTERS, recount
from recount_events import Rules
from simulated_cluster import World
from simulated_runs import SOURCES, expected_panes, read_afresh, with_advances
from state_fixtures import FOLDER, fixture_world, read_counts, read_log, rest_of_the_run

from streamcal.errors import StateFormatError
from streamcal.parts.mark import Mark, MarkKey
from streamcal.parts.part import Part, StoredKey
from streamcal.roles.aggregation import STATE_FORMAT as AGGREGATION_FORMAT
from streamcal.roles.task import STATE_FORMAT as TASK_FORMAT
from streamcal.state.memory_log import MemoryRecordLog
from streamcal.state.packing import pack, unpack
from streamcal.state.reading import FORMAT, LogRecord, Restored, read_state

FORMATS = sorted(folder.name for folder in FOLDER.glob("state_format_*"))


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest) -> Path:
    return FOLDER / str(request.param)


def expected(folder: Path) -> Any:
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def world_of(folder: Path) -> tuple[World, list[Any], Rules, Any]:
    said = expected(folder)
    events, rules = [tuple(event) for event in said["events"]], Rules(**said["rules"])
    world = fixture_world(events, rules)
    world.state = {number: read_log(folder / f"state-{number}.jsonl.gz") for number in range(SOURCES + 1)}
    world.counts = read_counts(folder / "counts.jsonl.gz")
    return world, events, rules, said


def test_there_are_files_of_the_present_format() -> None:
    assert f"state_format_{FORMAT}" in FORMATS
    assert FORMAT == TASK_FORMAT == AGGREGATION_FORMAT


def test_claims_deltas_snapshots_parts_and_marks_are_among_them(folder: Path) -> None:
    world, _, _, _ = world_of(folder)
    kinds = {
        msgspec.msgpack.decode(value, type=LogRecord).kind for log in world.state.values() for _, value in log.records
    }
    assert kinds == {"claim", "delta", "snapshot"}
    keys = [key for _, key, value in world.counts.records if value is not None]
    families = {StoredKey.from_bytes(key).part.family for key in keys if MarkKey.from_bytes(key) is None}
    assert {"window", "everything", "watch", "cohort", "score"} <= families
    assert ("segment" in families) == (folder.name != "state_format_1")  # rows of corrections came later
    for _, key, value in world.counts.records:
        if value is not None:
            (Part if MarkKey.from_bytes(key) is None else Mark).from_bytes(value)


def test_every_form_of_parts_is_among_them() -> None:
    forms: set[int] = set()
    for name in FORMATS:
        for _, key, value in read_counts(FOLDER / name / "counts.jsonl.gz").records:
            if value is not None and MarkKey.from_bytes(key) is None:
                forms.add(unpack(value)[0])
    assert forms == {1, 2}


def test_what_was_written_is_read_as_the_recount_said_then(folder: Path) -> None:
    world, events, _, said = world_of(folder)
    process = rest_of_the_run(world, events[: said["read"]])
    (aggregation,) = process.aggregations.values()
    total = aggregation.tally.total()
    assert {name: total[name] for name in COUNTERS} == said["counters"]
    assert sum(task.source.pending for task in process.tasks.values()) == said["pending"]
    marks = {(log, n): mark for log, n, mark in said["watermarks"]}
    assert {n: task.source.watermarks for n, task in process.tasks.items()} == {
        n: (marks["p", n], marks["o", n]) for n in range(SOURCES)
    }
    panes = {_key(key): values for key, values in said["panes"]}
    assert read_afresh(world) == panes


def test_and_gone_on_from(folder: Path) -> None:
    world, events, rules, _ = world_of(folder)
    monitor = rest_of_the_run(world, events)
    truth = recount(with_advances(events, monitor), rules)
    (aggregation,) = monitor.aggregations.values()
    total = aggregation.tally.total()
    assert {name: total[name] for name in COUNTERS} == {name: truth.counters[name] for name in COUNTERS}
    world.counts.compact()
    assert read_afresh(world) == expected_panes(truth)


def _key(key: Any) -> Any:
    model, pane, (cut, values), kind, index = key
    return model, pane, (cut, tuple(values)), kind, index


# --- what a later release writes -------------------------------------------------------------------------------------


def restored(log: MemoryRecordLog) -> Restored:
    *_, last = read_state(log, log.next_offset, where="state[0]")
    return last


def test_a_record_of_a_later_release_is_refused_with_both_numbers(folder: Path) -> None:
    log = read_log(folder / "state-0.jsonl.gz")
    at, value = log.records[-1]
    record = msgspec.msgpack.decode(value, type=LogRecord)
    later = msgspec.structs.replace(record, format=FORMAT + 1)
    log.records[-1] = (at, msgspec.msgpack.encode(later))
    with pytest.raises(StateFormatError, match=rf"written in format {FORMAT + 1}, this release knows {FORMAT}"):
        restored(log)


def test_a_snapshot_of_a_later_release_is_refused(folder: Path) -> None:
    world, events, _, said = world_of(folder)
    for number in range(SOURCES):
        log = world.state[number]
        for place, (at, value) in enumerate(log.records):
            record = msgspec.msgpack.decode(value, type=LogRecord)
            if record.kind == "snapshot":
                tree = unpack(record.payload) | {"format": TASK_FORMAT + 1}
                log.records[place] = (at, msgspec.msgpack.encode(msgspec.structs.replace(record, payload=pack(tree))))
    with pytest.raises(StateFormatError, match=f"format {TASK_FORMAT + 1}"):
        rest_of_the_run(world, events[: said["read"]])


def test_what_is_no_record_at_all_is_refused(folder: Path) -> None:
    log = read_log(folder / "state-0.jsonl.gz")
    log.append([b"something else"])
    with pytest.raises(StateFormatError, match="Only streamcal may write"):
        restored(log)


def test_settings_that_may_change_leave_a_state_readable(folder: Path) -> None:
    world, events, rules, _ = world_of(folder)
    engine = world.settings.engine
    loop, watch = engine.loop, engine.watch

    def other_loop(name: str) -> Any:
        before = loop(name)
        return replace(before, mode="shadow", every_ms=2 * before.every_ms, fit_window_ms=before.fit_window_ms // 2)

    def other_watch(name: str) -> Any:
        before = watch(name)
        detector = replace(before.detector, false_alarms_per_month=2.0, tolerance=0.2, dispersion=None)
        return replace(before, detector=detector, change_triggers=not before.change_triggers)

    changed = replace(engine, loop=other_loop, watch=other_watch, ece_bins=20, min_count=5, max_weight=10.0)
    world.settings = replace(world.settings, engine=changed)
    monitor = rest_of_the_run(world, events)
    truth = recount(with_advances(events, monitor), rules)
    (aggregation,) = monitor.aggregations.values()
    total = aggregation.tally.total()
    assert {name: total[name] for name in COUNTERS} == {name: truth.counters[name] for name in COUNTERS}
    aggregation.snapshot()
    (picture,) = monitor.pictures()
    assert picture.counters["matched"] == truth.counters["matched"]
