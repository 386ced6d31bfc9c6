"""Apache Kafka as one KRaft node on this machine's Java, with the jars that ``kafka_jars/pom.xml`` names.

The jars are fetched once with Maven and kept in a cache folder between runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from kafka_settings import SETTINGS, NoBrokerError, free_ports
from kafka_watch import Watch

__all__ = ["JavaBroker", "cached_jars", "java_command"]

POM = Path(__file__).parent / "kafka_jars" / "pom.xml"
OLDEST_JAVA = 17
START_SECONDS = 90
"""Three to five seconds on an idle machine; tests of several checkouts may share two cores."""

STOP_SECONDS = 30

STARTED = "Kafka Server started"
"""Logged by the broker once it is registered, unfenced and accepts clients."""


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
    further : mapping
        Listeners beside the plain one, by name: the security protocol of each.
    host : str
        Loopback name that the further listeners advertise.

    Attributes
    ----------
    addresses : dict
        ``host:port`` of each further listener.
    """

    ours = True

    def __init__(
        self,
        java: str,
        jars: Path,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        further: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.folder = folder
        self.log = folder / "broker.log"
        self._java = [java, "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._java += ["-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info", "-cp", f"{jars}/*"]
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: Watch | None = None
        further = further or {}
        client, controller, *ports = free_ports(2 + len(further))
        self.bootstrap = f"127.0.0.1:{client}"
        self.addresses = {name: f"{host}:{port}" for name, port in zip(further, ports, strict=True)}
        more = "".join(f",{name}://127.0.0.1:{port}" for name, port in zip(further, ports, strict=True))
        protocols = "".join(f",{name}:{protocol}" for name, protocol in further.items())
        listeners = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}{more}",
            "advertised.listeners": ",".join(
                [f"PLAINTEXT://{self.bootstrap}", *(f"{name}://{address}" for name, address in self.addresses.items())]
            ),
            "listener.security.protocol.map": SETTINGS["listener.security.protocol.map"] + protocols,
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
        self._watch = Watch(self._process.pid)
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
        if self._watch is not None:
            self._watch.close()
            self._watch = None


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
