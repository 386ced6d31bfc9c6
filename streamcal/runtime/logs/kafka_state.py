"""The state and counts topics: appends that are acknowledged or of which it is known that they may not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import structlog
from kafka import TopicPartition
from kafka.errors import KafkaError

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_client_faults import close_producer
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_errors import passes, refusal
from streamcal.runtime.logs.kafka_specs import LARGEST_PART
from streamcal.state.claimed_log import AppendUncertainError, LogUnavailableError
from streamcal.state.reading import Sent

__all__ = ["KafkaCounts", "KafkaRecordLog", "Producing"]

_ACKNOWLEDGED_S: Final = 30.0
"""Longest wait for an acknowledgement; beyond it nothing is known of the record, and its author stops."""
_POLL_MS: Final = 200
_OPTIONS: Final = {
    "max_request_size": 4 * LARGEST_PART,  # what is sent is compressed
    "compression_type": "lz4",
    # A commit is many records and two waits: large batches, and no thread woken for each record, but on their way
    # while there is other work.
    "linger_ms": 5,
    # Below the usual limit of a megabyte whether it can be compressed or not.
    "batch_size": 900 * 1024,
}

log = structlog.get_logger(__name__)


class Producing:
    """The producer of our own topics; made anew after a failure, for an idempotent one may be beyond use then.

    Parameters
    ----------
    clients : KafkaClients
    """

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients
        self._producer: Any = None

    def send(self, topic: str, partition: int | None, key: bytes | None, value: bytes | None) -> Any:
        """Hand a record over; `wait` says what became of it, given what is returned.

        Raises
        ------
        AppendUncertainError
        BrokerError
            The broker refuses for good.
        """
        try:
            if self._producer is None:
                self._producer = self._clients.producer(**_OPTIONS)
            return self._producer.send(topic, value=value, key=key, partition=partition)
        except KafkaError as error:
            raise self._given_up(error) from error
        except BrokerError as error:  # not the first connection of this process: the broker is away
            raise AppendUncertainError(error.what) from error

    def wait(self, sent: Sequence[Any]) -> list[int]:
        """Offsets of records sent, once all are acknowledged; raises as `send` does."""
        try:
            return [future.get(timeout=_ACKNOWLEDGED_S).offset for future in sent]
        except KafkaError as error:
            raise self._given_up(error) from error

    def close(self) -> None:
        """Let go of the connection, whatever is on its way."""
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer, 1.0)

    def _given_up(self, error: KafkaError) -> AppendUncertainError | BrokerError:
        self.close()
        if not passes(error):
            return refusal(error, self._clients.servers)
        return AppendUncertainError(f"{type(error).__name__}: {error}")


class KafkaRecordLog:
    """One partition of the state topic; see `RecordLog`.

    Parameters
    ----------
    clients : KafkaClients
    producing : Producing
    topic : str
    partition : int
    """

    def __init__(self, clients: KafkaClients, producing: Producing, topic: str, partition: int) -> None:
        self._clients = clients
        self._producing = producing
        self._part = TopicPartition(topic, partition)

    def send(self, values: Sequence[bytes]) -> Sent:
        """Hand records over; see `RecordLog.send`."""
        part = self._part
        sent = [self._producing.send(part.topic, part.partition, None, value) for value in values]
        return partial(self._producing.wait, sent)

    def read(self, start: int | None, stop: int) -> Iterator[tuple[int, bytes] | None]:
        """Records from `start` up to `stop`; see `RecordLog.read`."""
        try:
            consumer = self._clients.state_consumer()
        except BrokerError as error:  # not the first connection of this process: the broker is away
            raise LogUnavailableError(error.what) from error
        try:
            consumer.assign([self._part])
            if start is None:
                consumer.seek_to_beginning(self._part)
            else:
                consumer.seek(self._part, start)
            # By position, not by the last record seen: records before `stop` may have been deleted.
            while (consumer.position(self._part, timeout_ms=admin_timeout_ms) or 0) < stop:
                for record in consumer.poll(timeout_ms=_POLL_MS).get(self._part, ()):
                    if record.offset < stop:
                        yield record.offset, record.value
                yield None
        except KafkaError as error:
            raise LogUnavailableError(f"{type(error).__name__}: {error}") from error
        finally:
            consumer.close(timeout_ms=_POLL_MS)

    def delete_before(self, offset: int) -> None:
        """Let go of records before `offset`; a failure is made up for by the next call."""
        try:
            admin = self._clients.admin()
        except BrokerError as error:
            log.warning("old state could not be deleted; the next snapshot will", error=error.what)
            return
        try:
            admin.delete_records({self._part: offset}, timeout_ms=admin_timeout_ms)
        except KafkaError as error:
            log.warning("old state could not be deleted; the next snapshot will", error=str(error), part=self._part)
        finally:
            admin.close()


class KafkaCounts:
    """The counts topic; a model always goes to the same partition.

    Parameters
    ----------
    producing : Producing
    topic : str
    partitions : int
    """

    def __init__(self, producing: Producing, topic: str, partitions: int) -> None:
        self._producing = producing
        self._topic = topic
        self._partitions = partitions
        self._sent: list[Any] = []

    def publish(self, model: str | None, key: bytes, value: bytes | None) -> None:
        """Append to the partition of a model, or to every partition; see `CountsTopic`."""
        if model is None:
            for partition in range(self._partitions):
                self._sent.append(self._producing.send(self._topic, partition, key, value))
        else:
            self._sent.append(self._producing.send(self._topic, shard_of(model, self._partitions), key, value))

    def flush(self) -> None:
        """Return once everything is acknowledged; see `CountsTopic`."""
        sent, self._sent = self._sent, []
        if sent:
            self._producing.wait(sent)


def shard_of(model: str, shards: int) -> int:
    """The partition of the counts topic that a model goes to; never changes.

    >>> shard_of("default", 1), shard_of("a", 4)
    (0, 0)
    """
    return int.from_bytes(blake2b(model.encode(), digest_size=8).digest(), "little") % shards
