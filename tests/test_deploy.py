"""The deployment files name services, ports and paths that fit together."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamcal.runtime.config import load_config

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_compose_starts_kafka_the_daemon_and_prometheus(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"kafka", "topics", "streamcal", "prometheus"}
    assert compose["services"]["streamcal"]["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}


def test_compose_publishes_ports_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_mounts_files_that_are_there(compose: dict[str, Any]) -> None:
    mounts = [mount for service in compose["services"].values() for mount in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert files
    assert all((DEPLOY / file).is_file() for file in files)
    named = {mount.split(":")[0] for mount in mounts if not mount.startswith(".")}
    assert named == set(compose["volumes"])


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "build" not in service]
    images += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(images) == 5
    assert all(re.search(r":v?\d+\.\d+", image) for image in images)


def test_the_image_does_not_run_as_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    last_stage = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert [line for line in last_stage if line.startswith("USER ")] == ["USER 10001:10001"]


def test_the_image_copies_only_files_that_are_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    sources = [
        words for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for words in line.split()[:-1]
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_prometheus_scrapes_the_daemon_where_it_serves(compose: dict[str, Any]) -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    daemon = yaml.safe_load((DEPLOY / "streamcal.yaml").read_text(encoding="utf-8"))
    (job,) = scrape["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in compose["services"]
    assert int(port) == daemon["serve"]["port"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "streamcal.service").read_text(encoding="utf-8")
    unit = tmp_path / "streamcal.service"
    # the program is not installed where this runs; everything else is judged as shipped
    unit.write_text(re.sub(r"^(ExecStart(?:Pre)?)=\S+", r"\1=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_the_daemon_accepts_the_configuration_in_the_compose_file() -> None:
    config = load_config(DEPLOY / "streamcal.yaml", environ={"STREAMCAL_SERVE__HOST": "0.0.0.0"}, require_kafka=True)
    assert config.serve.port == 9871
    assert config.serve.host == "0.0.0.0"


def test_the_daemon_accepts_the_configuration_in_the_readme(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(block, encoding="utf-8")
    load_config(path, environ={}, require_kafka=True)
