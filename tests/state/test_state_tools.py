"""Looking at a state, writing its events out, beginning anew, accepting gaps: against a recount."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recount import COUNTERS, recount
from simulated_cluster import OwnedLog, Process, World
from simulated_runs import expected_panes, read_afresh, rules_of, run, with_advances
from state_topics import MemoryStore, quiet_world, run_to_end

from streamcal.errors import StateFormatError, StreamcalError
from streamcal.parts.mark import Mark, MarkKey
from streamcal.parts.part import StoredKey
from streamcal.runtime.logs.files import EventsFile
from streamcal.runtime.state_tools.dump import dump_events
from streamcal.runtime.state_tools.gaps import accept_gaps, find_gaps
from streamcal.runtime.state_tools.inspect import inspect_state
from streamcal.runtime.state_tools.reset import begin_at, reset
from streamcal.runtime.state_tools.store import left_in
from streamcal.state.about import About, ConfigChangeError
from streamcal.state.memory_log import MemoryRecordLog
from streamcal.state.reading import FencedError, LogUnavailableError, StateLostError
from streamcal.stream.watermark import BEGINNING

ABOUT = About(version="1.0", who="a test").to_bytes()
SHORT = {"p": "predictions", "o": "outcomes"}


def counters_of(process: Process) -> dict[str, int]:
    (aggregation,) = process.monitor.aggregations.values()
    total = aggregation.tally.total()
    return {name: total[name] for name in COUNTERS}


def from_offsets(events: Any, begin: Any) -> list[Any]:
    """Events of each log from an offset on."""
    at: dict[Any, int] = {}
    found = []
    for event in events:
        log = event[:2]
        if at.get(log, 0) >= begin.get(event[1], {}).get(SHORT[event[0]], 0):
            found.append(event)
        at[log] = at.get(log, 0) + 1
    return found


def assert_recounted(world: World, process: Process, events: Any, seed: int) -> None:
    """Counters, and counts read afresh from the compacted topic, are those of a recount."""
    truth = recount(with_advances(events, process.monitor), rules_of(seed))
    assert counters_of(process) == {name: truth.counters[name] for name in COUNTERS}
    world.counts.compact()
    assert read_afresh(world) == expected_panes(truth)


# --- reset and rebuild -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_after_a_reset_everything_is_read_and_counted_anew_and_once(seed: int) -> None:
    world, _, events, _ = run(seed)
    world.end_all()
    done = reset(MemoryStore(world), ABOUT)
    assert done.taken_back > 0
    assert_recounted(world, run_to_end(world), events, seed)


def test_a_rebuild_from_a_time_counts_what_came_from_then_on() -> None:
    seed = 7
    world, events = quiet_world(seed)
    run_to_end(world)
    store = MemoryStore(world)
    begin = {0: {"predictions": 20, "outcomes": 15}, 1: {"predictions": 11, "outcomes": 9}}
    reset(store, ABOUT, begin)
    process = run_to_end(world)
    truth = recount(from_offsets(events, begin), rules_of(seed))
    assert counters_of(process) == {name: truth.counters[name] for name in COUNTERS}
    world.counts.compact()
    assert read_afresh(world) == expected_panes(truth)
    assert {n: dict(task.source.begun) for n, task in process.monitor.tasks.items()} == begin


def test_where_a_rebuild_begins_is_kept_over_crashes_and_snapshots() -> None:
    world, _ = quiet_world(7)
    run_to_end(world)
    begin = {n: {"predictions": 20, "outcomes": 15} for n in range(2)}
    reset(MemoryStore(world), ABOUT, begin)
    for _ in range(3):
        process = run_to_end(world)
        assert {n: dict(task.source.begun) for n, task in process.monitor.tasks.items()} == begin


def test_a_rebuild_from_earliest_begins_with_the_first_record_that_is_kept() -> None:
    world, _ = quiet_world(7)
    store = MemoryStore(world)
    store.first["predictions", 0] = 4
    begin = begin_at(store, None)
    assert begin[0] == {"predictions": 4, "outcomes": 0}
    assert begin[1] == {"predictions": 0, "outcomes": 0}


def test_what_a_zombie_tells_under_an_old_claim_after_a_reset_counts_for_nothing() -> None:
    seed = 5
    world, events = quiet_world(seed)
    run_to_end(world)
    zombies = [(key, value) for _, key, value in world.counts.records if value is not None]
    reset(MemoryStore(world), ABOUT)
    for key, value in zombies:
        world.counts.publish(None, key, value)
    process = run_to_end(world)
    truth = recount(events, rules_of(seed))
    assert counters_of(process) == {name: truth.counters[name] for name in COUNTERS}


def test_a_process_that_is_still_at_work_is_fenced_by_a_reset() -> None:
    world, _ = quiet_world(5, cut={("predictions", 0): 30})
    process = run_to_end(world)
    (task, *_) = process.monitor.tasks.values()
    reset(MemoryStore(world), ABOUT)
    task.advance("predictions", task.source.watermarks[0] + 1)
    assert task.write()
    with pytest.raises(FencedError):
        task.tell(process.cluster.counts)


def test_a_state_topic_made_anew_is_outranked_by_a_reset() -> None:
    seed = 3
    world, events = quiet_world(seed)
    run_to_end(world)
    told = [StoredKey.from_bytes(key).claim for _, key, _ in world.counts.records if MarkKey.from_bytes(key) is None]
    world.state = {number: OwnedLog() for number in world.state}
    reset(MemoryStore(world), ABOUT)
    before = world.counts.next_offset
    process = run_to_end(world)
    later = [MarkKey.from_bytes(key) for offset, key, _ in world.counts.records if offset >= before]
    assert min(mark.claim for mark in later if mark is not None) > max(told)
    assert_recounted(world, process, events, seed)


def test_numbers_of_claims_stay_above_those_of_a_topic_that_is_gone_over_snapshots() -> None:
    world, _ = quiet_world(3)
    run_to_end(world)
    highest = max(MarkKey.from_bytes(key).claim for _, key, _ in world.counts.records if MarkKey.from_bytes(key))  # type: ignore[union-attr]
    world.state = {number: OwnedLog() for number in world.state}
    reset(MemoryStore(world), ABOUT)
    for _ in range(3):
        process = run_to_end(world)
        for task in process.monitor.tasks.values():
            task.snapshot()
            task.snapshot()
            assert task._log.claim > highest


def test_a_reset_that_was_interrupted_is_completed_by_another() -> None:
    seed = 2
    world, events = quiet_world(seed)
    run_to_end(world)

    class EndedError(Exception):
        pass

    class Breaking(MemoryStore):
        def counts_kept(self, shard: int) -> tuple[int, int]:
            raise EndedError

    with pytest.raises(EndedError):
        reset(Breaking(world), ABOUT)
    reset(MemoryStore(world), ABOUT)
    assert_recounted(world, run_to_end(world), events, seed)


def test_a_damaged_state_is_refused_by_a_start_and_mended_by_a_reset() -> None:
    seed = 2
    world, events = quiet_world(seed)
    run_to_end(world)
    log = world.state[0]
    # The claim goes, what it stood for stays.
    del log.records[0]
    with pytest.raises(StateLostError, match="in the middle of what was written"):
        run_to_end(world)
    world.end_all()
    reset(MemoryStore(world), ABOUT)
    assert_recounted(world, run_to_end(world), events, seed)


# --- configuration ---------------------------------------------------------------------------------------------------


FOREIGN = [(b"not ours", b"whatever"), (b"\x00\xff", b"\x00"), (b'["window"]', b"{}")]


def test_what_is_not_ours_on_the_counts_topic_is_refused_and_taken_back_by_a_reset() -> None:
    seed = 3
    for key, value in FOREIGN:
        world, events = quiet_world(seed)
        run_to_end(world)
        world.end_all()
        world.counts.publish("a", key, value)
        world.counts.flush()
        with pytest.raises(StateFormatError, match="topic of counts, offset") as raised:
            run_to_end(world)
        assert "streamcal state reset" in raised.value.hint
        world.end_all()
        reset(MemoryStore(world), ABOUT)
        assert_recounted(world, run_to_end(world), events, seed)
        world.counts.compact()
        assert key not in {held for _, held, kept in world.counts.records if kept is not None}


@pytest.mark.parametrize(
    "value", [b"\x93", b"\x92\x02\x91", b"\x96\x02\xc0\xc0\xc0\xc0\xc0", b"\x81\xa6format\x01", b"\xc0"]
)
def test_a_damaged_value_on_the_counts_topic_is_refused_in_words(value: bytes) -> None:
    world, _ = quiet_world(3)
    (aggregation,) = run_to_end(world).monitor.aggregations.values()
    for key in {key for _, key, kept in world.counts.records if kept is not None}:
        with pytest.raises(StateFormatError, match="topic of counts, offset 999999"):
            aggregation.take([(999_999, key, value)])


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"{}", b"\x99\x01"])
def test_what_is_not_ours_on_the_state_topic_is_refused_and_mended_by_a_reset(value: bytes | None) -> None:
    seed = 3
    world, events = quiet_world(seed)
    run_to_end(world)
    world.end_all()
    for log in world.state.values():
        log.append([value])  # type: ignore[list-item]
    with pytest.raises(StateFormatError, match="cannot be read") as raised:
        run_to_end(world)
    assert "streamcal state reset" in raised.value.hint
    world.end_all()
    reset(MemoryStore(world), ABOUT)
    assert_recounted(world, run_to_end(world), events, seed)


def test_a_reset_does_nothing_where_the_inputs_have_other_numbers_of_partitions() -> None:
    world, _ = quiet_world(3)
    run_to_end(world)
    store, before = MemoryStore(world), {number: list(log.records) for number, log in world.state.items()}
    store.input_partitions = {"predictions": 3, "outcomes": 3}
    with pytest.raises(StreamcalError, match="inputs with 2 partitions, and predictions has 3, outcomes has 3 now"):
        reset(store, ABOUT)
    assert {number: list(log.records) for number, log in world.state.items()} == before


def test_a_log_whose_owner_deletes_what_is_being_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = quiet_world(3)
    run_to_end(world)
    store, reads = MemoryStore(world), []

    def read(log: MemoryRecordLog, start: int | None, stop: int) -> Any:
        reads.append(start)
        if len(reads) == 1:
            raise LogUnavailableError("deleted meanwhile")
        yield from original(log, start, stop)

    original = MemoryRecordLog.read
    monkeypatch.setattr(MemoryRecordLog, "read", read)
    assert left_in(store, 0).records > 0
    assert len(reads) == 2


def test_a_start_under_settings_that_the_state_cannot_follow_is_refused_however_often() -> None:
    world, _ = quiet_world(2)
    world.settings = replace(world.settings, about=About(settings={"join.horizon": 60_000}).to_bytes())
    run_to_end(world)
    world.settings = replace(world.settings, about=About(settings={"join.horizon": 90_000}).to_bytes())
    for _ in range(2):  # the claim of the process refused first says the new value, and wrote nothing under it
        world.end_all()
        with pytest.raises(ConfigChangeError, match=r"join\.horizon: 60000 before, 90000 now"):
            run_to_end(world)
    world.end_all()
    world.settings = replace(world.settings, about=About(settings={"join.horizon": 60_000}).to_bytes())
    run_to_end(world)


def test_what_a_state_was_made_under_is_known_after_its_claim_was_deleted() -> None:
    world, _ = quiet_world(2)
    world.settings = replace(world.settings, about=About(settings={"join.horizon": 60_000}).to_bytes())
    process = run_to_end(world)
    for task in process.monitor.tasks.values():
        task.snapshot()
        task.snapshot()
        task.snapshot()
    restored = left_in(MemoryStore(world), 0)
    assert not restored.claims
    assert restored.about == world.settings.about


# --- inspect ---------------------------------------------------------------------------------------------------------


def inspected(world: World) -> Any:
    settings = world.settings
    return inspect_state(MemoryStore(world), settings.engine, settings.sources, settings.counts, settings.about)


def test_a_report_says_what_the_recount_says_and_writes_nothing() -> None:
    seed = 4
    world, events = quiet_world(seed)
    world.settings = replace(world.settings, about=ABOUT)
    process = run_to_end(world)
    before = {number: list(log.records) for number, log in world.state.items()}, list(world.counts.records)
    report = inspected(world)
    assert ({number: list(log.records) for number, log in world.state.items()}, world.counts.records) == before
    truth = recount(with_advances(events, process.monitor), rules_of(seed))
    assert sum(source.pending for source in report.sources) == truth.pending
    for source in report.sources:
        assert source.offsets == {topic: len(world.logs[topic, source.partition]) for topic in SHORT.values()}
        assert source.unread == dict.fromkeys(SHORT.values(), 0)
        assert source.watermarks_ms == {
            SHORT[topic]: mark for (topic, n), mark in truth.watermarks.items() if n == source.partition
        }
        assert source.mark is not None
        assert source.mark["offsets"] == source.offsets
        assert source.log.claim["who"] == "a test"
        assert source.log.error is None
    (aggregator,) = report.aggregators
    assert aggregator.event_time_ms <= min(truth.watermarks.values())  # that of its last snapshot
    assert report.to_json()["sources"][0]["partition"] == 0


def test_a_report_names_what_was_deleted_and_what_cannot_be_read() -> None:
    world, _ = quiet_world(4, cut={("predictions", 0): 30})
    run_to_end(world)
    store = MemoryStore(world)
    store.first["predictions", 0] = 33
    del world.state[1].records[0]
    settings = world.settings
    report = inspect_state(store, settings.engine, settings.sources, settings.counts, settings.about)
    assert report.sources[0].missing == {"predictions": 3}
    assert "begins at offset" in str(report.sources[1].log.error)
    assert report.sources[0].log.error is None


def test_a_report_shows_a_reset_that_waits_for_a_start() -> None:
    world, _ = quiet_world(4)
    run_to_end(world)
    reset(MemoryStore(world), ABOUT, {0: {"predictions": 3}})
    report = inspected(world)
    assert [source.log.reset for source in report.sources] == [{"begin": {"predictions": 3}}, {"begin": {}}]
    assert all(source.offsets == {} and source.pending == 0 for source in report.sources)


# --- dump ------------------------------------------------------------------------------------------------------------


def read_back(path: Path) -> list[Any]:
    file = EventsFile(path)
    topic = {name: short for short, name in SHORT.items()}
    found: list[Any] = []
    for poll in file.polls(file.extents()):
        rows = [
            (place, (topic[piece.topic], piece.partition, json.loads(record.value or b""), record.timestamp))
            for piece in poll.slices
            for place, record in zip(np.asarray(piece.order).tolist(), piece.records, strict=True)
        ]
        found += [event for _, event in sorted(rows, key=lambda row: row[0])]
        found += [(topic[a.topic], a.partition, {"advance": a.to_ms}, None) for a in poll.advances]
    return found


@pytest.mark.parametrize("seed", [0, 1, 6, 8, 9, 12])
def test_a_recount_of_the_events_written_out_finds_what_the_state_holds(seed: int, tmp_path: Path) -> None:
    world, monitor, events, rules = run(seed)
    settings, path = world.settings, tmp_path / "events.jsonl.gz"
    done = dump_events(MemoryStore(world), settings.sources, settings.counts, path)
    assert done.records == len(events)
    back = read_back(path)
    assert sum("advance" in event[2] for event in back) == done.advances
    truth = recount(back, rules)
    (aggregation,) = monitor.aggregations.values()
    total = aggregation.tally.total()
    assert {name: total[name] for name in COUNTERS} == {name: truth.counters[name] for name in COUNTERS}
    assert sum(task.source.pending for task in monitor.tasks.values()) == truth.pending


def test_some_of_these_schedules_have_advances() -> None:
    assert any(
        task.source.advances.of(topic)
        for seed in (0, 1, 6, 8, 9, 12)
        for task in run(seed)[1].tasks.values()
        for topic in SHORT.values()
    )


def test_values_and_keys_come_back_to_the_byte(tmp_path: Path) -> None:
    world, _ = quiet_world(4)
    part = ("predictions", 0)
    strange = [
        b"\xff\xfe",
        b"",
        None,
        b'{"id": 1}\n',
        b' {"id": 1}',
        b'{"id":"a","id":"b"}',
        b'{"x": "\xc3\xa9"}',
        b"{}}",
    ]
    log = list(world.logs[part])
    for place, value in enumerate(strange):
        log.append(log[0]._replace(value=value, key=bytes([200, place]), offset=len(log)))
    world.logs[part] = log  # type: ignore[index]
    run_to_end(world)
    settings, path = world.settings, tmp_path / "events.jsonl"
    dump_events(MemoryStore(world), settings.sources, settings.counts, path)
    file = EventsFile(path)
    found = [
        (record.value, record.key)
        for poll in file.polls(file.extents())
        for piece in poll.slices
        if (piece.topic, piece.partition) == part
        for record in piece.records
    ]
    assert found == [(record.value, record.key) for record in log]


def test_a_dump_without_records_that_are_gone_is_refused_unless_asked_for(tmp_path: Path) -> None:
    world, events = quiet_world(4)
    run_to_end(world)
    store, settings, path = MemoryStore(world), world.settings, tmp_path / "events.jsonl"
    store.first["outcomes", 1] = 5
    with pytest.raises(StateLostError, match="5 records"):
        dump_events(store, settings.sources, settings.counts, path)
    done = dump_events(store, settings.sources, settings.counts, path, partial=True)
    assert (done.records, done.missing) == (len(events) - 5, 5)


# --- gaps ------------------------------------------------------------------------------------------------------------


def test_a_gap_is_found_accepted_told_and_gone_from_the_windows_in_time() -> None:
    seed = 4
    full, events = quiet_world(seed)
    world, _ = quiet_world(seed, cut={("predictions", 0): 20})
    run_to_end(world)
    world.end_all()
    world.logs = full.logs
    store, settings = MemoryStore(world), world.settings
    store.first["predictions", 0] = 27
    gaps = find_gaps(store, settings.sources, settings.counts)
    assert [(gap.topic, gap.partition, gap.from_offset, gap.to_offset) for gap in gaps] == [("predictions", 0, 20, 27)]
    assert accept_gaps(store, settings.sources, settings.counts, settings.about) == gaps
    assert find_gaps(store, settings.sources, settings.counts) == []
    process = run_to_end(world)
    kept = [event for n, event in enumerate_log(events, ("p", 0)) if n is None or not 20 <= n < 27]
    truth = recount(with_advances(kept, process.monitor), rules_of(seed))
    assert counters_of(process) == {name: truth.counters[name] for name in COUNTERS}
    (picture,) = process.monitor.pictures()
    assert picture.incomplete == {("predictions", 0): 7}
    later = events[-1][2]["ts"] + 10 * 24 * 3_600_000
    for task in process.monitor.tasks.values():
        for topic in SHORT.values():
            task.advance(topic, later)
    for _ in range(3):
        process.monitor.commit()
        process.monitor.step(0.0)
    (picture,) = process.monitor.pictures()
    assert picture.event_time_ms == later
    assert picture.incomplete == {}


def enumerate_log(events: Any, log: Any) -> Any:
    at = 0
    for event in events:
        if event[:2] == log:
            yield at, event
            at += 1
        else:
            yield None, event


def test_a_gap_before_the_place_where_a_rebuild_begins_is_accepted_too() -> None:
    seed = 4
    world, events = quiet_world(seed)
    run_to_end(world)
    world.end_all()
    store, settings = MemoryStore(world), world.settings
    begin = {0: {"predictions": 20, "outcomes": 15}}
    reset(store, ABOUT, begin)
    store.first["predictions", 0] = 27
    gaps = find_gaps(store, settings.sources, settings.counts)
    assert [(gap.topic, gap.partition, gap.from_offset, gap.to_offset) for gap in gaps] == [("predictions", 0, 20, 27)]
    accept_gaps(store, settings.sources, settings.counts, ABOUT)
    assert find_gaps(store, settings.sources, settings.counts) == []
    process = run_to_end(world)
    kept = from_offsets(events, {0: {"predictions": 27, "outcomes": 15}})
    assert_recounted(world, process, kept, seed)


def test_an_input_made_anew_is_no_gap() -> None:
    world, _ = quiet_world(4)
    run_to_end(world)
    world.logs["outcomes", 1] = world.logs["outcomes", 1][:3]  # type: ignore[index]
    settings = world.settings
    with pytest.raises(StreamcalError, match=r"outcomes\[1\] ends at offset 3, and the state goes on at") as raised:
        find_gaps(MemoryStore(world), settings.sources, settings.counts)
    assert "streamcal state rebuild" in str(raised.value)


def test_a_mark_of_the_release_before_has_no_gaps() -> None:
    mark = Mark((BEGINNING, BEGINNING), {}, [], {}, {}, [], 0, [("predictions", 3, 5)])
    assert Mark.from_bytes(mark.to_bytes()).gaps == [("predictions", 3, 5)]
