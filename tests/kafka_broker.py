"""A real Kafka broker for tests and benchmarks, wherever one can be had.

`find_broker` tries in this order: the address in ``STREAMCAL_TEST_KAFKA``; Docker, if an engine answers; Apache Kafka
itself as one KRaft node on this machine's Java, with the jars that ``tests/kafka_jars/pom.xml`` names, kept in a cache
folder between runs. Run as a script it starts one and prints its address until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

__all__ = [
    "Broker",
    "ExternalBroker",
    "JavaBroker",
    "NoBrokerError",
    "create_topics",
    "find_broker",
    "running_broker",
]

ADDRESS_VARIABLE = "STREAMCAL_TEST_KAFKA"
POM = Path(__file__).parent / "kafka_jars" / "pom.xml"
OLDEST_JAVA = 17
START_SECONDS = 90
"""Three to five seconds on an idle machine; tests of several checkouts may share two cores."""

STOP_SECONDS = 30

STARTED = "Kafka Server started"
"""Logged by the broker once it is registered, unfenced and accepts clients."""

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # one node holds every internal topic
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # few partitions: the default 50 cost seconds at the first commit
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # a group of one need not wait for others to join
    "group.initial.rebalance.delay.ms": "0",
    # a misspelt topic must be an error, as in production
    "auto.create.topics.enable": "false",
    # a killed broker may register again only when its old session has run out (default 9 s)
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # records carry event times of years past; retention by time would delete them at once
    "log.retention.ms": "-1",
}


class NoBrokerError(Exception):
    """No broker can be had here; the message says what was tried and what to install."""


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


class JavaBroker:
    """One Apache Kafka node as a child process; address and data outlive restarts.

    Parameters
    ----------
    java : str
        The Java command.
    jars : Path
        Folder of the jars.
    folder : Path
        Empty folder for data, settings and ``broker.log``.
    settings : mapping
        Broker settings over the ones above.
    """

    ours = True

    def __init__(self, java: str, jars: Path, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.log = folder / "broker.log"
        self._java = [java, "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._java += ["-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info", "-cp", f"{jars}/*"]
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        client, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{client}"
        listeners = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
        }
        text = "".join(f"{key}={value}\n" for key, value in {**SETTINGS, **listeners, **(settings or {})}.items())
        self._properties.write_text(text, encoding="ascii")

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        if self._process is None:
            raise NoBrokerError(f"the broker at {self.bootstrap} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the broker (formatting its folder the first time) and wait until it accepts clients."""
        if self.running:
            return
        if not (self.folder / "data").exists():
            self._format()
        with self.log.open("ab") as log:
            mark = log.tell()
            # its own session: Ctrl-C in a terminal reaches the tests, which stop the broker in order
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_started(self._process, mark)

    def stop(self) -> None:
        """Shut the broker down as an operator would (SIGTERM), by force after half a minute."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker without warning (SIGKILL)."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop the broker for good; its folder belongs to the caller."""
        self.stop()

    def restart(self, *, graceful: bool = True) -> None:
        """Stop or kill the broker and start it again at the same address with the same data."""
        self._end(signal.SIGTERM if graceful else signal.SIGKILL)
        self.start()

    def _format(self) -> None:
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", "c3RyZWFtY2FsdGVzdHMxMQ"]
        command += ["-c", str(self._properties)]
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_SECONDS)
        if made.returncode != 0:
            raise NoBrokerError(f"formatting the broker's folder failed: {made.stdout}{made.stderr}")

    def _wait_until_started(self, process: subprocess.Popen[bytes], mark: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
                raise NoBrokerError(f"the broker ended with {process.returncode}: {self._log_since(mark)[-2000:]}")
            if STARTED in self._log_since(mark):
                return
        self.kill()
        raise NoBrokerError(f"the broker did not start within {START_SECONDS} s: {self._log_since(mark)[-2000:]}")

    def _log_since(self, mark: int) -> str:
        with self.log.open("rb") as log:
            log.seek(mark)
            return log.read().decode(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now; all held at once so that they differ."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def java_command() -> str:
    """The Java to run, of ``JAVA_HOME`` or the path; `NoBrokerError` where it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    hint = "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    if java is None:
        raise NoBrokerError(f"no Java {hint}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        raise NoBrokerError(f"{java} is older than Java {OLDEST_JAVA} {hint}")
    return java


def cached_jars() -> Path:
    """Folder with the broker's jars, fetched with Maven the first time this pom is seen."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamcal-tests"
    jars = cache / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise NoBrokerError("no Maven to fetch the broker's jars with (Debian, Ubuntu: apt-get install maven)")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as part:
        command = [maven, "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={part}/jars"]
        made = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if made.returncode != 0:
            raise NoBrokerError(f"Maven could not fetch the broker's jars: {made.stdout[-800:]}")
        # whole or not at all; another run may have been faster
        with contextlib.suppress(OSError):
            Path(part, "jars").rename(jars)
    return jars


def java_broker(folder: Path) -> Broker:
    """Apache Kafka on this machine's Java."""
    broker = JavaBroker(java_command(), cached_jars(), folder)
    broker.start()
    return broker


def docker_broker(_folder: Path) -> Broker:
    """Apache Kafka in Docker."""
    from kafka_docker import DockerBroker  # here: it imports this module

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
