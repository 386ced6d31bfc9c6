from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import structlog

from streamcal.cli import run_command


class Said(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def streamcal(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Said]]:
    """Run a command line in this process."""

    def run(*arguments: object) -> Said:
        code = run_command([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    yield run
    structlog.reset_defaults()  # commands turn the log to the standard error of their process
