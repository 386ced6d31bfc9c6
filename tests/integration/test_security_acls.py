"""Access control: what the table in docs/how-to/security.md lists is enough, and each entry of it is needed."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from conftest import unavailable
from daemon_process import Daemon, wait_until
from event_streams import START_MS, closing_events, produce_events, random_events
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka_broker import create_topics
from kafka_secure import Cluster
from kafka_settings import NoBrokerError

from streamcal.errors import BrokerError
from streamcal.runtime.config import Config
from streamcal.runtime.logs.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DOCUMENTED = Path(__file__).parents[2] / "docs" / "how-to" / "security.md"
ROW = re.compile(r"^\| (topic|group) \| `([^`]+)` \| ([A-Za-z, ]+) \|", re.MULTILINE)
USER = "User:alice"
PAUSE = threading.Event()


def started(config: Config) -> str:
    """Start and stop what the daemon starts; what it is refused with, or nothing."""
    try:
        KafkaCluster(config).close()
    except BrokerError as error:
        return str(error)
    return ""


class Right(NamedTuple):
    resource: str
    name: str  # as the table writes it
    operation: str


def documented_rights() -> list[Right]:
    """Of the daemon: the first table with resources in the first column."""
    rows = ROW.findall(DOCUMENTED.read_text(encoding="utf-8"))
    return [Right(kind, name, operation.strip()) for kind, name, listed in rows for operation in listed.split(",")]


RIGHTS = documented_rights()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        made = Cluster(tmp_path_factory.mktemp("acls"))
    except NoBrokerError as error:
        unavailable(f"no Kafka broker of our own with access control: {error}")
    try:
        yield made
    finally:
        made.broker.close()


class Setting:
    """A daemon's configuration, its topics, and the rights of its user."""

    def __init__(self, cluster: Cluster, *, make: bool = True) -> None:
        self.cluster = cluster
        run = uuid4().hex[:8]
        self.group = f"group-{run}"
        self.topics = {role: f"{role}-{run}" for role in ("predictions", "outcomes", "maps", "dead_letter")}
        self.topics |= {role: f"{self.group}-{role}" for role in ("state", "counts")}
        self.internal = {role: f"{self.group}-repartition-{role}" for role in ("predictions", "outcomes")}
        create_topics(cluster.broker.bootstrap, {self.topics["predictions"]: 2, self.topics["outcomes"]: 3})
        if make:
            compacted, kept = {"cleanup.policy": "compact"}, {"cleanup.policy": "delete", "retention.ms": "-1"}
            create_topics(cluster.broker.bootstrap, {self.topics["maps"]: 1, self.topics["counts"]: 1}, compacted)
            create_topics(cluster.broker.bootstrap, {self.topics["state"]: 4, self.topics["dead_letter"]: 1}, kept)
            create_topics(cluster.broker.bootstrap, dict.fromkeys(self.internal.values(), 3), kept)

    def name(self, right: Right) -> str:
        section, _, key = right.name.partition(".")
        if section == "topics":
            return self.topics[key]
        return self.group if right.name == "kafka.group_id" else right.name.replace("<group_id>", self.group)

    def config(self, *, create: bool = False) -> dict[str, Any]:
        return {
            "kafka": {
                "bootstrap_servers": self.cluster.address,
                "group_id": self.group,
                "start_from": "earliest",
                "commit_interval": "200ms",
                "create_topics": create,
                "security": self.cluster.security("SCRAM-SHA-256"),
            },
            "topics": self.topics,
            "join": {"repartition": "both", "horizon": "60m"},
            "refit": {"mode": "off"},
        }

    def grant(self, *rights: Right) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.cluster.broker.bootstrap)
        try:
            admin.create_acls([self._acl(right) for right in rights])
        finally:
            admin.close()

    def take_away(self, right: Right) -> None:
        pattern = ResourcePatternFilter(self._kind(right), self.name(right), ACLResourcePatternType.LITERAL)
        wanted = ACLFilter(USER, "*", self._operation(right), ACLPermissionType.ALLOW, pattern)
        admin = KafkaAdminClient(bootstrap_servers=self.cluster.broker.bootstrap)
        try:
            admin.delete_acls([wanted])
        finally:
            admin.close()

    def starts(self) -> str:
        """Start and stop what the daemon starts; what it is refused with, or nothing."""
        config = Config.model_validate(self.config(), context={"check_service_files": True})
        return started(config)

    def _acl(self, right: Right) -> ACL:
        pattern = ResourcePattern(self._kind(right), self.name(right))
        return ACL(USER, "*", self._operation(right), ACLPermissionType.ALLOW, pattern)

    @staticmethod
    def _kind(right: Right) -> ResourceType:
        return ResourceType.TOPIC if right.resource == "topic" else ResourceType.GROUP

    @staticmethod
    def _operation(right: Right) -> ACLOperation:
        return ACLOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", right.operation).upper()]


