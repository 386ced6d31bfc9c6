"""Apache Kafka in Docker for the tests, through testcontainers, where an engine answers."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from typing import Any

from kafka_settings import SETTINGS, NoBrokerError, free_ports

__all__ = ["DockerBroker"]

IMAGE = "apache/kafka:4.1.0"
"""The official image; its start script makes settings of ``KAFKA_*`` variables."""

PROBE_SECONDS = 20


def engine_reason() -> str:
    """Why no Docker engine can be used; empty if one answers."""
    docker = shutil.which("docker")
    if docker is None:
        return "not installed"
    command = [docker, "version", "--format", "{{.Server.Version}}"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the engine did not answer within {PROBE_SECONDS} s"
    return "" if said.returncode == 0 else "no engine answers"


class DockerBroker:
    """One Kafka node in a container, on a fixed loopback port so that a restart keeps its address.

    Raises
    ------
    NoBrokerError
        Where no engine answers or the container cannot be started.
    """

    ours = True

    def __init__(self) -> None:
        if reason := engine_reason():
            raise NoBrokerError(reason)
        (port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        self._container: Any = None
        self._port = port

    def start(self) -> None:
        """Start the container, or start it again, and wait until the broker accepts clients."""
        try:
            if self._container is None:
                self._container = self._make()
                self._container.start()
            else:
                self._container.get_wrapped_container().start()
            self._wait()
        except Exception as error:
            raise NoBrokerError(f"{IMAGE} did not start: {error}") from error

    def stop(self) -> None:
        """Stop the container as an operator would; its data stay until the tests end."""
        if self._container is not None:
            self._container.get_wrapped_container().stop()

    def kill(self) -> None:
        """Kill the broker without warning."""
        if self._container is not None:
            self._container.get_wrapped_container().kill()

    def close(self) -> None:
        """Remove the container and its data."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def _make(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # import-time deprecations of testcontainers are not ours
            from testcontainers.core.container import DockerContainer

        settings = {
            **SETTINGS,
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": "1@localhost:9093",
        }
        container: Any = DockerContainer(IMAGE)
        # its own method would publish the port on every address of the machine; docker-py takes this pair
        container.ports["9092/tcp"] = ("127.0.0.1", self._port)
        for key, value in settings.items():
            container = container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
        return container

    def _wait(self) -> None:
        from testcontainers.core.waiting_utils import wait_for_logs

        wait_for_logs(self._container, "Kafka Server started", timeout=120)
