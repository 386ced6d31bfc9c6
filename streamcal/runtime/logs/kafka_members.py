"""Which member of a consumer group reads a topic, as the broker tells it."""

from __future__ import annotations

from kafka.errors import KafkaError

from streamcal.runtime.logs.kafka_clients import KafkaClients

__all__ = ["readers_of"]


def readers_of(clients: KafkaClients, group_id: str, topic: str) -> list[str]:
    """Members that were assigned a partition of `topic`, as "client on host"; empty where the broker does not tell.

    Raises
    ------
    BrokerError
        No broker answers.
    """
    admin = clients.admin()
    try:
        members = admin.describe_groups([group_id])[group_id].get("members") or ()
    except KafkaError:
        return []
    finally:
        admin.close()
    return [
        f"{member['client_id']} on {member['client_host'].lstrip('/')}"
        for member in members
        if topic in _topics(member.get("member_assignment"))
    ]


def _topics(assignment: object) -> set[str]:
    if not isinstance(assignment, dict):  # bytes where the client could not read them
        return set()
    assigned = assignment.get("assigned_partitions") or ()
    return {part["topic"] for part in assigned if part.get("partitions")}
