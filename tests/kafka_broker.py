"""A real Kafka broker for tests and benchmarks, wherever one can be had.

`find_broker` tries in this order: the address in ``STREAMCAL_TEST_KAFKA``; Docker, if an engine answers; Apache Kafka
itself on this machine's Java. Run as a script it starts one and prints its address until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from kafka_docker import DockerBroker
from kafka_java import JavaBroker, cached_jars, java_command
from kafka_settings import NoBrokerError

__all__ = [
    "Broker",
    "DockerBroker",
    "ExternalBroker",
    "JavaBroker",
    "NoBrokerError",
    "create_topics",
    "find_broker",
    "running_broker",
]

ADDRESS_VARIABLE = "STREAMCAL_TEST_KAFKA"


class Broker(Protocol):
    """A broker that tests talk to; only one that is `ours` may be stopped, killed and restarted."""

    @property
    def bootstrap(self) -> str:
        """Address as ``host:port``; the same after a restart."""
        ...

    @property
    def ours(self) -> bool:
        """Whether this process started it."""
        ...

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class ExternalBroker:
    """A broker that somebody else runs; starting and stopping it is not ours to do."""

    ours = False

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        """Do nothing: it is taken to run."""

    def stop(self) -> None:
        """Leave it running."""

    def kill(self) -> None:
        """Refuse."""
        raise NoBrokerError(f"the broker at {self.bootstrap} was not started by the tests and is not killed by them")

    def close(self) -> None:
        """Leave it running."""


def java_broker(folder: Path) -> Broker:
    """Apache Kafka on this machine's Java."""
    broker = JavaBroker(java_command(), cached_jars(), folder)
    broker.start()
    return broker


def docker_broker(_folder: Path) -> Broker:
    """Apache Kafka in Docker."""
    broker = DockerBroker()
    broker.start()
    return broker


def find_broker(folder: Path) -> Broker:
    """Find or start a broker.

    Parameters
    ----------
    folder : Path
        Empty folder for the broker's data.

    Returns
    -------
    Broker
        Ready for clients. Call its ``close`` at the end.

    Raises
    ------
    NoBrokerError
        Naming each way tried and why it failed.
    """
    if address := os.environ.get(ADDRESS_VARIABLE):
        return ExternalBroker(address)
    reasons = [f"{ADDRESS_VARIABLE} is not set"]
    ways: dict[str, Callable[[Path], Broker]] = {"Docker": docker_broker, "Java": java_broker}
    for name, way in ways.items():
        try:
            return way(folder)
        except NoBrokerError as error:
            reasons.append(f"{name}: {error}")
    raise NoBrokerError("; ".join(reasons))


@contextlib.contextmanager
def running_broker() -> Iterator[Broker]:
    """Give a broker for a ``with`` block, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="streamcal-kafka-") as folder:
        broker = find_broker(Path(folder))
        try:
            yield broker
        finally:
            broker.close()


def create_topics(bootstrap: str, partitions: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
    """Create topics and wait until each partition has a leader.

    Parameters
    ----------
    bootstrap : str
        Broker address.
    partitions : mapping
        Number of partitions by topic name.
    configs : mapping, optional
        Topic settings, the same for all of them.
    """
    from kafka.admin import KafkaAdminClient  # here: most tests need no Kafka and start faster without it

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        topics = {
            name: {"num_partitions": count, "replication_factor": 1, "configs": dict(configs or {})}
            for name, count in partitions.items()
        }
        admin.create_topics(topics, wait_for_metadata=True)
    finally:
        admin.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), running_broker() as started:
        print(f"{ADDRESS_VARIABLE}={started.bootstrap}  (Ctrl-C stops it)", flush=True)
        signal.pause()
