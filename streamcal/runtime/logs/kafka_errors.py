"""What a client's error means for us: wait and go on, or stop with words that help."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import structlog
from kafka.errors import (
    BrokerNotAvailableError,
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_clients import admin_timeout_ms

__all__ = ["Trouble", "out_of_range", "passes", "refusal"]

_PASSING: Final = (
    # A member that was left behind: the next poll joins again and settles what is still ours.
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    # A broker that is going down or coming up.
    BrokerNotAvailableError,
    UnknownError,
)
"""Errors that time heals although the client does not call them retriable."""

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


def passes(error: KafkaError) -> bool:
    """Whether time heals it."""
    return bool(error.retriable) or isinstance(error, _PASSING)


def refusal(error: KafkaError, where: str) -> BrokerError:
    """What to say when trying again cannot help."""
    if isinstance(error, MessageSizeTooLargeError):
        what = "a record of ours is larger than its topic takes"
        hint = "raise max.message.bytes of the topics of state, counts and maps (docs/how-to/kafka.md); nothing is lost"
        return BrokerError(what, where=where, hint=hint)
    hint = "check the rights of this user and that no other process has the same kafka.group_instance_id"
    return BrokerError(f"the broker refuses: {error}", where=where, hint=hint)


def out_of_range(
    consumer: Any, error: OffsetOutOfRangeError, *, group_id: str, where: str, remedy: str | None = None
) -> BrokerError:
    """What to say when the records that should follow are gone: which, and what the logs hold instead."""
    wanted: Mapping[Any, int] = error.args[0] if error.args and isinstance(error.args[0], Mapping) else {}
    parts = list(wanted)
    told = {part: f"{part.topic}[{part.partition}] goes on at offset {wanted[part]}" for part in parts}
    try:
        first = consumer.beginning_offsets(parts, timeout_ms=admin_timeout_ms)
        end = consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
        told = {part: f"{text}, the log holds {first[part]} to {end[part]}" for part, text in told.items()}
    except KafkaError as unanswered:
        log.warning("the ends of the logs could not be asked for", error=str(unanswered))
    hint = remedy or (
        f"records were deleted before group {group_id!r} read them, or the topic was made anew; to accept the gap set "
        "the group's offsets with kafka-consumer-groups --reset-offsets --to-earliest, or set another kafka.group_id "
        "with kafka.start_from"
    )
    return BrokerError(f"offset out of range: {'; '.join(told.values())}", where=where, hint=hint)
