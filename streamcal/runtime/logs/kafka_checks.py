"""Topics and rights checked against what is needed, and missing topics of ours made.

All that is wrong is said at once, each with what to do. What the broker does not tell (one without an authorizer, a
proxy without settings) is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    AuthorizationError,
    GroupAuthorizationFailedError,
    InvalidConfigurationError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)

from streamcal.errors import BrokerError
from streamcal.runtime.logs.kafka_client_faults import known_id
from streamcal.runtime.logs.kafka_clients import KafkaClients, admin_timeout_ms
from streamcal.runtime.logs.kafka_specs import (
    CHECKED_SETTINGS,
    FoundTopic,
    Problem,
    TopicSpec,
    missing_rights,
    topic_problems,
)

__all__ = ["check_group", "ensure_topics", "partition_counts", "topic_ids"]

_REPLICAS: Final = 3
"""Of topics made here, where there are so many brokers: one may be away while writes still wait for two."""

log = structlog.get_logger(__name__)


def ensure_topics(clients: KafkaClients, specs: Sequence[TopicSpec], *, create: bool) -> dict[str, int]:
    """Check topics, and make those of ours that are missing.

    Parameters
    ----------
    clients : KafkaClients
    specs : sequence of TopicSpec
    create : bool
        Whether missing ones may be made; inputs never are.

    Returns
    -------
    dict
        Partition count by topic.

    Raises
    ------
    BrokerError
        Names everything that is wrong, with what to do.
    """
    admin = clients.admin()
    try:
        found = _found(admin, specs, clients.servers)
        missing = [spec for spec in specs if spec.name not in found]
        if refused := [_missing(spec) for spec in missing if not spec.ours or not create]:
            raise _refusal(refused, clients.servers)
        for spec in missing:
            _create(admin, spec, clients)
        if missing:
            found = _found(admin, specs, clients.servers)
        problems = [
            problem for spec in specs if spec.name in found for problem in topic_problems(spec, found[spec.name])
        ]
        if problems:
            raise _refusal(problems, clients.servers)
        _warn_of_single_copies(specs, found)
        return {name: topic.partitions for name, topic in found.items()}
    finally:
        admin.close()


def partition_counts(clients: KafkaClients, names: Iterable[str]) -> dict[str, int]:
    """Partition counts of those topics that exist, without any check.

    Raises
    ------
    BrokerError
        The broker does not tell.
    """
    admin = clients.admin()
    try:
        described = _described(admin, list(names), clients.servers)
    finally:
        admin.close()
    return {name: len(topic["partitions"]) for name, topic in described.items() if topic["partitions"]}


def topic_ids(clients: KafkaClients, names: Mapping[str, str]) -> dict[str, str]:
    """Ids that topics (role to name) have as long as they are not deleted and made anew; none of older brokers.

    Raises
    ------
    BrokerError
        The broker does not tell of the topics.
    """
    admin = clients.admin()
    try:
        described = _described(admin, list(names.values()), clients.servers)
    finally:
        admin.close()
    ids = {role: known_id(described[name].get("topic_id")) for role, name in names.items() if name in described}
    return {role: known for role, known in ids.items() if known is not None}


def check_group(clients: KafkaClients, group_id: str) -> None:
    """Refuse to start where this user may not join the group: the client would only say so at the first poll.

    Raises
    ------
    BrokerError
        Names the missing right.
    """
    hint = f"grant it Read on group {group_id!r} (docs/how-to/security.md)"
    problem = Problem(f"this user lacks Read on group {group_id!r}", hint)
    admin = clients.admin()
    try:
        told = admin.describe_groups([group_id])[group_id]
    except GroupAuthorizationFailedError as error:
        raise _refusal([problem], clients.servers) from error
    except KafkaError as error:
        log.info("the rights on the group are not told", group=group_id, error=str(error))
        return
    finally:
        admin.close()
    # A group that nobody has joined yet is an error to newer brokers, and its operations are told all the same.
    operations = told.get("authorized_operations")
    denied = "AuthorizationFailed" in str(told.get("error") or "")
    if denied or (operations and "READ" not in operations):
        raise _refusal([problem], clients.servers)


def _found(admin: Any, specs: Sequence[TopicSpec], where: str) -> dict[str, FoundTopic]:
    """Those of the topics that exist; refuses at once where rights are missing, since nothing else is known then."""
    described = _described(admin, [spec.name for spec in specs], where)
    found, lacking = {}, []
    for spec in specs:
        told = described.get(spec.name, {})
        if told.get("error_code") == TopicAuthorizationFailedError.errno:
            lacking.append(_lacking(spec, spec.rights))
        elif told.get("partitions"):
            operations = told.get("authorized_operations")
            topic = FoundTopic(
                partitions=len(told["partitions"]),
                replicas=min(len(part["replica_nodes"]) for part in told["partitions"]),
                operations=frozenset(operations) if operations else None,
            )
            if missing := missing_rights(spec, topic):
                lacking.append(_lacking(spec, missing))
            found[spec.name] = topic
    if lacking:
        raise _refusal(lacking, where)
    return _with_settings(admin, found, [spec.name for spec in specs if spec.ours and spec.name in found], where)


def _described(admin: Any, names: Sequence[str], where: str) -> dict[str, dict[str, Any]]:
    try:
        return {topic["name"]: topic for topic in admin.describe_topics(list(names))}
    except KafkaError as error:
        hint = "check kafka.bootstrap_servers and that this user may describe the topics"
        raise BrokerError(f"the topics cannot be listed: {error}", where=where, hint=hint) from error


def _with_settings(
    admin: Any, found: Mapping[str, FoundTopic], names: Sequence[str], where: str
) -> dict[str, FoundTopic]:
    if not names:
        return dict(found)
    asked = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(CHECKED_SETTINGS)) for name in names]
    try:
        told = admin.describe_configs(asked, config_filter="all").get("topic", {})
    except KafkaError as error:
        hint = "check that this user has DESCRIBE_CONFIGS on them"
        raise BrokerError(f"the settings of the topics cannot be read: {error}", where=where, hint=hint) from error
    settings = {name: {key: held["value"] for key, held in told.get(name, {}).items()} for name in names}
    return {
        name: FoundTopic(topic.partitions, topic.replicas, settings.get(name, {}), topic.operations)
        for name, topic in found.items()
    }


def _create(admin: Any, spec: TopicSpec, clients: KafkaClients) -> None:
    try:
        replicas = clients.replication_factor or min(_REPLICAS, len(admin.describe_cluster()["brokers"]))
        settings = {**spec.settings, **({"min.insync.replicas": "2"} if replicas > 1 else {})}
        wanted = {"num_partitions": spec.partitions, "replication_factor": replicas}
        try:
            topic = {spec.name: {**wanted, "configs": {**settings, **spec.where_known}}}
            admin.create_topics(topic, timeout_ms=admin_timeout_ms, wait_for_metadata=True)
        except InvalidConfigurationError:
            admin.create_topics(
                {spec.name: {**wanted, "configs": settings}}, timeout_ms=admin_timeout_ms, wait_for_metadata=True
            )
    except TopicAlreadyExistsError:
        return  # another process was faster; it is checked like any other
    except AuthorizationError as error:
        raise _refusal([_not_created(spec, "this user may not")], clients.servers) from error
    except KafkaError as error:
        raise _refusal([_not_created(spec, str(error))], clients.servers) from error
    log.info("topic created", topic=spec.name, partitions=spec.partitions, replicas=replicas, **spec.settings)


def _missing(spec: TopicSpec) -> Problem:
    remedy = f"create it, or set {spec.key} to the topic that holds them"
    return Problem(f"there is no topic {spec.name!r}", f"{remedy}" if not spec.ours else _made_by_hand(spec))


def _not_created(spec: TopicSpec, why: str) -> Problem:
    remedy = f"grant this user Create on topic {spec.name!r}, or {_made_by_hand(spec)}"
    return Problem(f"topic {spec.name!r} ({spec.key}) cannot be created: {why}", remedy)


def _made_by_hand(spec: TopicSpec) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in spec.settings.items())
    return (
        f"create it with {spec.partitions} partition{'s' * (spec.partitions != 1)}, {settings} (and "
        "min.insync.replicas=2 where it is replicated)"
    )


def _lacking(spec: TopicSpec, operations: Sequence[str]) -> Problem:
    # As `kafka-acls --operation` writes them; most others imply Describe.
    names = [name.title().replace("_", "") for name in operations]
    listed = ", ".join([name for name in names if name != "Describe"] or names)
    what = f"this user lacks {listed} on topic {spec.name!r} ({spec.key})"
    return Problem(what, f"grant it {listed} on topic {spec.name!r} (docs/how-to/security.md)")


def _refusal(problems: Sequence[Problem], where: str) -> BrokerError:
    hint = "; ".join(dict.fromkeys(problem.remedy for problem in problems))
    return BrokerError("; ".join(problem.what for problem in problems), where=where, hint=hint)


def _warn_of_single_copies(specs: Sequence[TopicSpec], found: Mapping[str, FoundTopic]) -> None:
    single = [spec.name for spec in specs if spec.ours and spec.name in found and found[spec.name].replicas == 1]
    if single:
        log.warning("topics with one replica are lost with their broker", topics=single)
