"""A monitor killed at any moment on a real broker counts what a recount of the topics counts.

The quick form; ``python3 dev.py torture monitor_kills`` is the long one.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from torture.disturbed_streams import StreamPlan
from torture.monitor_arena import MonitorArena
from torture.monitor_kills import kill_again_and_again

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KILLS: dict[str, list[str | None]] = {
    "both": ["delta after", "counts middle", "merge after", None],
    "positives_only": ["counts before", "snapshot middle", "restore middle", "group before"],
}


@pytest.mark.parametrize("labels", KILLS)
def test_whatever_moment_it_is_killed_at_each_pair_is_counted_once(kafka: str, tmp_path: Path, labels: str) -> None:
    with MonitorArena(kafka, tmp_path, StreamPlan(8_000, 3, seed=7, labels=labels)) as arena:
        kill_again_and_again(arena, KILLS[labels], random.Random(7))
        assert sum(arena.hit.values()) == len(KILLS[labels])
        arena.finish().check_all()
        for happened in ("records compacted away", "maps published", "alarms raised"):
            assert arena.hit[happened] > 0
