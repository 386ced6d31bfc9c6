"""Ctrl-C and SIGTERM as a wish that is looked at between two steps, so that nothing is cut off half done."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Final, Self

__all__ = ["StopRequest"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether a stop was asked for, from entering to leaving its context; the second signal does what it did before.

    A plain attribute and not an event: a handler runs between any two steps of the main thread, and an event's lock
    might be held there.
    """

    def __init__(self) -> None:
        self.made = False
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the interpreter's signature
        self.made = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
