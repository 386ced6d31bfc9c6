"""`streamcal run` as a process of its own, watched through what it serves and logs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Daemon", "Samples", "wait_until"]

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
"""Metric name and labels to value."""

_PAUSE = threading.Event()


def wait_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Ask `holds` until it does; another process cannot be handed a clock."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {timeout_s:.0f} s")
        _PAUSE.wait(0.1)


class Daemon:
    """A running daemon; leaving the context ends it.

    Parameters
    ----------
    config : mapping
        Written as the configuration file (JSON is YAML); the port is picked here.
    folder : Path
        For configuration and output.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "config.yaml"
        served = {"port": 0, **config.get("serve", {})}
        self.path.write_text(json.dumps({**config, "serve": served}), encoding="utf-8")
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "streamcal", "run", "--config", str(self.path)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def logged(self) -> list[dict[str, Any]]:
        """Every whole log line so far."""
        text = self._out.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def errors(self) -> str:
        """What was written to standard error."""
        return self._err.read_text(encoding="utf-8")

    def event(self, name: str) -> dict[str, Any] | None:
        """The last log line of an event."""
        return next((line for line in reversed(self.logged) if line["event"] == name), None)

    def get(self, path: str) -> bytes:
        """Body of a page, as soon as the daemon serves."""
        wait_until(lambda: self._ended() or self.event("serving") is not None)
        served = self.event("serving")
        assert served is not None, self.errors
        with urllib.request.urlopen(served["url"] + path, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def samples(self) -> Samples:
        """Everything at ``/metrics``."""
        families = text_string_to_metric_families(self.get("/metrics").decode())
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def counts(self) -> dict[str, Any]:
        """Everything at ``/api/v1/counts``."""
        counts: dict[str, Any] = json.loads(self.get("/api/v1/counts"))
        return counts

    def wait_ready(self) -> None:
        """Wait until ``/readyz`` says so."""

        def ready() -> bool:
            try:
                return self.get("/readyz") == b"ready\n"
            except urllib.error.URLError:
                return False

        wait_until(lambda: self._ended() or ready())
        assert self.process.poll() is None, self.errors

    def wait_counted(self) -> None:
        """Wait until some outcomes have been counted."""
        accepted = "streamcal_outcomes_accepted_total", frozenset[tuple[str, str]]()
        wait_until(lambda: self._ended() or self.samples().get(accepted, 0) > 0)
        assert self.process.poll() is None, self.errors

    def wait_watermarks(self, partitions: int, time_ms: int, timeout_s: float = 60.0) -> None:
        """Wait until the watermark of every partition of both topics has come to `time_ms`."""

        def reached() -> bool:
            found = [v for (name, _), v in self.samples().items() if name == "streamcal_watermark_timestamp_seconds"]
            return len(found) == 2 * partitions and all(value * 1000 >= time_ms for value in found)

        wait_until(lambda: self._ended() or reached(), timeout_s)
        assert self.process.poll() is None, self.errors

    def terminate(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def _ended(self) -> bool:
        return self.process.poll() is not None
