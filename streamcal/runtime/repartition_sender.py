"""The sending half of `repartition_router`: records to where their ids belong, in order, never given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kafka.errors import KafkaTimeoutError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.dead_letter import ORIGIN_HEADER, Origin, letter_key
from streamcal.runtime.logs.kafka_client_faults import close_producer
from streamcal.runtime.logs.kafka_errors import Trouble
from streamcal.runtime.logs.partitioner import murmur2_partition
from streamcal.stream.events import Record

__all__ = ["FOREVER_MS", "Sender"]

FOREVER_MS: Final = 2**31 - 1
"""Delivery time-out of the producer: a send that expired would leave a gap that later ones have passed. 24 days."""

_FLUSH_S: Final = 1.0
_MOST_SENT: Final = 20_000
_MOST_BYTES: Final = 64 * 2**20
"""Sends that are not acknowledged."""


class Sender:
    """Sends records of the topics that are written again; used from one thread.

    Parameters
    ----------
    producer : kafka.KafkaProducer
        Idempotent, with `FOREVER_MS`.
    partitions : int
        Of each internal topic.
    stopped : callable
        Whether to wait no longer.
    where : str
        For messages.
    """

    def __init__(self, producer: Any, partitions: int, stopped: Callable[[], bool], where: str) -> None:
        self._producer = producer
        self._partitions = partitions
        self._stopped = stopped
        self._where = where
        self._trouble = Trouble()
        self._failures: list[tuple[str, BaseException]] = []
        self._sent = self._sent_bytes = 0

    def send(self, internal: str, record: Record, origin: Origin, text: str | None) -> None:
        """Send one record; `text` is its id, if it has one.

        Raises
        ------
        BrokerError
            The topic does not take what was sent before.
        """
        if self._sent >= _MOST_SENT or self._sent_bytes >= _MOST_BYTES:
            self.wait()
        place = origin.partition % self._partitions
        if text is not None:
            place = murmur2_partition(text.encode(), self._partitions)
        headers = [(name, value) for name, value in record.headers or () if name != ORIGIN_HEADER and value is not None]
        stamp = record.timestamp if record.timestamp is not None and record.timestamp >= 0 else None
        future = self._producer.send(
            internal,
            value=record.value,
            key=b"" if record.key is None and record.value is None else record.key,
            headers=[*headers, (ORIGIN_HEADER, letter_key(origin))],
            partition=place,
            timestamp_ms=stamp,
        )
        future.add_errback(lambda error: self._failures.append((internal, error)))
        self._sent += 1
        self._sent_bytes += len(record.value or b"")

    def wait(self) -> bool:
        """Wait until all that was sent is stored, or until stopped; whether it is stored.

        Raises
        ------
        BrokerError
            A topic does not take what was sent.
        """
        while True:
            try:
                self._producer.flush(timeout=_FLUSH_S)
            except KafkaTimeoutError as error:
                self._trouble.say("records that are written again are not acknowledged yet", error)
                if self._stopped():
                    return False
                continue
            if self._failures:
                raise self._refusal(*self._failures[0])
            self._sent = self._sent_bytes = 0
            return True

    def close(self) -> None:
        """Let go of the producer."""
        close_producer(self._producer, _FLUSH_S)

    def _refusal(self, internal: str, error: BaseException) -> BrokerError:
        hint = (
            "grant this user Write on it; if it refuses a record, compare its max.message.bytes and "
            "message.timestamp.after.max.ms with those of the topic it repeats"
        )
        message = f"topic {internal!r} (join.repartition) cannot be written: {error}"
        return BrokerError(message, where=self._where, hint=hint)
