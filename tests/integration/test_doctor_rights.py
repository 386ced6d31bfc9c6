"""What `streamcal doctor` says to a user without rights, on a broker with access control."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from conftest import unavailable
from daemon_process import wait_until
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)
from kafka_broker import create_topics
from kafka_java import JavaBroker
from kafka_secure import PASSWORD, Authority, secure_broker
from kafka_settings import NoBrokerError

from streamcal.cli import run_command

pytestmark = pytest.mark.kafka

Doctor = Callable[[], tuple[int, list[str]]]


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority.new(folder / "authority")
        self.broker: JavaBroker = secure_broker(folder / "broker", self.authority, ("alice",))
        self.password = folder / "password"
        self.password.write_text(PASSWORD, encoding="utf-8")
        create_topics(self.broker.bootstrap, {"predictions": 2, "outcomes": 2})

    def grant(self, kind: ResourceType, name: str, *operations: ACLOperation) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        pattern = ResourcePattern(kind, name, ACLResourcePatternType.LITERAL)
        allow = ACLPermissionType.ALLOW
        admin.create_acls([ACL("User:alice", "*", operation, allow, pattern) for operation in operations])
        admin.close()

    def config(self) -> dict[str, Any]:
        return {
            "kafka": {
                "bootstrap_servers": self.broker.addresses["SECURE"],
                "group_id": "watch",
                "security": {
                    "security_protocol": "SASL_SSL",
                    "sasl_mechanism": "PLAIN",
                    "sasl_username": "alice",
                    "sasl_password_file": str(self.password),
                    "ssl_cafile": str(self.authority.ca),
                },
            }
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        made = Cluster(tmp_path_factory.mktemp("rights"))
    except NoBrokerError as error:
        unavailable(f"no Kafka broker of our own with access control: {error}")
    yield made
    made.broker.close()


@pytest.fixture
def doctor(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Doctor]:
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(cluster.config()), encoding="utf-8")

    def run() -> tuple[int, list[str]]:
        code = run_command(["doctor", "--config", str(path), "--json"])
        said = capsys.readouterr()
        assert said.err == ""
        assert PASSWORD not in said.out
        return code, [f["what"] for f in json.loads(said.out)["findings"] if f["level"] == "problem"]

    yield run
    structlog.reset_defaults()


def test_each_missing_right_is_a_sentence_until_there_is_none(cluster: Cluster, doctor: Doctor) -> None:
    code, said = doctor()
    assert code == 1
    assert {text.split(", so whether")[0] for text in said} == {
        "this user may not DESCRIBE topic 'predictions' (topics.predictions)",
        "this user may not DESCRIBE topic 'outcomes' (topics.outcomes)",
        "this user may not DESCRIBE topic 'streamcal.maps' (topics.maps)",
        "this user may not DESCRIBE topic 'watch-counts' (topics.counts)",
        "this user may not DESCRIBE topic 'watch-state' (topics.state)",
        "this user may not READ group 'watch'",
    }
    for name in ("streamcal.maps", "watch-counts", "watch-state"):
        cluster.grant(ResourceType.TOPIC, name, ACLOperation.ALL)
    cluster.grant(ResourceType.GROUP, "watch", ACLOperation.READ)
    cluster.grant(ResourceType.TOPIC, "predictions", ACLOperation.READ)
    cluster.grant(ResourceType.TOPIC, "outcomes", ACLOperation.DESCRIBE)
    # The broker answers for a grant before it acts on it.
    wait_until(lambda: doctor() == (1, ["this user may not READ topic 'outcomes' (topics.outcomes)"]))
    cluster.grant(ResourceType.TOPIC, "outcomes", ACLOperation.READ)
    empty = [f"the topic of the {topic} holds no records" for topic in ("predictions", "outcomes")]
    wait_until(lambda: doctor() == (1, empty))
