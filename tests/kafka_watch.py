"""Ends a test broker when the tests that started it are gone, however they went (a killed worker, SIGTERM).

Run as ``python kafka_watch.py PID [GRACE_SECONDS]`` with a pipe as standard input: the pipe closes with the process
that holds its other end. Not the parent-death signal of Linux, which follows the thread that forked, not the process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

__all__ = ["Watch"]

GRACE_SECONDS = 10.0


class Watch:
    """A process of its own that watches over `pid` for this one; `close` ends it."""

    def __init__(self, pid: int) -> None:
        # its own session: Ctrl-C in a terminal must not end the watch before the tests have
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__, str(pid)], stdin=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        """Call when the watched process has ended, or is to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def watch(pid: int, grace_s: float) -> None:
    """Wait for the end of standard input, then end `pid`, by force after a while."""
    try:
        handle = os.pidfd_open(pid)  # not the number: it may be another process's by then
    except ProcessLookupError:
        return
    sys.stdin.buffer.read()
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            signal.pidfd_send_signal(handle, how)
        except ProcessLookupError:
            return
        if select.select([handle], [], [], grace_s)[0]:
            return


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else GRACE_SECONDS)
