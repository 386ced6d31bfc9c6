"""Schedules of processes, faults and compaction, each compared with a recount and with an undisturbed run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from simulated_cluster import FAULTS
from simulated_runs import differences

from streamcal.aggregator import Aggregator
from streamcal.parts.merge import Merge
from streamcal.parts.part import StoredKey
from streamcal.roles.task import Task
from streamcal.state.claimed_log import AppendUncertainError, ClaimedLog
from streamcal.state.reading import Reading
from streamcal.stream.source import Source

SEEDS = int(os.environ.get("STREAMCAL_SIMULATION_SEEDS", "300"))
FIRST = int(os.environ.get("STREAMCAL_SIMULATION_FIRST", "0"))
PARTS = 4
"""Tests the seeds are spread over, so that they run side by side."""
WITHIN = 300
"""Seeds within which every mutant is caught."""

HIT: Counter[str] = Counter()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_schedule_ends_with_the_counts_and_decisions_of_an_undisturbed_run(part: int) -> None:
    wrong = {}
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        found, hit = differences(seed)
        HIT.update(hit)
        if found:
            wrong[seed] = found
    print(f"seeds {FIRST} to {FIRST + SEEDS}, part {part}: faults so far", dict(HIT))
    assert not wrong


def test_every_kind_of_fault_was_hit() -> None:
    assert {fault for fault in FAULTS if not HIT[fault]} == set()


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    def check(log: ClaimedLog, offsets: Sequence[int]) -> None:
        log._last = offsets[-1]

    patch.setattr(ClaimedLog, "_check_fence", check)


def _adding_instead_of_replacing(patch: pytest.MonkeyPatch) -> None:
    note = Merge._note
    patch.setattr(Merge, "_note", lambda merge, place, part, held: note(merge, place, part, None))


def _version_by_offset(patch: pytest.MonkeyPatch) -> None:
    part = Merge.part
    patch.setattr(Merge, "part", lambda merge, stored, value: part(merge, stored._replace(claim=0), value))


def _chunks_before_filtering(patch: pytest.MonkeyPatch) -> None:
    take = Reading.take

    def judged_first(reading: Any, offset: int, record: Any) -> None:
        if record.kind != "claim" and reading._chunks and record.author != reading._claimant:
            reading._chunks = []
        take(reading, offset, record)

    patch.setattr(Reading, "take", judged_first)


def _resend_under_the_same_author(patch: pytest.MonkeyPatch) -> None:
    begin, finish = ClaimedLog.begin, ClaimedLog.finish
    payloads: dict[ClaimedLog, bytes] = {}

    def noted(log: ClaimedLog, payload: bytes) -> None:
        payloads[log] = payload
        begin(log, payload)

    def again(log: ClaimedLog) -> None:
        try:
            finish(log)
        except AppendUncertainError:
            begin(log, payloads[log])
            finish(log)

    patch.setattr(ClaimedLog, "begin", noted)
    patch.setattr(ClaimedLog, "finish", again)


def _evidence_before_it_is_sealed(patch: pytest.MonkeyPatch) -> None:
    weigh = Aggregator._weigh

    def early(aggregator: Aggregator, marks: Any) -> None:
        weigh(aggregator, {n: (pair[0], 1 << 60) if pair[1] > 0 else pair for n, pair in marks.items()})

    patch.setattr(Aggregator, "_weigh", early)


def _snapshot_before_counts(patch: pytest.MonkeyPatch) -> None:
    finish = ClaimedLog.finish
    tell = Task.tell

    def early(task: Task, topic: Any, lag: Any = None) -> None:
        if task._written:
            task._written = False
            finish(task._log)
            if task._delta_bytes >= task._snapshot_after:
                task.snapshot()
        tell(task, topic, lag)

    patch.setattr(Task, "tell", early)


def _parts_before_the_delta_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Told of what was sent only, and waited for with the parts."""
    tell, settle = Task.tell, Task.settle
    unfinished: set[Task] = set()

    def early(task: Task, topic: Any, lag: Any = None) -> None:
        if task._written:
            unfinished.add(task)
            task._written = False
        tell(task, topic, lag)

    def late(task: Task) -> None:
        if task in unfinished:
            unfinished.remove(task)
            task._log.finish()
        settle(task)

    patch.setattr(Task, "tell", early)
    patch.setattr(Task, "settle", late)


def _watermark_per_batch(patch: pytest.MonkeyPatch) -> None:
    take_in = Source.take_in

    def coarse(source: Source, topic: str, records: Any, next_offset: int) -> Any:
        before = source._clocks[topic].value
        intake = take_in(source, topic, records, next_offset)
        object.__setattr__(intake, "before", np.full(len(intake.before), before))
        return intake

    patch.setattr(Source, "take_in", coarse)


def _offsets_of_the_group(patch: pytest.MonkeyPatch) -> None:
    """Restore without what came after the last snapshot, as if only snapshots counted."""
    apply = Task._apply

    def forgetful(task: Task, delta: Any) -> None:
        if len(delta["intakes"]) % 3:
            apply(task, delta)

    patch.setattr(Task, "_apply", forgetful)


def _keys_without_claims(patch: pytest.MonkeyPatch) -> None:
    """Parts of all claims under one key: compaction keeps the last, which may be a given-up author's."""
    to_bytes = StoredKey.to_bytes
    patch.setattr(StoredKey, "to_bytes", lambda key: to_bytes(key._replace(claim=0)))


def _advances_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Idle logs follow, and nobody writes it down."""

    def advance(task: Task, topic: str, to_ms: int) -> None:
        task.source.apply(task.source.advance_in(topic, to_ms))
        task.counts.fold(task.source.take())

    patch.setattr(Task, "advance", advance)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no fence": _no_fence,
    "adding instead of replacing": _adding_instead_of_replacing,
    "version by offset instead of claim": _version_by_offset,
    "chunk contiguity before filtering": _chunks_before_filtering,
    "resend under the same author": _resend_under_the_same_author,
    "evidence before it is sealed": _evidence_before_it_is_sealed,
    "snapshot before counts": _snapshot_before_counts,
    "per-batch watermark": _watermark_per_batch,
    "deltas left out at a takeover": _offsets_of_the_group,
    "keys without claims": _keys_without_claims,
    "advances forgotten": _advances_forgotten,
    "parts before the delta is durable": _parts_before_the_delta_is_durable,
}


@pytest.fixture(params=MUTANTS)
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    MUTANTS[request.param](monkeypatch)
    return str(request.param)


def test_a_mutant_is_caught(mutant: str) -> None:
    for seed in range(WITHIN):
        try:
            found, _ = differences(seed)
        except TypeError:  # the mutant does not fit the code any more
            raise
        except Exception as error:  # noqa: BLE001, a broken promise inside is a catch, too
            found = [repr(error)]
        if found:
            print(f"{mutant}: caught by seed {seed}: {found[0][:100]}")
            return
    pytest.fail(f"{mutant}: not caught within {WITHIN} seeds")
