"""Log lines of the daemon: JSON, one per line, or readable text where a person watches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

__all__ = ["configure_logging", "relay_client_warnings"]

_CLIENT: Final = "kafka"
_REPEAT_S: Final = 60.0
"""The client repeats itself at each attempt to connect, several times a second."""


def configure_logging(stream: TextIO) -> None:
    """Write structlog's lines to `stream`, and silence the Kafka client.

    What the client has to say while it connects ends in one error of ours; see `relay_client_warnings` for later.
    """
    shared: list[Any] = [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    last: Any
    if stream.isatty():
        last = structlog.dev.ConsoleRenderer()
    else:
        shared.append(structlog.processors.format_exc_info)
        last = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    client = logging.getLogger(_CLIENT)
    client.handlers = [logging.NullHandler()]
    client.propagate = False
    client.setLevel(logging.WARNING)


def relay_client_warnings(while_: Callable[[], bool]) -> None:
    """Pass on the client's warnings while `while_()` holds, each message at most once a minute."""
    logging.getLogger(_CLIENT).handlers = [_Relay(while_)]


class _Relay(logging.Handler):
    def __init__(self, while_: Callable[[], bool]) -> None:
        super().__init__(logging.WARNING)
        self._while = while_
        self._log = structlog.get_logger(_CLIENT)
        self._said: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        # By place in the client's code: some of its messages carry numbers that differ each time.
        place = f"{record.name}:{record.lineno}"
        if not self._while() or now - self._said.get(place, -_REPEAT_S) < _REPEAT_S:
            return
        self._said[place] = now
        self._log.warning("kafka client", message=record.getMessage(), logger=record.name)
