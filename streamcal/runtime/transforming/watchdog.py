"""Ends the process when a call to the Kafka client does not come back.

The client has no time limit for sending offsets, committing and aborting a transaction, and its `poll` is known to
spin for ever over a record it cannot unpack. Nothing in the process can end such a call; a supervisor can start a new
process, and the broker takes back the open transaction. So a call that takes too long ends the process.

Time is counted in ticks of a thread of its own and not read from a clock: a process that was stopped for an hour
(SIGSTOP, a laptop's lid) gets its full time when it goes on.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

__all__ = ["Watchdog"]

_TICK_S: Final = 0.5


class Watchdog:
    """Watches one thread's calls; alive within its context.

    Parameters
    ----------
    limit_s : float
        Time a call may take.
    expired : callable
        Called with the call's name on the watching thread; by default prints one line and ends the process.
    exit_code : int
        Of the process.
    """

    def __init__(
        self, limit_s: float, *, exit_code: int, expired: Callable[[str], None] | None = None, tick_s: float = _TICK_S
    ) -> None:
        self._limit_s = limit_s
        self._exit_code = exit_code
        self._expired = expired or self._end
        self._tick_s = tick_s
        self._call = ""
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="streamcal-watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @contextlib.contextmanager
    def over(self, call: str) -> Iterator[None]:
        """Watch the block; `call` names it in the message."""
        # Two plain attributes: the watching thread only ever compares them.
        self._number += 1
        self._call = call
        try:
            yield
        finally:
            self._call = ""

    def _watch(self) -> None:
        seen, ticks, most = 0, 0, max(1, round(self._limit_s / self._tick_s))
        while not self._stop.wait(self._tick_s):
            if not self._call or self._number != seen:
                seen, ticks = self._number, 0
            else:
                ticks += 1
            if ticks >= most:
                self._expired(self._call)
                ticks = 0

    def _end(self, call: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(
                f"streamcal: Kafka did not answer within {self._limit_s:.0f} s: {call}; nothing of the open "
                "transaction is visible to readers that read committed, and the next start goes on before it\n"
            )
            sys.stderr.flush()
        os._exit(self._exit_code)  # no clean-up: the calls it would make are those that do not come back
