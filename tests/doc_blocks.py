"""Code blocks of the documentation: found, and run in order as a reader would."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from streamcal.runtime.config import load_config

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(r"^( *)```(\w*)$")
_NOT_RUN = re.compile(r"^ *<!-- not run: .+ -->$")
_SAVED_AS = re.compile(r"[Ss]aved as `([\w.-]+)`")


@dataclass(frozen=True)
class Block:
    """One fenced block; `runs` unless a comment right before it says why not."""

    kind: str
    text: str
    line: int
    runs: bool
    saved_as: str | None
    """The file that the paragraph before it names."""


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    start: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if start is None:
            start = number, fence[2]
            continue
        first, kind = start
        start = None
        before = [text for text in lines[max(0, first - 4) : first] if text.strip()][-2:]
        saved = _SAVED_AS.search(" ".join(before))
        found.append(
            Block(
                kind=kind,
                text=textwrap.dedent("\n".join(lines[first + 1 : number]) + "\n"),
                line=first + 1,
                runs=not (before and _NOT_RUN.match(before[-1])),
                saved_as=saved[1] if saved else None,
            )
        )
    assert start is None, f"{page}: the block at line {start} has no end"
    return found


def run(block: Block, folder: Path) -> None:
    """Run one block in `folder`, with a `streamcal` command on the path."""
    if block.saved_as:
        (folder / block.saved_as).write_text(block.text, encoding="utf-8")
    if block.kind == "python":
        _succeeds([sys.executable, "-W", "error", "-c", block.text], folder)
    elif block.kind == "sh":
        _succeeds(["bash", "-euo", "pipefail", "-c", block.text], folder)
    elif block.kind == "yaml":
        path = folder / (block.saved_as or "block.yaml")
        path.write_text(block.text, encoding="utf-8")
        load_config(path, environ={}, require_kafka="kafka" in path.read_text(encoding="utf-8"))
    elif block.kind in {"", "text"}:
        pass  # a picture or an output
    elif block.kind == "json":
        assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())
    else:
        raise AssertionError(f"line {block.line}: nothing runs a block of {block.kind!r}")


def _succeeds(command: list[str], folder: Path) -> None:
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    launcher = commands / "streamcal"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m streamcal "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    path = os.pathsep.join([str(commands), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    said = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
