"""What `streamcal run` says when it cannot work: one line that names the thing, an exit code, no traceback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from daemon_process import Daemon
from event_streams import produce_events
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka_settings import free_ports

from streamcal.errors import BrokerError, ConfigError, ServeError

pytestmark = pytest.mark.kafka

Topics = Callable[..., tuple[str, ...]]


def config(kafka: str, predictions: str, outcomes: str, **further: Any) -> dict[str, Any]:
    group = f"group-{uuid4().hex[:10]}"
    return {
        "kafka": {"bootstrap_servers": kafka, "group_id": group, "start_from": "earliest"},
        "topics": {"predictions": predictions, "outcomes": outcomes, "maps": f"maps-{group}"},
        "serve": {"port": 0},
        **further,
    }


def run(content: Mapping[str, Any], folder: Path, *, lines: int = 1) -> tuple[int, str]:
    """Exit code and standard error, which has one line unless told otherwise."""
    path = folder / "config.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, "-m", "streamcal", "run", "--config", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert len(done.stderr.splitlines()) == lines, done.stderr
    return done.returncode, done.stderr


def test_an_unreachable_broker_is_named_with_the_reason(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    code, said = run(config(address, "p", "o"), tmp_path)
    assert code == BrokerError.exit_code
    assert address in said
    assert "kafka.bootstrap_servers" in said


def test_options_the_client_refuses_together_are_a_problem_of_the_configuration(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    content = config(kafka, *topics("predictions", "outcomes"))
    content["kafka"]["consumer"] = {"session_timeout_ms": 1000}  # shorter than a heartbeat takes
    code, said = run(content, tmp_path, lines=2)
    assert code == ConfigError.exit_code
    assert "kafka.consumer: the client refuses its options: Heartbeat" in said


@pytest.mark.parametrize("missing", ["predictions", "outcomes"])
def test_a_missing_topic_is_named_with_its_key(kafka: str, topics: Topics, tmp_path: Path, missing: str) -> None:
    names = dict(zip(("predictions", "outcomes"), topics("predictions", "outcomes"), strict=True))
    code, said = run(config(kafka, **{**names, missing: "mistyped"}), tmp_path)
    assert code == BrokerError.exit_code
    assert "'mistyped'" in said
    assert f"topics.{missing}" in said


def test_unequal_partition_counts_are_both_named(kafka: str, topics: Topics, tmp_path: Path) -> None:
    (predictions,), (outcomes,) = topics("predictions", partitions=2), topics("outcomes", partitions=3)
    code, said = run(config(kafka, predictions, outcomes), tmp_path)
    assert code == BrokerError.exit_code
    assert f"{predictions!r} has 2 partitions" in said
    assert f"{outcomes!r} has 3" in said


def test_a_port_in_use_ends_the_start_before_the_group_is_joined(kafka: str, topics: Topics, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        content = config(kafka, *topics("predictions", "outcomes"), serve={"port": port})
        code, said = run(content, tmp_path)
    assert code == ServeError.exit_code
    assert f"127.0.0.1:{port}" in said
    assert "serve.port" in said
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    groups = {group["group_id"] for group in admin.list_groups()}
    admin.close()
    assert content["kafka"]["group_id"] not in groups


def test_records_deleted_before_they_were_counted_are_named_with_what_is_there(
    kafka: str, topics: Topics, tmp_path: Path
) -> None:
    predictions, outcomes = topics("predictions", "outcomes")
    content = config(kafka, predictions, outcomes)
    names, part = {"p": predictions, "o": outcomes}, TopicPartition(predictions, 0)

    def produce(first: int) -> None:
        made = [{"id": f"i{n}", "ts": 1_700_000_000_000 + n, "score": 0.5} for n in range(first, first + 10)]
        outcome = {"id": f"i{first}", "ts": 1_700_000_000_000 + first, "label": 1}
        produce_events(kafka, names, [*(("p", 0, value, None) for value in made), ("o", 0, outcome, None)])

    produce(0)
    with Daemon(content, tmp_path / "first") as daemon:
        daemon.wait_counted()
        assert daemon.terminate() == 0
    produce(10)
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_records({part: 15})
    admin.close()
    code, said = run(content, tmp_path)
    assert code == BrokerError.exit_code
    assert f"{predictions}[0] goes on at offset 10, the log holds 15 to 20" in said
    assert "streamcal state accept-gap" in said


def test_a_partition_added_later_stops_the_work(kafka: str, topics: Topics, tmp_path: Path) -> None:
    predictions, outcomes = topics("predictions", "outcomes")
    content = config(kafka, predictions, outcomes)
    content["kafka"]["consumer"] = {"metadata_max_age_ms": 500}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, "-m", "streamcal", "run", "--config", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        for line in daemon.stdout:
            if json.loads(line)["event"] == "partitions assigned":
                break
        admin = KafkaAdminClient(bootstrap_servers=kafka)
        admin.create_partitions({predictions: 2})
        admin.close()
        _, said = daemon.communicate(timeout=60)
    assert daemon.returncode == BrokerError.exit_code
    assert f"{predictions!r} has 2 partitions and {outcomes!r} has 1" in said
