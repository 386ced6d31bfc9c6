"""The deployment files name services, ports and paths that fit together, and follow their formats' own schemas."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_files import built_by_kubectl, read

from streamcal.runtime.config import load_config

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OPERATOR = "monitoring.coreos.com/v1"
POD_ENVIRONMENT = {"STREAMCAL_KAFKA__GROUP_INSTANCE_ID": "streamcal-0", "STREAMCAL_SERVE__HOST": "0.0.0.0"}


def check_schema(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


# --- compose -----------------------------------------------------------------------------------------------------


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_follows_the_compose_specification() -> None:
    check_schema("vendor.compose-spec", DEPLOY / "compose.yaml")


def test_compose_starts_everything_that_is_looked_at(compose: dict[str, Any]) -> None:
    wanted = {"kafka", "topics", "streamcal", "flights", "prometheus", "alertmanager", "grafana"}
    assert set(compose["services"]) == wanted
    for ours in ("streamcal", "flights"):
        assert compose["services"][ours]["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}


def test_compose_publishes_ports_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_compose_mounts_files_that_are_there(compose: dict[str, Any]) -> None:
    mounts = [mount for service in compose["services"].values() for mount in service.get("volumes", [])]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert files
    assert [file for file in files if not (DEPLOY / file).exists()] == []
    named = {mount.split(":")[0] for mount in mounts if not mount.startswith(".")}
    assert named == set(compose["volumes"])


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    images = [service["image"] for service in compose["services"].values() if "build" not in service]
    images += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(images) == 7
    assert all(re.search(r":v?\d+\.\d+", image) for image in images)


def test_the_flights_go_to_the_broker_and_topics_that_compose_makes(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["flights"]["command"] == ["--bootstrap-servers", "kafka:19092"]
    config = load_config(DEPLOY / "streamcal.yaml", environ={}, require_kafka=True)
    assert config.kafka.bootstrap_servers == ("kafka:19092",)
    made = re.findall(r"--topic (\S+) --partitions (\d+)", services["topics"]["command"][0])
    assert made == [(config.topics.predictions, "4"), (config.topics.outcomes, "4"), (config.topics.maps, "1")]
    script = (ROOT / "examples" / "flights" / "produce.py").read_text(encoding="utf-8")
    defaults = dict(re.findall(r'"--(\w+)", default="([\w.]+)"', script))
    assert defaults == {
        "predictions": config.topics.predictions,
        "outcomes": config.topics.outcomes,
        "maps": config.topics.maps,
    }


def test_the_daemon_reads_the_flights_as_the_demo_does() -> None:
    example = yaml.safe_load((ROOT / "examples" / "flights" / "config.yaml").read_text(encoding="utf-8"))
    shipped = yaml.safe_load((DEPLOY / "streamcal.yaml").read_text(encoding="utf-8"))
    # how events are read and counted; which maps are tried is each file's own
    counted = ("join", "windows", "segments")
    assert {section: shipped[section] for section in counted} == {section: example[section] for section in counted}


def test_prometheus_scrapes_the_daemon_where_it_serves(compose: dict[str, Any]) -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    daemon = yaml.safe_load((DEPLOY / "streamcal.yaml").read_text(encoding="utf-8"))
    (job,) = [job for job in scrape["scrape_configs"] if job["job_name"] == "streamcal"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in compose["services"]
    assert int(port) == daemon["serve"]["port"]


# --- the image ---------------------------------------------------------------------------------------------------


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
    let_through = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = tuple(line[1:] for line in let_through if line.startswith("!"))
    assert [source for source in sources if not source.startswith(allowed)] == []


# --- Kubernetes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base() -> list[dict[str, Any]]:
    return read(KUBERNETES / "base")


def one(resources: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [resource for resource in resources if resource["kind"] == kind]
    return found


def pod(resources: list[dict[str, Any]]) -> dict[str, Any]:
    return one(resources, "StatefulSet")["spec"]["template"]["spec"]


def test_the_base_has_what_a_cluster_needs(base: list[dict[str, Any]]) -> None:
    kinds = {resource["kind"] for resource in base}
    assert kinds == {"ServiceAccount", "Service", "StatefulSet", "NetworkPolicy", "PodDisruptionBudget"}


def test_resources_follow_the_schemas_of_kubernetes() -> None:
    folders = [KUBERNETES / "base", KUBERNETES / "overlays" / "production"]
    resources = [resource for folder in folders for resource in built_by_kubectl(folder)]
    if not resources:  # without kubectl: what kustomize fills in is filled in by hand
        resources = read(KUBERNETES / "base")
        labels = {"app.kubernetes.io/name": "streamcal"}
        one(resources, "StatefulSet")["spec"]["selector"] = {"matchLabels": labels}
        one(resources, "StatefulSet")["spec"]["template"]["metadata"] = {"labels": labels}
    own = [resource for resource in resources if resource["apiVersion"] != OPERATOR]
    assert len(own) >= 5
    for resource in own:
        kubernetes_validate.validate(resource, "1.33", strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_overlay_builds_and_reaches_into_the_base() -> None:
    built = built_by_kubectl(KUBERNETES / "overlays" / "production")
    assert {resource["metadata"]["namespace"] for resource in built if resource["kind"] != "Namespace"} == {"streamcal"}
    assert {"PodMonitor", "PrometheusRule", "ConfigMap"} <= {resource["kind"] for resource in built}
    spec = pod(built)
    mounted = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert mounted == {"config": "/etc/streamcal", "kafka": "/etc/streamcal-kafka", "tmp": "/tmp"}
    assert {volume["name"] for volume in spec["volumes"]} == set(mounted)
    assert spec["containers"][0]["image"].startswith("registry.example/")
    selected = one(built, "StatefulSet")["spec"]["selector"]["matchLabels"]
    for selector in (
        one(built, "Service")["spec"]["selector"],
        one(built, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        one(built, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(built, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ):
        assert selector == selected
        assert selector.items() <= one(built, "StatefulSet")["spec"]["template"]["metadata"]["labels"].items()


def test_the_pod_is_as_restricted_as_the_namespace_asks(base: list[dict[str, Any]]) -> None:
    spec = pod(base)
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001  # the Dockerfile's
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    assert spec["enableServiceLinks"] is False


def test_probes_ask_paths_that_are_served(base: list[dict[str, Any]]) -> None:
    (container,) = pod(base)["containers"]
    (port,) = container["ports"]
    assert (port["name"], port["containerPort"]) == ("http", 9871)
    paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["port"] for probe in paths.values()} == {"http"}
    assert {kind: probe["path"] for kind, probe in paths.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }


@pytest.mark.parametrize("folder", ["base", "overlays/production"])
def test_the_daemon_accepts_the_configurations_with_what_the_pod_sets(
    folder: str, base: list[dict[str, Any]], tmp_path: Path
) -> None:
    for secret in ("ca.pem", "password"):
        (tmp_path / secret).write_text("secret\n", encoding="utf-8")
    text = (KUBERNETES / folder / "config.yaml").read_text(encoding="utf-8")
    mounted = tmp_path / "config.yaml"
    mounted.write_text(text.replace("/etc/streamcal-kafka", str(tmp_path)), encoding="utf-8")
    config = load_config(mounted, environ=POD_ENVIRONMENT, require_kafka=True)
    (container,) = pod(base)["containers"]
    assert {variable["name"] for variable in container["env"]} == set(POD_ENVIRONMENT)
    assert config.kafka.group_instance_id == "streamcal-0"
    port = config.kafka.bootstrap_servers[0].rpartition(":")[2]
    policy = yaml.safe_load((KUBERNETES / folder / "networkpolicy.yaml").read_text(encoding="utf-8"))
    assert int(port) in {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}


def test_the_prometheus_rule_holds_the_rules_of_prometheus() -> None:
    said = subprocess.run(
        [sys.executable, KUBERNETES / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")


# --- systemd -----------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    text = (DEPLOY / "systemd" / "streamcal.service").read_text(encoding="utf-8")
    path = tmp_path / "streamcal.service"
    # the program is not installed where this runs; everything else is judged as shipped
    path.write_text(re.sub(r"^(ExecStart(?:Pre)?)=\S+", r"\1=/bin/true", text, flags=re.MULTILINE), encoding="utf-8")
    return path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit_and_finds_it_well_locked_up(unit: Path) -> None:
    said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    # 0 is nothing exposed, 10 everything; the threshold is in tenths
    judged = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    said = subprocess.run(judged, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


# --- elsewhere ---------------------------------------------------------------------------------------------------


def test_the_workflow_follows_the_schema_and_calls_the_one_script() -> None:
    path = ROOT / ".github" / "workflows" / "ci.yml"
    check_schema("vendor.github-workflows", path)
    steps = [step for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values() for step in job["steps"]]
    assert any(".ci/run" in step.get("run", "") for step in steps)
