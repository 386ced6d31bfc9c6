"""Kafka as the monitor sees it; see `streamcal.runtime.cluster`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from streamcal.errors import BrokerError
from streamcal.maps.loop import PublishMap
from streamcal.roles.task import CountsTopic
from streamcal.runtime.adopting import readable
from streamcal.runtime.cluster import Group, Part
from streamcal.runtime.config import Config
from streamcal.runtime.logs.co_partition import CoPartition
from streamcal.runtime.logs.dead_letter import DeadLetters
from streamcal.runtime.logs.kafka_canary import check_partitioning
from streamcal.runtime.logs.kafka_checks import ensure_topics, topic_ids
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_maps_tail import MapsTail
from streamcal.runtime.logs.kafka_membership import MADE_ANEW, KafkaMembership
from streamcal.runtime.logs.kafka_notes import GroupNotes
from streamcal.runtime.logs.kafka_specs import LARGEST_LETTER, counts_spec, state_spec
from streamcal.runtime.logs.kafka_state import KafkaCounts, KafkaRecordLog, Producing
from streamcal.runtime.logs.kafka_topics import check_equal_counts, check_state_kept, prepare_topics, read_maps
from streamcal.runtime.logs.record_ids import id_readers
from streamcal.runtime.map_signing import map_signing
from streamcal.runtime.repartition import Inputs, input_topics
from streamcal.runtime.repartition_router import Router
from streamcal.serve.process_counters import ProcessCounters
from streamcal.state.about import OTHER_PARTITIONS
from streamcal.state.claimed_log import RecordLog
from streamcal.stream.events import TOPICS

__all__ = ["KafkaCluster"]

log = structlog.get_logger(__name__)

_CLOSE_S: Final = 5.0
_LETTER_BLOCK_MS: Final = 2_000
"""Longest wait for a leader of the dead-letter topic in one go: reading goes on meanwhile, committing does not."""
SHARDS: Final = 1
"""Partitions of the counts topic that is made here; an existing one may have more."""


class KafkaCluster:
    """Connects, checks and makes topics, and joins the group.

    Parameters
    ----------
    config : Config
        With `kafka.bootstrap_servers` and `kafka.group_id`.
    counters : ProcessCounters, optional
        Where what is done beside reading is counted.

    Attributes
    ----------
    dead_letters : DeadLetters or None
        Where rejected records go, if `topics.dead_letter` is set.
    topic_ids : mapping of str to str
        Kafka's own ids of what the state has offsets of, by role, where the broker tells them.

    Raises
    ------
    BrokerError
        No broker answers, a topic is missing or not as it must be.
    """

    def __init__(self, config: Config, counters: ProcessCounters | None = None) -> None:
        topics, kafka, inputs = config.topics, config.kafka, input_topics(config)
        self._clients = clients = KafkaClients(kafka)
        self._maps = topics.maps
        self._signing = map_signing(config.maps)
        counters = counters or ProcessCounters()
        sources = prepare_topics(clients, topics, create=kafka.create_topics, rewritten=inputs.rewritten)
        self.sources, self.shards = sources, SHARDS
        group_id, start = kafka.group_id or "", kafka.start_from_ms
        begin = kafka.start_from if start is None else start
        counts, self._state = topics.counts or f"{group_id}-counts", topics.state or f"{group_id}-state"
        ensure_topics(clients, [counts_spec(counts, SHARDS)], create=kafka.create_topics)
        ensure_topics(clients, [state_spec(self._state, sources + SHARDS)], create=kafka.create_topics)
        check_state_kept(clients, self._state, counts)
        self.topic_ids = topic_ids(clients, {**inputs.names, "counts": counts})
        ids = id_readers(config)
        self._beside = _Beside(CoPartition(ids, sources, inputs.names, counters, rewritten=inputs.sources))
        check_partitioning(clients, self._beside.canary, inputs.names)
        if inputs.sources:
            self._beside.router = Router(clients, inputs, sources, ids, begin, counters)
            self._beside.router.open()
        self.dead_letters = _dead_letters(config, clients, inputs, counters)
        self._producing = Producing(clients)
        self._tail = MapsTail(clients, topics.maps)
        self.counts: CountsTopic = KafkaCounts(self._producing, counts, SHARDS)

        def check(found: Mapping[str, int]) -> None:
            check_equal_counts(inputs.names, found, clients.servers)
            _check_unchanged(found[inputs.names["predictions"]], sources, inputs.names["predictions"], clients.servers)
            _check_unchanged(found[counts], SHARDS, counts, clients.servers)

        self._beside.notes = GroupNotes(clients, {name: role for role, name in inputs.names.items()})
        self.group: Group = KafkaMembership(
            clients.group_consumer,
            {**inputs.names, "counts": counts},
            begin,
            check=check,
            beside=self._beside,
            from_earliest={"counts", *inputs.rewritten},
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
        documents = [(command.key, self._signing.outgoing(command.key, command.document)) for command in commands]
        self._producing.wait(
            [self._producing.send(self._maps, None, key.encode(), document) for key, document in documents]
        )

    def published_maps(self) -> Mapping[str, Sequence[bytes]]:
        """Every document of the maps topic that can be read and, where keys are configured, is signed by one."""
        found = {}
        for key, documents in read_maps(self._clients, self._maps).items():
            taken = self._signing.incoming(key, documents)
            if taken.refused:
                log.warning(
                    "map documents without a valid signature are passed over", key=key, count=len(taken.refused)
                )
            if sound := readable(key, taken.accepted):
                found[key] = sound
        return found

    def newest_maps(self) -> Mapping[str, bytes | None]:
        """What is appended to the maps topic; see `MapsTail`."""
        return self._tail.newest()

    def close(self) -> None:
        """Leave the group and the broker."""
        self._tail.close()
        if self._beside.router is not None:
            self._beside.router.close()
        self.group.close()
        if self._beside.notes is not None:
            self._beside.notes.close()
        self._producing.close()
        if self.dead_letters is not None:
            self.dead_letters.close(_CLOSE_S)


class _Beside:
    """The canary of co-partitioning, and the router of a topic that is written again."""

    def __init__(self, canary: CoPartition) -> None:
        self.canary = canary
        self.router: Router | None = None
        self.notes: GroupNotes | None = None

    def said(self) -> Mapping[Part, str]:
        """What members said of their parts."""
        return {} if self.notes is None else self.notes.read()

    def check(self) -> None:
        """Raise what the router met."""
        if self.router is not None:
            self.router.check()

    def sample(self, role: str, partition: int, records: Sequence[Any]) -> None:
        """Let the canary look."""
        if role in TOPICS:
            self.canary.sample(role, partition, records)

    def behind(self) -> frozenset[str]:
        """What is still to be written again is unread."""
        return frozenset() if self.router is None else frozenset(self.router.behind())


def _dead_letters(
    config: Config, clients: KafkaClients, inputs: Inputs, counters: ProcessCounters
) -> DeadLetters | None:
    topic = config.topics.dead_letter
    if topic is None:
        return None
    return DeadLetters(
        lambda: clients.producer(max_request_size=LARGEST_LETTER, max_block_ms=_LETTER_BLOCK_MS),
        topic,
        dict(inputs.names),
        counters=counters,
        where=clients.servers,
    )


def _check_unchanged(found: int, began_with: int, topic: str, where: str) -> None:
    if not found:
        raise BrokerError(f"topic {topic!r} is gone: it was deleted while it was read", where=where, hint=MADE_ANEW)
    if found != began_with:
        raise BrokerError(
            f"topic {topic!r} had {began_with} partition{'s' * (began_with != 1)} and has {found} now",
            where=where,
            hint=OTHER_PARTITIONS,
        )
