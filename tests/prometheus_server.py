"""Debian's Prometheus and Alertmanager on free loopback ports, configured by the files that are shipped.

Used by tests/deploy. A program that is missing skips the test, with a reason, and fails it in CI.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

__all__ = ["DEPLOY", "Alertmanager", "Prometheus", "Webhook", "program", "wait_until", "webhook"]

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
}
"""Program to the Debian package that holds it."""

# A scrape a second, rules judged at once: what takes minutes in production is here in seconds. The rules are the same.
SCRAPE = "1s"


def program(name: str) -> str:
    """Path of a program, or the end of the test."""
    found = shutil.which(name)
    if found is None:
        reason = f"no {name}: apt-get install {PACKAGES[name]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def wait_until(met: Callable[[], bool], what: str, timeout_s: float = 45.0) -> None:
    """Poll `met`; a test that waits in vain fails with `what`."""
    end = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < end, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.05)


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        """Data of an answer of the API; an error of it is raised with its text."""
        return _api(f"{self.url}/api/v1/{path}", parameters)

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Instant query; the result vector (or one scalar)."""
        answer: dict[str, Any] = self.get("query", query=expr)
        if answer["resultType"] == "scalar":
            return [{"metric": {}, "value": answer["result"]}]
        found: list[dict[str, Any]] = answer["result"]
        return found

    def query_range(self, expr: str, start: float, end: float) -> list[dict[str, Any]]:
        """Range query with a step of a second."""
        answer = self.get("query_range", query=expr, start=repr(start), end=repr(end), step="1")
        found: list[dict[str, Any]] = answer["result"]
        return found

    @classmethod
    @contextlib.contextmanager
    def running(
        cls,
        folder: Path,
        target: str,
        *,
        alertmanager: str | None = None,
        shorten: Callable[[dict[str, Any]], object] = lambda _: None,
    ) -> Iterator[Prometheus]:
        """Scrape `target` (host:port) by the shipped configuration and rules.

        Parameters
        ----------
        folder : Path
            For configuration and storage.
        target : str
        alertmanager : str or None
            Where alerts go; None: nowhere.
        shorten : callable
            Changes each alert rule in place, such as its durations.
        """
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] |= {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [target] if job["job_name"] == "streamcal" else []}]
        for manager in config["alerting"]["alertmanagers"]:
            manager["static_configs"] = [{"targets": [alertmanager] if alertmanager else []}]
        (folder / "rules").mkdir()
        for file in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml")):
            rules = yaml.safe_load(file.read_text(encoding="utf-8"))
            for group in rules["groups"]:
                for rule in group["rules"]:
                    if "alert" in rule:
                        shorten(rule)
            (folder / "rules" / file.name).write_text(yaml.safe_dump(rules), encoding="utf-8")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        address = free_address()
        command = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
        with _process(command, folder / "prometheus.log", f"http://{address}/-/ready"):
            yield cls(f"http://{address}")


@dataclass(frozen=True)
class Alertmanager:
    """A running Alertmanager."""

    address: str

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts it holds, inhibited ones too."""
        held: list[dict[str, Any]] = _read(f"http://{self.address}/api/v2/alerts")
        return held

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path, webhook_url: str) -> Iterator[Alertmanager]:
        """Run the shipped configuration, its webhook at `webhook_url` and its waits a second long."""
        config = yaml.safe_load((DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8"))
        for route in (config["route"], *config["route"].get("routes", [])):
            for wait in ("group_wait", "group_interval"):
                route[wait] = "1s"
        for receiver in config["receivers"]:
            for hook in receiver.get("webhook_configs", []):
                hook["url"] = webhook_url
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        address = free_address()
        command = [
            program("prometheus-alertmanager"),
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alerts'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]
        with _process(command, folder / "alertmanager.log", f"http://{address}/-/ready"):
            yield cls(address)


class Webhook:
    """Alerts as they were notified, in the order of arrival."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[dict[str, Any]] = []

    def have(self, **labels: str) -> list[dict[str, Any]]:
        """Notified alerts with these labels; `status` is ``firing`` or ``resolved``."""
        status = labels.pop("status", None)
        return [
            alert
            for alert in list(self.seen)
            if status in {None, alert["status"]} and labels.items() <= alert["labels"].items()
        ]


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    """Take notifications on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            taken.seen.extend(body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        taken = Webhook(f"http://127.0.0.1:{server.server_address[1]}/")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield taken
        finally:
            server.shutdown()
            thread.join()


def free_address() -> str:
    """A loopback address nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextlib.contextmanager
def _process(command: list[str], log: Path, ready: str) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(ready), f"{command[0]} at {ready}")
            assert process.poll() is None, log.read_text(encoding="utf-8")
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _read(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{url}: {error.read().decode()}") from error


def _api(url: str, parameters: Mapping[str, str]) -> Any:
    answer = _read(f"{url}?{urllib.parse.urlencode(parameters)}")
    assert answer["status"] == "success", answer
    return answer["data"]
