"""One side of a task far ahead: memory stays bounded and nothing is released before its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "catch_up.py"
ROWS = 40_000
SLICE_BYTES = 20_000 * 160
"""One poll of the side ahead, which is taken in before it is told to wait."""


def caught_up(labels: str, ahead_bytes: int) -> Any:
    command = [sys.executable, str(SCRIPT), "--rows", str(ROWS), "--ahead", str(ahead_bytes), "--one", labels]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("labels", "matched"), [("both", ROWS), ("positives_only", ROWS // 4)])
def test_memory_is_bounded_by_the_limit_and_every_prediction_ends_as_it_should(labels: str, matched: int) -> None:
    found = caught_up(labels, 1_000_000)
    assert found["counters"] == {
        "matched": matched,
        "negative_at_maturity": ROWS - matched,
        "expired": 0,
        "late_outcome": 0,
    }
    assert found["join_bytes"] < 1_000_000 + SLICE_BYTES
