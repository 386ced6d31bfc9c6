"""What becomes of events that are set aside, beside being counted: told of in the log, and sent to the dead letters."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final, Protocol

import structlog

from streamcal.runtime.cluster import Part
from streamcal.runtime.monitor import Observer
from streamcal.stream.events import Record, Rejected, RejectedRecord
from streamcal.stream.source import Intake

__all__ = ["RejectedSink", "Rejections"]

_TELL_S: Final = 60.0
"""Told of once a minute; the counters have them all."""
_RECENT: Final = 10
"""Kept to be told of: enough to find a faulty producer, few enough for any log."""
_STORED_S: Final = 5.0
"""Longest wait of one commit for rejected records to be stored."""

log = structlog.get_logger(__name__)


class RejectedSink(Protocol):
    """Where rejected records go; used from one thread."""

    def send(self, rejected: Sequence[RejectedRecord]) -> None:
        """Take them; may wait for room."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Whether all that was taken is stored, or refused for good, within that time."""
        ...


class Rejections(Observer):
    """Watches what a monitor takes in.

    Parameters
    ----------
    sink : RejectedSink or None
        Where rejected records go; nothing is committed before they are stored.
    """

    def __init__(self, sink: RejectedSink | None) -> None:
        self._sink = sink
        self._recent: deque[Rejected] = deque(maxlen=_RECENT)
        self._told_s = -_TELL_S

    def took_in(self, part: Part, intake: Intake, records: Sequence[Record]) -> None:
        """Note what was set aside of `records`."""
        if not intake.rejections:
            return
        self._recent.extend(
            Rejected(*part, records[rejection.row].offset, rejection.reason)
            for rejection in intake.rejections[-_RECENT:]
        )
        if self._sink is not None:
            rejected = [RejectedRecord(*part, records[found.row], found.reason) for found in intake.rejections]
            self._sink.send(rejected)
        self._tell()

    def before_commit(self) -> bool:
        """Whether everything set aside is stored."""
        self._tell()
        return self._sink is None or self._sink.flush(_STORED_S)

    def _tell(self) -> None:
        """Log where rejected events are, at a limited rate; never what they say, for ids are personal data."""
        now = time.monotonic()
        if self._recent and now - self._told_s >= _TELL_S:
            self._told_s = now
            for rejected in self._recent:
                log.warning("event rejected", **asdict(rejected))
            self._recent.clear()
