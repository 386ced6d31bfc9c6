"""The flights as files for `replay`, and one replay of the whole year that several tests look at."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FLIGHTS = ROOT / "examples" / "flights"
CONFIG = FLIGHTS / "config.yaml"


@dataclass(frozen=True)
class FlightFiles:
    predictions: Path
    outcomes: Path

    def until(self, folder: Path, scored_ms: int, known_ms: int) -> FlightFiles:
        """Predictions before `scored_ms` and outcomes before `known_ms`, as files in `folder`."""
        predictions = _until(self.predictions, folder / self.predictions.name, scored_ms)
        return FlightFiles(predictions, _until(self.outcomes, folder / self.outcomes.name, known_ms))


def _until(source: Path, target: Path, end_ms: int) -> Path:
    with gzip.open(source, "rb") as lines, gzip.open(target, "wb", compresslevel=1) as kept:
        for line in lines:
            if json.loads(line)["ts"] >= end_ms:
                break  # each file is sorted by its time
            kept.write(line)
    return target


@dataclass(frozen=True)
class ReplayedYear:
    report: dict[str, Any]
    page: str
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def flight_files(tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    """What prepare.py makes of the flights."""
    folder = tmp_path_factory.mktemp("flights")
    subprocess.run([sys.executable, FLIGHTS / "prepare.py", folder], check=True, capture_output=True)
    return FlightFiles(folder / "predictions.jsonl.gz", folder / "outcomes.jsonl.gz")


@pytest.fixture(scope="session")
def flights_year(flight_files: FlightFiles, tmp_path_factory: pytest.TempPathFactory) -> ReplayedYear:
    """`streamcal replay --by month` over all flights, as the README has it."""
    folder = tmp_path_factory.mktemp("report")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "streamcal",
        "replay",
        "--config",
        CONFIG,
        "--by",
        "month",
        "--report",
        folder,
    ]
    command += ["--predictions", flight_files.predictions, "--outcomes", flight_files.outcomes]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    page = (folder / "report.html").read_text(encoding="utf-8")
    return ReplayedYear(report, page, done.stdout, done.stderr)
