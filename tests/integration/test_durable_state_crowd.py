"""Monitors that share the work, are stopped, fenced and cut off on a real broker, count what a recount counts.

The quick form; ``python3 dev.py torture monitor_kills`` is the long one.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kafka_broker import Broker
from torture.disturbed_streams import StreamPlan
from torture.monitor_arena import MonitorArena
from torture.monitor_kills import Crowd, strike

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize(
    "blows", [("stopped_between_delta_and_counts", "left"), ("died_in_mid_merge", "broker_killed")], ids=" and ".join
)
def test_several_monitors_count_each_pair_once(kafka_broker: Broker, tmp_path: Path, blows: tuple[str, ...]) -> None:
    with MonitorArena(kafka_broker.bootstrap, tmp_path, StreamPlan(6_000, 3, seed=8)) as arena:
        crowd = Crowd(arena, kafka_broker, random.Random(8), len(blows))
        for blow in blows:
            strike(crowd, blow)
        arena.finish().check_all()
