"""Kafka as the monitor sees it; see `streamcal.runtime.cluster`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from streamcal.errors import BrokerError
from streamcal.maps.loop import PublishMap
from streamcal.roles.task import CountsTopic
from streamcal.runtime.cluster import Group
from streamcal.runtime.config import Config
from streamcal.runtime.logs.kafka_checks import ensure_topics
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_membership import KafkaMembership
from streamcal.runtime.logs.kafka_specs import counts_spec, state_spec
from streamcal.runtime.logs.kafka_state import KafkaCounts, KafkaRecordLog, Producing
from streamcal.runtime.logs.kafka_topics import check_equal_counts, prepare_topics, read_maps
from streamcal.state.claimed_log import RecordLog

__all__ = ["KafkaCluster"]

SHARDS: Final = 1
"""Partitions of the counts topic that is made here; an existing one may have more."""


class KafkaCluster:
    """Connects, checks and makes topics, and joins the group.

    Parameters
    ----------
    config : Config
        With `kafka.bootstrap_servers` and `kafka.group_id`.

    Raises
    ------
    BrokerError
        No broker answers, a topic is missing or not as it must be.
    """

    def __init__(self, config: Config) -> None:
        topics, kafka = config.topics, config.kafka
        self._clients = clients = KafkaClients(kafka)
        self._maps = topics.maps
        self.sources = prepare_topics(clients, topics, create=kafka.create_topics)
        group_id = kafka.group_id or ""
        names = {
            "counts": topics.counts or f"{group_id}-counts",
            "state": topics.state or f"{group_id}-state",
        }
        self.shards = SHARDS
        ensure_topics(clients, [counts_spec(names["counts"], self.shards)], create=kafka.create_topics)
        ensure_topics(clients, [state_spec(names["state"], self.sources + self.shards)], create=kafka.create_topics)
        self._state = names["state"]
        self._producing = Producing(clients)
        self.counts: CountsTopic = KafkaCounts(self._producing, names["counts"], self.shards)
        start = kafka.start_from_ms
        sources, shards = self.sources, self.shards

        def check(found: Mapping[str, int]) -> None:
            check_equal_counts(topics, found, clients.servers)
            _check_unchanged(found[topics.predictions], sources, topics.predictions, clients.servers)
            _check_unchanged(found[names["counts"]], shards, names["counts"], clients.servers)

        self.group: Group = KafkaMembership(
            clients.group_consumer,
            {"predictions": topics.predictions, "outcomes": topics.outcomes, "counts": names["counts"]},
            kafka.start_from if start is None else start,
            check=check,
            group_id=group_id,
            where=clients.servers,
        )

    def state(self, number: int) -> RecordLog:
        """A partition of the state topic."""
        return KafkaRecordLog(self._clients, self._producing, self._state, number)

    def new_author(self) -> bytes:
        """A random id."""
        return uuid.uuid4().bytes

    def publish_maps(self, commands: Sequence[PublishMap]) -> None:
        """Append to the maps topic."""
        for command in commands:
            self._producing.send(self._maps, None, command.key.encode(), command.document)
        self._producing.wait()

    def published_maps(self) -> Mapping[str, Sequence[bytes]]:
        """Every document of the maps topic."""
        return read_maps(self._clients, self._maps)

    def close(self) -> None:
        """Leave the group and the broker."""
        self.group.close()
        self._producing.close()


def _check_unchanged(found: int, began_with: int, topic: str, where: str) -> None:
    if found != began_with:
        raise BrokerError(
            f"topic {topic!r} had {began_with} partitions and has {found} now; keys have moved, and the state "
            "knows them where they were",
            where=where,
            hint="begin anew with another kafka.group_id, or `streamcal state rebuild`",
        )
