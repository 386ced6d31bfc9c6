"""Rejected events, as they came, to a topic of their own.

Rules
-----
- The value is sent unchanged, and so are the headers; ours come after them: `streamcal.reason`, `streamcal.topic`,
  `streamcal.partition`, `streamcal.offset`, `streamcal.timestamp` (of the record, in ms), and `streamcal.key` where the
  record has a key.
- The key is ``topic,partition,offset``: read again after a crash, an event is the same record again, and compaction
  leaves one. An event that was repartitioned is named by where it was written first.
- `flush` says whether everything sent is stored. What was read may be committed only then. What fails for want of a
  broker is sent again; what the topic does not take is counted, and stays where it is, in its own topic.
- The record's own time is now: a broker refuses times far ahead, and deletes by them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import structlog
from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, MessageSizeTooLargeError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_client_faults import close_producer
from streamcal.runtime.logs.kafka_errors import Trouble, passes
from streamcal.serve.process_counters import ProcessCounters
from streamcal.stream.events import Record, RejectedRecord

__all__ = ["ORIGIN_HEADER", "DeadLetters", "Origin", "letter_key", "origin_of"]

ORIGIN_HEADER: Final = "streamcal.origin"
"""On a record that was written again by us: ``topic,partition,offset`` of the first one."""

_MOST_PENDING: Final = 10_000
_MOST_BYTES: Final = 64 * 2**20
"""Unacknowledged letters held at most; a slower topic slows reading down."""

_LATER: Final = "rejected events could not be stored yet; trying again"

_STUCK_S: Final = 60.0
"""So long without room for more is a failure."""

log = structlog.get_logger(__name__)


class Origin(NamedTuple):
    """Where a record was written first."""

    topic: str
    partition: int
    offset: int


class _Letter(NamedTuple):
    origin: Origin
    reason: str
    value: bytes | None
    headers: list[tuple[str, bytes]]
    future: Any = None  # not sent yet: the client knows of no such topic at present


class DeadLetters:
    """Sends rejected events; used from one thread.

    Parameters
    ----------
    open_producer : callable
        Gives the producer, at the first event: idempotent, with room for the largest values. Closed by `close`.
    topic : str
        Where to.
    names : mapping
        Kafka topic by role (``predictions``, ``outcomes``).
    counters : ProcessCounters
        Where what was stored is counted.
    where : str
        For messages.
    """

    def __init__(
        self,
        open_producer: Callable[[], Any],
        topic: str,
        names: Mapping[str, str],
        *,
        counters: ProcessCounters | None = None,
        where: str = "",
    ) -> None:
        self._open_producer = open_producer
        self._topic = topic
        self._names = names
        self._counters = counters or ProcessCounters()
        self._where = where
        self._producer: Any = None
        self._pending: deque[_Letter] = deque()
        self._bytes = 0
        self._trouble = Trouble()

    def send(self, rejected: Sequence[RejectedRecord]) -> None:
        """Send events; waits while too many are not acknowledged.

        Raises
        ------
        BrokerError
            There is no room for long, or this user may not write there.
        """
        for topic, partition, record, reason in rejected:
            origin = origin_of(record, self._names[topic], partition)
            self._make_room()
            self._put(_Letter(origin, reason, record.value, list(_headers(record, origin, reason))))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything sent is stored, or refused for good; False when that takes longer.

        Raises
        ------
        BrokerError
            This user may not write there.
        """
        deadline = time.monotonic() + timeout_s
        while self._pending:
            letter = self._pending[0]
            left_s = deadline - time.monotonic()
            if letter.future is None:
                if left_s <= 0:
                    return False
                self._put(self._taken())
                continue
            try:
                letter.future.get(max(0.0, left_s))
            except KafkaError as error:
                if not letter.future.is_done:
                    return False
                self._settle_failure(self._taken(), error)
            else:
                self._taken()
                self._counters.add("streamcal_dead_letter", (letter.origin.topic, letter.reason))
        return True

    def close(self, timeout_s: float) -> None:
        """Let go of the producer."""
        if self._producer is not None:
            close_producer(self._producer, timeout_s)
            self._producer = None

    def _put(self, letter: _Letter) -> None:
        future = None
        try:
            if self._producer is None:
                self._producer = self._open_producer()
            future = self._producer.send(
                self._topic, key=letter_key(letter.origin), value=letter.value, headers=letter.headers
            )
        except MessageSizeTooLargeError as error:
            self._refused(letter, error)
            return
        except (KafkaTimeoutError, BrokerError) as error:
            self._trouble.say(_LATER, error)
        except KafkaError as error:
            self._stop(error)
        self._pending.append(letter._replace(future=future))
        self._bytes += len(letter.value or b"")

    def _taken(self) -> _Letter:
        """Take the first pending letter out."""
        letter = self._pending.popleft()
        self._bytes -= len(letter.value or b"")
        return letter

    def _make_room(self) -> None:
        if len(self._pending) < _MOST_PENDING and self._bytes < _MOST_BYTES:
            return
        if not self.flush(_STUCK_S):
            text = f"{len(self._pending)} rejected events are not acknowledged after {_STUCK_S:.0f} s"
            hint = "check the topic's leaders and min.insync.replicas; the next start goes on from the last commit"
            raise BrokerError(f"topic {self._topic!r} (topics.dead_letter): {text}", where=self._where, hint=hint)

    def _settle_failure(self, letter: _Letter, error: KafkaError) -> None:
        if isinstance(error, AuthorizationError):
            self._stop(error)
        if isinstance(error, KafkaTimeoutError) or passes(error):
            self._trouble.say(_LATER, error)
            self._begin_anew()
            self._put(letter)
        else:
            self._refused(letter, error)

    def _begin_anew(self) -> None:
        """Send what is not stored through another producer.

        An idempotent one that has given up a record waits for ever to know what became of it, and sends nothing more.
        """
        self.close(0.0)
        self._pending = deque(
            letter if letter.future is None or letter.future.succeeded() else letter._replace(future=None)
            for letter in self._pending
        )

    def _refused(self, letter: _Letter, error: KafkaError) -> None:
        self._counters.add("streamcal_dead_letter_failed", (letter.origin.topic, type(error).__name__))
        topic, partition, offset = letter.origin
        log.warning("dead-letter topic does not take an event", topic=topic, partition=partition, offset=offset)

    def _stop(self, error: KafkaError) -> NoReturn:
        hint = f"grant this user Write on topic {self._topic!r}, or leave topics.dead_letter out"
        message = f"topic {self._topic!r} (topics.dead_letter) cannot be written: {error}"
        raise BrokerError(message, where=self._where, hint=hint) from error


