"""While state is taken up the process is not ready and says how much remains."""

from __future__ import annotations

import re
from typing import Any

from simulated_cluster import World
from state_topics import quiet_world, run_to_end

from streamcal.runtime.loop import Readers
from streamcal.runtime.running import Running
from streamcal.serve.exporter import BuildInfo, ProcessCollector
from streamcal.serve.exposition import exposition

REMAINING = re.compile(r'streamcal_recovery_remaining_records\{partition="(\d)"\} (\d+)')
STARTED = re.compile(r"streamcal_recovery_started_timestamp_seconds (\d\S*)")


def states_of(world: World) -> list[Any]:
    """(ready, remaining by partition, started) at every turn of the loop until it is ready."""
    world.start()
    (process,) = world.processes.values()
    readers = Readers()
    collector = ProcessCollector(BuildInfo("1", "l"), readers.readiness, readers.commits)
    found: list[Any] = []

    def look() -> bool:
        text = exposition(collector.collect()).decode()
        remaining = {int(number): int(float(count)) for number, count in REMAINING.findall(text)}
        found.append((readers.readiness.reason, remaining, STARTED.findall(text)))
        return readers.readiness.reason is None or len(found) > 500

    Running(process.monitor, readers, 1000.0, 1000.0).run(look)
    return found


def test_readiness_is_false_and_what_remains_falls_until_all_is_recovered() -> None:
    world, _ = quiet_world(3)
    run_to_end(world)
    world.end(next(iter(world.processes)))
    world.calm = True
    states = states_of(world)
    recovering = [state for state in states if state[0] is not None and state[0].startswith("recovering")]
    assert len(recovering) > 2
    numbers = {number for _, remaining, _ in recovering for number in remaining}
    assert numbers == {0, 1, 2}  # both tasks, and the aggregator's
    for number in numbers:
        seen = [remaining[number] for _, remaining, _ in recovering if number in remaining]
        assert seen == sorted(seen, reverse=True)
    assert len({started for _, _, (started,) in recovering}) == 1
    reason, remaining, started = states[-1]
    assert (reason, remaining, started) == (None, {}, [])


def test_the_reason_names_what_is_recovered() -> None:
    world, _ = quiet_world(3)
    run_to_end(world)
    world.end(next(iter(world.processes)))
    reasons = [reason for reason, _, _ in states_of(world) if reason]
    assert any("task 0" in reason for reason in reasons)
    assert reasons[0] == "starting"
