"""One transaction per batch: its records and the group's offsets become visible together or not at all.

The producer is given up after any failure, and with it the process. Going on with it would be wrong three times over
(kafka-python 3.0): a batch whose delivery time has passed fails without marking the transaction, which a commit would
then end without its records; records not yet sent when the broker renews the producer's epoch are sent in the next
transaction; offsets of an aborted transaction are sent again with those of the next. So every record's own result is
looked at before the commit, and nothing is tried twice: the next process takes over the transactional id, by which the
broker ends what this one left open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import structlog
from kafka import OffsetAndMetadata
from kafka.errors import KafkaError, MessageSizeTooLargeError, UnknownError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_client_faults import close_producer
from streamcal.runtime.transforming.clients import NOTHING, TRANSACTION_S
from streamcal.runtime.transforming.failures import transaction_failed, unplaced
from streamcal.runtime.transforming.membership import Batch
from streamcal.runtime.transforming.plan import Plan
from streamcal.runtime.transforming.watchdog import Watchdog
from streamcal.transform.stream.opened import Headers

__all__ = ["Outgoing", "Transactions"]

_CLOSE_S: Final = 5.0

log = structlog.get_logger(__name__)


class Outgoing(NamedTuple):
    """One record to write, and the offset it was read at."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    timestamp: int | None
    offset: int


class Transactions:
    """Writes batches to the output topic; used from one thread.

    Parameters
    ----------
    producer : kafka.KafkaProducer
        Transactional; closed here.
    plan : Plan
    watchdog : Watchdog
    where : str
        For messages.
    """

    def __init__(self, producer: Any, plan: Plan, *, watchdog: Watchdog, where: str) -> None:
        self._producer = producer
        self._plan = plan
        self._watchdog = watchdog
        self._where = where

    def open(self) -> None:
        """Take over the transactional id: what a predecessor left open is aborted, and it can end nothing any more.

        Raises
        ------
        BrokerError
            The broker refuses or does not answer.
        """
        try:
            with self._watchdog.over("taking over the transactional id"):
                self._producer.init_transactions()
        except KafkaError as error:
            raise transaction_failed(error, self._plan, self._where) from error

    def partitions(self) -> int:
        """Partitions of the output topic; raises KafkaError."""
        return len(self._producer.partitions_for(self._plan.output))

    def commit(self, outgoing: Iterable[Outgoing], batch: Batch) -> None:
        """Write `outgoing` and the offsets of `batch` in one transaction.

        Raises
        ------
        BrokerError
            It failed; this object is of no further use.
        """
        try:
            self._producer.begin_transaction()
            futures = [self._send(record) for record in outgoing]
            with self._watchdog.over("storing records"):
                # A flush gives up where a batch was too long for the topic and is sent in parts.
                with contextlib.suppress(UnknownError):
                    self._producer.flush(TRANSACTION_S)
                for future in futures:
                    if not future.succeeded():
                        future.get(TRANSACTION_S)  # waits for it, or raises what it failed with
            offsets = {part: OffsetAndMetadata(offset, "", -1) for part, offset in batch.offsets.items()}
            with self._watchdog.over("adding the group's offsets to the transaction"):
                self._producer.send_offsets_to_transaction(offsets, batch.member)
            with self._watchdog.over("committing the transaction"):
                self._producer.commit_transaction()
        except KafkaError as error:
            self._abort(error)
            raise transaction_failed(error, self._plan, self._where) from error
        except BrokerError as error:
            self._abort(error)
            raise

    def close(self) -> None:
        """Leave the broker."""
        with self._watchdog.over("closing the producer"):
            close_producer(self._producer, _CLOSE_S)

    def _send(self, record: Outgoing) -> Any:
        headers = [(name, b"" if value is None else value) for name, value in record.headers]
        try:
            return self._producer.send(
                self._plan.output,
                key=record.key,
                value=NOTHING if record.value is None else record.value,
                headers=headers,
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
        except (ValueError, TypeError, MessageSizeTooLargeError) as error:
            place = f"{self._plan.input}[{record.partition}] offset {record.offset}"
            raise unplaced(error, place, self._plan, self._where) from error

    def _abort(self, error: Exception) -> None:
        """End the transaction, so that readers of the output need not wait for its time to pass; best effort."""
        log.warning("transaction failed; aborting it", error=str(error))
        with self._watchdog.over("aborting a failed transaction"), contextlib.suppress(KafkaError):
            self._producer.abort_transaction()
