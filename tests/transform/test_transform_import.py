"""What `import streamcal.transform` costs and loads, in fresh interpreters."""

from __future__ import annotations

import json
import subprocess
import sys

UNWANTED = ("kafka", "river", "pandas", "scipy", "prometheus_client", "pydantic", "structlog", "yaml")

LOADED = "import json, sys, streamcal.transform; print(json.dumps(sorted(sys.modules)))"

COST = """
import time
import numpy
start = time.process_time()
import streamcal.transform
print(1000 * (time.process_time() - start))
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_it_loads_no_broker_client_nor_statistics_library() -> None:
    loaded = {name.split(".")[0] for name in json.loads(run(LOADED))}
    assert loaded.isdisjoint(UNWANTED)


def test_it_costs_at_most_40_ms_above_numpy() -> None:
    # Processor time, the least of several runs: other work on the machine does not count.
    run(COST)
    assert min(float(run(COST)) for _ in range(5)) <= 40.0