@pytest.fixture(scope="module")
def allowed(cluster: Cluster) -> Setting:
    setting = Setting(cluster)
    setting.grant(*RIGHTS)
    wait_until(lambda: setting.starts() == "")
    return setting


def test_the_table_lists_what_the_daemon_uses() -> None:
    assert len(RIGHTS) == len(set(RIGHTS)) == 24
    assert {right.resource for right in RIGHTS} == {"topic", "group"}


def test_with_exactly_these_rights_the_daemon_works(allowed: Setting, tmp_path: Path) -> None:
    names = {"p": allowed.topics["predictions"], "o": allowed.topics["outcomes"]}
    bad: Any = ("p", 0, b"{", START_MS)
    end = START_MS + 86_400_000
    events = [*random_events(60, 2, seed=1), bad, *closing_events(2, end), ("o", 2, *closing_events(1, end)[1][2:])]
    produce_events(allowed.cluster.broker.bootstrap, names, events)
    with Daemon(allowed.config(), tmp_path) as daemon:
        daemon.wait_ready()

        def total(name: str) -> float:
            return sum(value for (found, _), value in daemon.samples().items() if found == name)

        wait_until(lambda: total("streamcal_dead_letter_total") == 1)
        wait_until(lambda: total("streamcal_predictions_matched_total") > 0)
        assert daemon.terminate() == 0
        assert daemon.errors == ""
        assert not [line for line in daemon.logged if line["level"] == "error"]


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right.operation} {right.name}")
def test_without_one_of_them_the_start_is_refused_and_names_it(allowed: Setting, right: Right) -> None:
    # A right that is not told of is lacking too: without Write on it, a topic that is only written is not seen at all.
    lacking = re.compile(rf"lacks [A-Za-z, ]*{right.operation}[A-Za-z, ]* on {right.resource} '{allowed.name(right)}'")
    granted = lacking.pattern.replace("lacks", "grant it")
    allowed.take_away(right)
    try:
        deadline = time.monotonic() + 30
        # The broker applies changes in its own time: this one, and the one that gave back the right before.
        while not lacking.search(said := allowed.starts()):
            assert time.monotonic() < deadline, said
            PAUSE.wait(0.1)
        assert re.search(granted, said)
    finally:
        allowed.grant(right)


def test_create_is_named_where_topics_are_to_be_made(cluster: Cluster, tmp_path: Path) -> None:
    setting = Setting(cluster, make=False)
    setting.grant(*RIGHTS)
    config = Config.model_validate(setting.config(create=True), context={"check_service_files": True})

    def said() -> str:
        return started(config)

    wait_until(lambda: "lacks" not in said())
    told = said()
    assert f"topic {setting.topics['maps']!r} (topics.maps) cannot be created: this user may not" in told
    assert f"grant this user Create on topic {setting.topics['maps']!r}" in told
    made = [
        name for name in RIGHTS if setting.name(name) not in (setting.topics["predictions"], setting.topics["outcomes"])
    ]
    setting.grant(*{right._replace(operation="Create") for right in made if right.resource == "topic"})
    wait_until(lambda: said() == "")
