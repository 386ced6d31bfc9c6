"""A monitor on random and mutated messages; ``python3 dev.py torture monitor_fuzz`` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture.monitor_fuzz import fuzz

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_each_of_twenty_thousand_messages_is_counted_once(kafka: str, tmp_path: Path) -> None:
    account = fuzz(kafka, tmp_path, 20_000, seed=3)
    assert account["predictions_accepted"] > 500
    assert account["outcomes_accepted"] > 500
    assert {reason for reason in account if reason.startswith("rejected: ")} >= {
        *("rejected: malformed", "rejected: missing_id", "rejected: bad_score", "rejected: bad_label"),
        *("rejected: bad_time", "rejected: future", "rejected: bad_weight"),
    }
