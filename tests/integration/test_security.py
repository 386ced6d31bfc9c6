"""TLS and SASL against a broker that insists on them: who gets in, what others are told, what nobody is told."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from conftest import unavailable
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka_broker import create_topics
from kafka_secure import PASSWORD, TOKENS, Cluster, unsigned_token
from kafka_settings import NoBrokerError

from streamcal.errors import BrokerError, ConfigError
from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.config_security import KafkaSecurity
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.transform import CalibrationTransformer
from streamcal.transform.kafka_source import KafkaMapSource

pytestmark = pytest.mark.kafka

WRONG = "a-wr0ng-password"  # as the cluster has it


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secure")
    try:
        made = Cluster(folder)
    except NoBrokerError as error:
        unavailable(f"no Kafka broker of our own with TLS: {error}")
    sys.path.insert(0, str(folder))
    try:
        yield made
    finally:
        sys.path.remove(str(folder))
        made.broker.close()


def clients(cluster: Cluster, security: Mapping[str, Any], address: str | None = None) -> KafkaClients:
    context = {"check_service_files": True}
    section = KafkaSecurity.model_validate(dict(security), context=context)
    return KafkaClients(Kafka(bootstrap_servers=(address or cluster.address,), group_id="g", security=section))


def gets_in(cluster: Cluster, security: Mapping[str, Any], address: str | None = None) -> bool:
    admin = clients(cluster, security, address).admin()
    try:
        return bool(admin.describe_cluster()["brokers"])
    finally:
        admin.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_a_password_gets_in_over_tls(cluster: Cluster, mechanism: str) -> None:
    assert gets_in(cluster, cluster.security(mechanism))


def test_a_token_of_a_function_gets_in(cluster: Cluster) -> None:
    assert gets_in(cluster, cluster.security("OAUTHBEARER", sasl_oauth_token_provider=f"{TOKENS}:token"))


def test_a_client_certificate_with_a_locked_key_gets_in(cluster: Cluster, tmp_path: Path) -> None:
    certificate, key = cluster.authority.issue("client", password="l0cked")
    (tmp_path / "key-password").write_text("l0cked", encoding="utf-8")
    security = {
        "security_protocol": "SSL",
        "ssl_cafile": str(cluster.authority.ca),
        "ssl_certfile": str(certificate),
        "ssl_keyfile": str(key),
        "ssl_password_file": str(tmp_path / "key-password"),
        "ssl_ciphers": "ECDHE+AESGCM",
    }
    assert gets_in(cluster, security, cluster.broker.addresses["TLS"])
    (tmp_path / "key-password").write_text("wrong", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"kafka\.security\.ssl_certfile: cannot be used"):
        clients(cluster, security)


def refusals(cluster: Cluster) -> dict[str, tuple[dict[str, Any], str, str, str]]:
    """Settings, address, what is said, and the key that mends it."""
    secure, tls, plain = cluster.address, cluster.broker.addresses["TLS"], cluster.broker.bootstrap
    good, wrong = cluster.security(), str(cluster.wrong)
    another_name = f"127.0.0.1:{secure.rpartition(':')[2]}"
    untrusted = cluster.security(ssl_cafile=str(cluster.other.ca))
    only_tls = {"security_protocol": "SSL", "ssl_cafile": str(cluster.authority.ca)}
    none = cluster.security("OAUTHBEARER", sasl_oauth_token_provider=f"{TOKENS}:none")
    refused = "the broker refuses this user"
    return {
        "wrong password": (cluster.security(sasl_password_file=wrong), secure, refused, "sasl_password_file"),
        "wrong password of scram": (
            cluster.security("SCRAM-SHA-256", sasl_password_file=wrong),
            secure,
            refused,
            "sasl_password_file",
        ),
        "nobody": (cluster.security(sasl_username="nobody"), secure, refused, "sasl_username"),
        "untrusted authority": (untrusted, secure, "certificate is not trusted", "ssl_cafile"),
        "wrong name": (good, another_name, "certificate is for another name", "ssl_check_hostname"),
        "no certificate of ours": (only_tls, tls, "refuses our certificate, or wants one", "ssl_certfile"),
        "no tls": ({}, secure, "the broker speaks TLS there", "security_protocol"),
        "no tls there": (good, plain, "does not speak TLS there", "security_protocol"),
        "no token": (none, secure, "the token server is away", "sasl_oauth_token_provider"),
    }


CASES = (
    "wrong password",
    "wrong password of scram",
    "nobody",
    "untrusted authority",
    "wrong name",
    "no certificate of ours",
    "no tls",
    "no tls there",
    "no token",
)


@pytest.fixture(scope="module")
def refused(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and standard error of the daemon in each case, all at once: each takes as long as a time-out."""
    folder, running = tmp_path_factory.mktemp("refused"), {}
    environ = {**os.environ, "PYTHONPATH": str(cluster.password.parent)}
    for case, (security, address, _, _) in refusals(cluster).items():
        config = {"kafka": {"bootstrap_servers": address, "group_id": "g", "security": security}, "serve": {"port": 0}}
        path = folder / f"{case}.yaml"
        path.write_text(json.dumps(config), encoding="utf-8")
        command = [sys.executable, "-m", "streamcal", "run", "--config", str(path)]
        running[case] = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ
        )
    said = {case: process.communicate(timeout=120)[1] for case, process in running.items()}
    return {case: (process.returncode, said[case]) for case, process in running.items()}


