"""One side of the input far ahead on a real Kafka: memory stays bounded and nothing is released before its time.

The long form is ``python3 dev.py torture monitor_catch_up``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.monitor_catch_up import catch_up, expected

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROWS = 40_000
AHEAD_BYTES = 300_000
"""A few thousand predictions of each partition."""
FETCH_BYTES = 30_000


@pytest.mark.parametrize("labels", ["both", "positives_only"])
def test_no_more_wait_than_have_no_outcome_yet_and_each_ends_as_it_should(
    kafka: str, tmp_path: Path, labels: str
) -> None:
    found = catch_up(kafka, tmp_path, ROWS, labels, ahead_bytes=AHEAD_BYTES, fetch_bytes=FETCH_BYTES)
    assert found.counters == expected(ROWS, labels)
    assert found.pending < 0.6 * ROWS  # of half of them the outcome has not come