def origin_of(record: Record, topic: str, partition: int) -> Origin:
    """Where `record`, read from `topic`, was written first."""
    held = next((value for name, value in reversed(record.headers or ()) if name == ORIGIN_HEADER), None)
    if held is not None:
        parts = held.decode(errors="replace").split(",")
        if len(parts) == len(Origin._fields) and all(part.isdecimal() for part in parts[1:]):
            return Origin(parts[0], int(parts[1]), int(parts[2]))
    return Origin(topic, partition, record.offset)


def letter_key(origin: Origin) -> bytes:
    """Key of an event in the dead-letter topic.

    >>> letter_key(Origin("outcomes", 3, 17))
    b'outcomes,3,17'
    """
    return f"{origin.topic},{origin.partition},{origin.offset}".encode()


def _headers(record: Record, origin: Origin, reason: str) -> Iterator[tuple[str, bytes]]:
    for name, value in record.headers or ():
        if name != ORIGIN_HEADER:
            yield name, value or b""  # a header without a value cannot be sent by this client
    ours: dict[str, object] = {
        "reason": reason,
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
    }
    if record.timestamp is not None and record.timestamp >= 0:
        ours["timestamp"] = record.timestamp
    for key, held in ours.items():
        yield f"streamcal.{key}", str(held).encode()
    if record.key is not None:
        yield "streamcal.key", record.key
