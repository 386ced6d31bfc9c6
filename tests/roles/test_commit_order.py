"""In which order a commit of several tasks sends, waits and tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from simulated_cluster import Process, SimulatedCounts, SimulatedGroup, SimulatedLog, World
from state_topics import quiet_world

from streamcal.parts.mark import MarkKey
from streamcal.parts.part import StoredKey
from streamcal.state.claimed_log import ClaimedLog
from streamcal.state.memory_log import MemoryRecordLog

Step = tuple[str, Any]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """What is asked of the simulated logs and topics, in order."""
    found: list[Step] = []
    send, publish, flush = SimulatedLog.send, SimulatedCounts.publish, SimulatedCounts.flush
    commit = SimulatedGroup.commit

    def sending(log: SimulatedLog, values: Sequence[bytes]) -> Callable[[], list[int]]:
        found.append(("sent", log.number))
        wait = send(log, values)

        def waiting() -> list[int]:
            offsets = wait()
            found.append(("stored", log.number))
            return offsets

        return waiting

    def publishing(topic: SimulatedCounts, model: str | None, key: bytes, value: bytes | None) -> None:
        mark = MarkKey.from_bytes(key)
        found.append(("told", StoredKey.from_bytes(key).source) if mark is None else ("marked", mark.source))
        publish(topic, model, key, value)

    def flushing(topic: SimulatedCounts) -> None:
        flush(topic)
        found.append(("flushed", None))

    def committing(group: SimulatedGroup, offsets: Any) -> bool:
        found.append(("committed", None))
        return commit(group, offsets)

    monkeypatch.setattr(SimulatedLog, "send", sending)
    monkeypatch.setattr(SimulatedCounts, "publish", publishing)
    monkeypatch.setattr(SimulatedCounts, "flush", flushing)
    monkeypatch.setattr(SimulatedGroup, "commit", committing)
    return found


def started(world: World) -> Process:
    world.start()
    (process,) = world.processes.values()
    while len(process.monitor.tasks) < world.sources or not process.monitor.read:
        world.seconds += 0.3
        process.monitor.step(0.0)
    return process


def test_all_deltas_are_sent_before_one_is_waited_for_and_each_is_stored_before_it_is_told_of(
    steps: list[Step],
) -> None:
    world, _ = quiet_world(7)
    process = started(world)
    steps.clear()
    assert process.monitor.commit()
    numbers = sorted(process.monitor.tasks)
    assert len(numbers) > 1
    assert steps[: len(numbers)] == [("sent", number) for number in numbers]
    for number in numbers:
        parts = [place for place, step in enumerate(steps) if step == ("told", number)]
        assert parts
        assert steps.index(("stored", number)) < min(parts)
        assert max(parts) < steps.index(("marked", number)) < steps.index(("flushed", None))
    assert steps.index(("flushed", None)) < steps.index(("committed", None))


def test_nothing_is_written_between_a_delta_and_its_acknowledgement() -> None:
    owner = ClaimedLog(MemoryRecordLog(), b"owner")
    for _ in owner.take_over(b"about"):
        pass
    owner.begin(b"one")
    with pytest.raises(AssertionError):
        owner.begin(b"two")
    with pytest.raises(AssertionError):
        owner.snapshot(b"state")
    owner.finish()
    owner.append(b"two")


def test_a_commit_with_nothing_new_tells_nothing(steps: list[Step]) -> None:
    world, _ = quiet_world(7, cut={})
    process = started(world)
    process.monitor.commit()
    steps.clear()
    assert process.monitor.commit()
    assert {what for what, _ in steps} <= {"flushed", "committed"}
