"""Warnings about what time can heal, at a limited rate."""

from __future__ import annotations

import time

import structlog

__all__ = ["Trouble"]

log = structlog.get_logger(__name__)


class Trouble:
    """Says the same thing at most once in `every_s`, with how often it was left unsaid."""

    def __init__(self, every_s: float = 30.0) -> None:
        self._every_s = every_s
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, what: str, error: BaseException) -> None:
        """Warn, unless that was done just now."""
        now = time.monotonic()
        last, unsaid = self._said.get(what, (-self._every_s, 0))
        if now - last < self._every_s:
            self._said[what] = last, unsaid + 1
            return
        self._said[what] = now, 0
        log.warning(what, error=str(error), repeated=unsaid)
