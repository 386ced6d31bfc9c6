"""The `streamcal` command: one module per command, each loading what it needs when it runs.

Exit codes: 0 done; 1 a failure without a code of its own; 2 wrong usage or configuration; 130 interrupted; the
classes of `streamcal.errors` have theirs. What a user can mend is one message on standard error: what, where, what to
do. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from streamcal.errors import StreamcalError

__all__ = ["main", "run_command"]

_INTERRUPTED = 130
"""128 + SIGINT, as shells count."""


def main() -> NoReturn:
    """Entry point of the console script."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        # Here, so that an interrupt while modules load ends as quietly as any other.
        from streamcal.cli.app import command

        code = _exit_code(command, arguments)
        sys.stdout.flush()
    except StreamcalError as error:
        _say(message(error))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left. The interpreter would flush once more at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _exit_code(command: object, arguments: Sequence[str]) -> int:
    assert callable(command)
    try:
        command(list(arguments), prog_name="streamcal")
    except SystemExit as end:
        if isinstance(end.code, str):
            _say(end.code)
            return 1
        return end.code or 0
    return 0


def message(error: StreamcalError) -> str:
    """What happened, where and what to do; one line unless there are several problems."""
    where = f"{error.where}: " if error.where else ""
    hint = ""
    if error.hint:
        hint = f"\n  {error.hint}" if "\n" in error.what else f"; {error.hint}"
    return f"streamcal: {where}{error.what}{hint}"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the one place that does
