"""The list of failure scenarios names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[^`]+)::(\w+|\*)`")


def test_every_scenario_is_shown_by_something() -> None:
    rows = ROW.findall(TEXT)
    assert [int(number) for number, _ in rows] == list(range(1, 35))
    assert [number for number, shown in rows if not NAMED.search(shown)] == []


def test_every_test_that_is_named_exists() -> None:
    missing = []
    for path, name in NAMED.findall(TEXT):
        source = ROOT / path
        if not source.is_file() or (name != "*" and f"\ndef {name}(" not in source.read_text(encoding="utf-8")):
            missing.append(f"{path}::{name}")
    assert missing == []
