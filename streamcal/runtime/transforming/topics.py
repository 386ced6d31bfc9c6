"""What must be true of both topics before, and while, predictions are served from one to the other."""

from __future__ import annotations

from typing import Any

from kafka.errors import KafkaError

from streamcal.errors import BrokerError
from streamcal.runtime.transforming.clients import TransformClients
from streamcal.runtime.transforming.plan import Plan

__all__ = ["check_counts", "check_topics"]


def check_topics(clients: TransformClients, plan: Plan) -> None:
    """Refuse topics that do not exist or cannot be mapped partition by partition.

    Raises
    ------
    BrokerError
        A topic is missing, the partition counts differ, or the broker does not tell.
    """
    admin = clients.admin()
    try:
        described: list[dict[str, Any]] = admin.describe_topics([plan.input, plan.output])
    except KafkaError as error:
        hint = "check kafka.bootstrap_servers and that this user may describe the topics"
        raise BrokerError(f"the topics cannot be listed: {error}", where=clients.servers, hint=hint) from error
    finally:
        admin.close()
    found = {topic["name"]: len(topic["partitions"]) for topic in described if topic["partitions"]}
    for key, name in (("input", plan.input), ("output", plan.output)):
        if name not in found:
            hint = f"create it, with as many partitions as the other, or set transform.{key} to another"
            raise BrokerError(f"there is no topic {name!r}", where=clients.servers, hint=hint)
    check_counts(plan, found[plan.input], found[plan.output], clients.servers)


def check_counts(plan: Plan, read: int, written: int, where: str) -> None:
    """Refuse partition counts that differ.

    Raises
    ------
    BrokerError
        They do.
    """
    if read != written:
        message = (
            f"topic {plan.input!r} has {read} partition{'s' * (read != 1)} and {plan.output!r} has {written}; "
            "a record keeps its partition"
        )
        hint = "give both the same number; start again once both have it"
        raise BrokerError(message, where=where, hint=hint)
