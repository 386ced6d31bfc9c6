"""A call that does not come back ends the process; one that does, does not."""

from __future__ import annotations

import subprocess
import sys
import threading

from streamcal.runtime.transforming.watchdog import Watchdog

STUCK = """
import threading
from streamcal.runtime.transforming.watchdog import Watchdog
with Watchdog(0.2, exit_code=4, tick_s=0.05) as watchdog:
    with watchdog.over("committing the transaction"):
        threading.Event().wait()
"""


def test_a_call_that_does_not_come_back_ends_the_process_with_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    assert done.stderr.startswith("streamcal: Kafka did not answer within 0 s: committing the transaction; ")
    assert done.stderr.count("\n") == 1


def test_the_call_that_took_too_long_is_named_and_those_before_it_are_not() -> None:
    named: list[str] = []
    told = threading.Event()

    def expired(call: str) -> None:
        named.append(call)
        told.set()

    with Watchdog(1.0, exit_code=4, tick_s=0.1, expired=expired) as watchdog:
        for _ in range(1000):
            with watchdog.over("quick"):
                pass
        with watchdog.over("slow"):
            assert told.wait(60)
    assert named[0] == "slow"
    assert "quick" not in named
