"""The Kafka log: both input topics as a member of a group, and the maps topic.

The work is in the modules beside this one: `kafka_clients` (options, connecting), `kafka_topics` (checks at the start,
maps published before) and `kafka_group` (assignment, offsets). Here they meet the `Log` interface.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.errors import KafkaError

from streamcal.engine import Slice
from streamcal.errors import BrokerError
from streamcal.runtime.config import Config
from streamcal.runtime.logs.base import Poll
from streamcal.runtime.logs.co_partition import CoPartition
from streamcal.runtime.logs.dead_letter import DeadLetters
from streamcal.runtime.logs.kafka_canary import check_partitioning
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.logs.kafka_group import GroupReader
from streamcal.runtime.logs.kafka_specs import LARGEST_LETTER
from streamcal.runtime.logs.kafka_topics import check_equal_counts, prepare_topics, read_maps
from streamcal.runtime.logs.record_ids import id_readers
from streamcal.runtime.repartition import input_topics
from streamcal.runtime.repartition_router import Router
from streamcal.serve.process_counters import ProcessCounters

__all__ = ["KafkaLog"]

_CLOSE_S: Final = 5.0

_LETTER_BLOCK_MS: Final = 2_000
"""Longest wait for a leader of the dead-letter topic in one go: reading goes on meanwhile, committing does not."""


class KafkaLog:
    """Reads two topics and publishes maps; see `Log`.

    Guarantees: only what was folded in is committed; a partition number is joined only while both topics' partitions
    are ours; nothing is skipped or repeated within one process, through broker restarts and rebalances.

    Parameters
    ----------
    config : Config
        With `kafka.bootstrap_servers` and `kafka.group_id`.
    counters : ProcessCounters, optional
        Where what is done beside reading is counted.

    Attributes
    ----------
    read : Counter
        Records handed out per (topic, partition), of partitions that have gone to others too.
    dead_letters : DeadLetters or None
        Where rejected records go, if `topics.dead_letter` is set.

    Raises
    ------
    ConfigError
        A secret file cannot be read.
    """

    finished = False

    def __init__(self, config: Config, counters: ProcessCounters | None = None) -> None:
        self._kafka = config.kafka
        self._topics = config.topics
        self._config = config
        self._inputs = input_topics(config)
        self._role = {name: role for role, name in self._inputs.names.items()}
        self._counters = counters or ProcessCounters()
        self._router: Router | None = None
        self._canary: CoPartition | None = None
        self._clients = KafkaClients(config.kafka)
        self._reader: GroupReader | None = None
        self.read: Counter[tuple[str, int]] = Counter()
        self._producer: Any = None
        self.dead_letters: DeadLetters | None = None
        if config.topics.dead_letter is not None:
            self.dead_letters = DeadLetters(
                lambda: self._clients.producer(max_request_size=LARGEST_LETTER, max_block_ms=_LETTER_BLOCK_MS),
                config.topics.dead_letter,
                {role: topic for topic, role in self._role.items()},
                counters=self._counters,
                where=self._clients.servers,
            )

    def open(self) -> Mapping[str, Sequence[bytes]]:
        """Connect, check the topics and join the group; returns the maps published before.

        Raises
        ------
        BrokerError
            No broker answers, a topic is missing, or the input topics cannot be joined.
        """
        inputs = self._inputs
        partitions = prepare_topics(
            self._clients, self._topics, create=self._kafka.create_topics, rewritten=inputs.rewritten
        )
        documents = read_maps(self._clients, self._topics.maps)
        self._producer = self._clients.producer()
        start = self._kafka.start_from_ms
        begin = self._kafka.start_from if start is None else start
        names, ids = inputs.names, id_readers(self._config)
        self._canary = CoPartition(ids, partitions, names, self._counters, rewritten=inputs.sources)
        check_partitioning(self._clients, self._canary, names)
        if inputs.sources:
            self._router = Router(self._clients, inputs, partitions, ids, begin, self._counters)
            self._router.open()
        self._reader = GroupReader(
            self._clients.group_consumer(),
            (names["predictions"], names["outcomes"]),
            begin,
            check=lambda counts: check_equal_counts(names, counts, self._clients.servers),
            group_id=self._kafka.group_id or "",
            where=self._clients.servers,
            from_earliest=inputs.rewritten.values(),
        )
        return documents

    @property
    def partitions(self) -> frozenset[int]:
        """Partition numbers joined here at present."""
        return self._opened().numbers

    def poll(self, timeout_s: float) -> Poll:
        """The next records, predictions first.

        Raises
        ------
        BrokerError
            Records that should follow are gone, or the broker refuses for good.
        """
        if self._router is not None:
            self._router.check()
        fetched = self._opened().poll(timeout_s)
        slices = [Slice(self._role[part.topic], part.partition, records) for part, records in fetched.items()]
        self.read.update({(piece.topic, piece.partition): len(piece.records) for piece in slices})
        for piece in slices:
            if self._canary is not None:
                self._canary.sample(piece.topic, piece.partition, piece.records)
        return Poll(sorted(slices, key=lambda piece: (piece.topic != "predictions", piece.partition)))

    def caught_up(self) -> frozenset[tuple[str, int]]:
        """Logs with nothing unread, as far as the broker has told; what is still to be written again is unread."""
        behind = frozenset() if self._router is None else self._router.behind()
        read = ((self._role[part.topic], part.partition) for part in self._opened().caught_up())
        return frozenset(log for log in read if log[0] not in behind)

    def lag(self) -> dict[tuple[str, int], int]:
        """Unread records per log."""
        return {(self._role[part.topic], part.partition): n for part, n in self._opened().lag().items()}

    def publish(self, key: str, document: bytes) -> None:
        """Append to the maps topic and wait until it is stored.

        Raises
        ------
        BrokerError
            It was not stored in time.
        """
        try:
            self._producer.send(self._topics.maps, key=key.encode(), value=document).get()
        except KafkaError as error:
            hint = "check the broker and that this user may write there; the next start goes on from the last commit"
            message = f"a map could not be written to topic {self._topics.maps!r}: {error}"
            raise BrokerError(message, where=self._clients.servers, hint=hint) from error

    def commit(self) -> None:
        """Commit what was folded in.

        Raises
        ------
        BrokerError
            The broker refuses for good.
        """
        self._opened().commit()

    def close(self) -> None:
        """Leave the group and the broker."""
        if self._router is not None:
            self._router.close()
        if self._reader is not None:
            self._reader.close()
        if self._producer is not None:
            self._producer.close(timeout=_CLOSE_S)
        if self.dead_letters is not None:
            self.dead_letters.close(_CLOSE_S)

    def _opened(self) -> GroupReader:
        assert self._reader is not None, "open() comes first"
        return self._reader
