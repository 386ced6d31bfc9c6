"""What must be true of the topics before the first record is read, and the maps already published."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kafka import TopicPartition
from kafka.errors import AuthorizationError, KafkaError

from streamcal.errors import BrokerError
from streamcal.runtime.config_kafka import Topics
from streamcal.runtime.logs.kafka_checks import check_group, ensure_topics
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_specs import dead_letter_spec, input_spec, maps_spec, repartition_spec
from streamcal.runtime.repartition import router_group
from streamcal.stream.events import TOPICS

__all__ = ["check_equal_counts", "check_state_kept", "keyed_up_to", "prepare_topics", "read_maps"]

_POLL_MS: Final = 500
_READ_MAPS_S: Final = 60.0
"""Longest wait for the maps topic: thousands of documents take about a second."""


def prepare_topics(
    clients: KafkaClients, topics: Topics, *, create: bool = True, rewritten: Mapping[str, str] | None = None
) -> int:
    """Check the input topics, and see to those for maps and rejected events, and for inputs that are written again.

    Parameters
    ----------
    clients : KafkaClients
    topics : Topics
    create : bool
        Whether missing topics of ours may be made.
    rewritten : mapping, optional
        Role to the internal topic that is read in place of its own (`join.repartition`).

    Returns
    -------
    int
        Partitions that are joined.

    Raises
    ------
    BrokerError
        A topic is missing or not as it must be, a right is missing, or the partition counts differ.
    """
    inputs = [input_spec("predictions", topics.predictions), input_spec("outcomes", topics.outcomes)]
    found = ensure_topics(clients, inputs, create=False)
    group = clients.group_id or ""
    for needed in (group, *([router_group(group)] if rewritten else [])):
        check_group(clients, needed)
    rewritten = rewritten or {}
    if not rewritten:
        check_equal_counts({role: getattr(topics, role) for role in TOPICS}, found, clients.servers)
    # The topic that is read as it is says how many; where none is, the larger one.
    as_they_are = [getattr(topics, role) for role in TOPICS if role not in rewritten] or found
    partitions = max(found[name] for name in as_they_are)
    ours = [maps_spec(topics.maps), *(repartition_spec(name, partitions) for name in rewritten.values())]
    if topics.dead_letter is not None:
        ours.append(dead_letter_spec(topics.dead_letter, partitions))
    ensure_topics(clients, ours, create=create)
    return partitions


def check_equal_counts(names: Mapping[str, str], found: Mapping[str, int], where: str) -> None:
    """Refuse input topics (role to name) that cannot be joined partition by partition.

    Raises
    ------
    BrokerError
        Their partition counts differ.
    """
    predictions, outcomes = found[names["predictions"]], found[names["outcomes"]]
    if predictions != outcomes:
        message = (
            f"topic {names['predictions']!r} has {predictions} partition{'s' * (predictions != 1)} and "
            f"{names['outcomes']!r} has {outcomes}; they are joined partition by partition"
        )
        hint = (
            "set join.repartition to outcomes or predictions, which writes that topic again keyed by id, or give both "
            "the same number, keyed by id with the same partitioner (adding partitions moves keys)"
        )
        raise BrokerError(message, where=where, hint=hint)


def check_state_kept(clients: KafkaClients, state: str, counts: str) -> None:
    """Refuse a state topic that was made anew while counts told under its old claims are still there.

    Raises
    ------
    BrokerError
        New claims would have lower numbers than the old ones, and what is told under them would count for nothing.
    """
    consumer = clients.maps_consumer()
    try:
        ends = {}
        for topic in (state, counts):
            parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
            ends[topic] = sum(consumer.end_offsets(parts, timeout_ms=admin_timeout_ms).values())
    except KafkaError as error:
        hint = "the broker answered before; check that the addresses it advertises can be reached from here"
        raise BrokerError(f"topic {state!r} cannot be read: {error}", where=clients.servers, hint=hint) from error
    finally:
        consumer.close(timeout_ms=admin_timeout_ms)
    if ends[counts] and not ends[state]:
        raise BrokerError(
            f"topic {state!r} is empty, and topic {counts!r} holds counts told under claims of a state: it was deleted "
            "and made anew, or topics.state was changed",
            where=clients.servers,
            hint="put topics.state back if it was changed, or change topics.counts too; else begin anew with "
            "`streamcal state reset`, or read the inputs again with `streamcal state rebuild`; "
            "both take the old counts back",
        )


def read_maps(clients: KafkaClients, topic: str) -> dict[str, list[bytes]]:
    """Every document of the maps topic up to its present end, by key, oldest first; tombstones withdraw.

    Raises
    ------
    BrokerError
        There is no such topic, or it cannot be read to its end in time.
    """
    consumer = clients.maps_consumer()
    try:
        numbers = sorted(consumer.partitions_for_topic(topic) or ())
        if not numbers:
            hint = "the daemon makes it at its first start; check topics.maps and kafka.bootstrap_servers"
            raise BrokerError(f"there is no topic {topic!r}", where=clients.servers, hint=hint)
        return _read_to_end(consumer, [TopicPartition(topic, number) for number in numbers])
    except AuthorizationError as error:
        raise BrokerError(
            f"this user lacks Read on topic {topic!r}", where=clients.servers, hint=f"grant it Read on topic {topic!r}"
        ) from error
    except KafkaError as error:
        hint = "the broker answered before; check that the addresses it advertises can be reached from here"
        raise BrokerError(f"topic {topic!r} cannot be read: {error}", where=clients.servers, hint=hint) from error
    finally:
        consumer.close(timeout_ms=admin_timeout_ms)


def _read_to_end(consumer: Any, parts: Sequence[TopicPartition]) -> dict[str, list[bytes]]:
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts, timeout_ms=admin_timeout_ms)
    documents: dict[str, list[bytes]] = {}
    for name, value in keyed_up_to(consumer, ends, _READ_MAPS_S):
        if value is None:
            documents.pop(name, None)
        else:
            documents.setdefault(name, []).append(value)
    return documents


def keyed_up_to(consumer: Any, ends: Mapping[Any, int], within_s: float) -> Iterator[tuple[str, bytes | None]]:
    """Key and value of every record from where a consumer stands up to `ends` of its parts.

    Raises
    ------
    KafkaError
        It takes longer than `within_s`, or the client fails.
    """
    deadline = time.monotonic() + within_s
    # By position, not by the last record seen: the end of a log may be a transaction marker.
    while any((consumer.position(part, timeout_ms=admin_timeout_ms) or 0) < end for part, end in ends.items()):
        if time.monotonic() > deadline:
            raise KafkaError(f"not read to its end within {within_s:.0f} s")
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                yield "" if record.key is None else record.key.decode(errors="replace"), record.value