@pytest.mark.parametrize("case", CASES)
def test_who_is_refused_is_told_in_one_line_why_and_which_key_mends_it(
    cluster: Cluster, refused: dict[str, tuple[int, str]], case: str
) -> None:
    _, address, what, key = refusals(cluster)[case]
    code, said = refused[case]
    assert code == BrokerError.exit_code
    assert len(said.splitlines()) == 1, said
    assert address in said
    assert what in said or ("the broker hangs up" in said and case in HANGING_UP), said
    assert key in said or "sasl_username" in said
    assert not any(secret in said for secret in (PASSWORD, WRONG))


HANGING_UP = {"wrong password", "wrong password of scram", "nobody", "no tls"}
"""There the broker closes the connection behind its answer, and the client may lose the answer each time."""


def test_wrong_files_are_named_before_any_connection(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.security\.ssl_cafile: cannot be used"):
        clients(cluster, cluster.security(ssl_cafile=str(cluster.password)))
    with pytest.raises(ConfigError, match=r"kafka\.security\.sasl_oauth_token_provider: 'gone:f' cannot be loaded"):
        clients(cluster, cluster.security("OAUTHBEARER", sasl_oauth_token_provider="gone:f"))


def test_the_transformer_follows_the_maps_with_the_same_settings(cluster: Cluster) -> None:
    topic = f"maps-{uuid4().hex[:10]}"
    create_topics(cluster.broker.bootstrap, {topic: 1}, {"cleanup.policy": "compact"})
    grant(cluster, topic)
    producer = KafkaProducer(bootstrap_servers=cluster.broker.bootstrap)
    producer.send(topic, key=b"default", value=encode(new_document("default", 3, Platt(1.0, -0.3), at_ms=0)))
    producer.flush()
    producer.close()
    source = KafkaMapSource(cluster.address, topic, security=cluster.security("SCRAM-SHA-512"))
    with CalibrationTransformer(source) as transformer:
        assert transformer.wait_caught_up(60.0)
        assert transformer.transform(0.5)[1] == 3
    with pytest.raises(ConfigError, match=r"security\.sasl_pasword"):
        KafkaMapSource(cluster.address, topic, security={"sasl_pasword": "x"})


def grant(cluster: Cluster, topic: str) -> None:
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    admin = KafkaAdminClient(bootstrap_servers=cluster.broker.bootstrap)
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    admin.create_acls([ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
    admin.close()


LOUD = """
import logging, sys
from streamcal.runtime import logging_setup
said = logging.FileHandler(sys.argv.pop(1))
def everything(stream, _before=logging_setup.configure_logging):
    _before(stream)
    client = logging.getLogger("kafka")
    client.setLevel(logging.DEBUG)
    client.handlers = [said]
logging_setup.configure_logging = everything
logging_setup.relay_client_warnings = lambda _: None
logging.basicConfig(level=logging.DEBUG, handlers=[said])
from streamcal.cli import main
main()
"""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("command", [["run"], ["check-config", "--kafka"]])
def test_no_secret_is_in_any_output_at_the_loudest_level(
    cluster: Cluster, tmp_path: Path, mechanism: str, command: list[str]
) -> None:
    # Topics that are missing: the daemon connects in every way it does at a start, and ends by itself.
    security = cluster.security(mechanism)
    environ = {**os.environ, "PYTHONPATH": str(cluster.password.parent), "PYTHONWARNINGS": "ignore"}
    if mechanism == "OAUTHBEARER":
        security["sasl_oauth_token_provider"] = f"{TOKENS}:token"
    else:
        del security["sasl_password_file"]
        environ["STREAMCAL_KAFKA__SECURITY__SASL_PASSWORD"] = PASSWORD
    config = {
        "kafka": {"bootstrap_servers": cluster.address, "group_id": "g", "security": security},
        "serve": {"port": 0},
    }
    path, said = tmp_path / "config.yaml", tmp_path / "debug.log"
    path.write_text(json.dumps(config), encoding="utf-8")
    program = [sys.executable, "-c", LOUD, str(said), *command, "--config", str(path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120, env=environ)
    output = done.stdout + done.stderr + (said.read_text(encoding="utf-8") if said.exists() else "")
    if command == ["run"]:
        assert done.returncode == BrokerError.exit_code, output[-2000:]
        assert "this user lacks Read on topic 'predictions'" in done.stderr
        assert "SaslAuthenticateRequest(***)" in output  # the client did tell, and was cut short
    else:
        assert done.returncode == 0, output[-2000:]
    assert PASSWORD not in output
    assert unsigned_token("alice").split(".")[0] not in output


def test_asterisks_stand_for_secrets_wherever_the_client_shows_its_options(cluster: Cluster) -> None:
    said: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, collector = logging.getLogger("kafka"), Collector()
    level = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.DEBUG)
    try:
        assert gets_in(cluster, cluster.security())
    finally:
        logger.removeHandler(collector)
        logger.setLevel(level)
    shown = [line for line in said if "with configuration" in line]
    assert shown
    assert "'sasl_plain_password': '***'" in shown[0]
    assert PASSWORD not in "".join(said)
