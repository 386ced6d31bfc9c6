"""What is refused of an existing topic, each with the command that mends it."""

from __future__ import annotations

from typing import Any

import pytest

from streamcal.runtime.logs.kafka_specs import (
    FoundTopic,
    TopicSpec,
    counts_spec,
    dead_letter_spec,
    input_spec,
    maps_spec,
    missing_rights,
    repartition_spec,
    state_spec,
    topic_problems,
)


def found(partitions: int = 4, replicas: int = 1, **settings: Any) -> FoundTopic:
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return FoundTopic(partitions, replicas, named)


FINE = [
    (maps_spec("t"), found(1, cleanup_policy="compact")),
    (maps_spec("t"), found(9, 3, cleanup_policy="compact", min_insync_replicas=2)),
    (counts_spec("t", 4), found(4, cleanup_policy="compact")),
    (state_spec("t", 4), found(4, cleanup_policy="delete", retention_ms=-1, retention_bytes=-1)),
    (state_spec("t", 4), found(4)),  # nothing told is nothing wrong
    (repartition_spec("t", 4), found(4, 2, cleanup_policy="delete", retention_ms=-1, min_insync_replicas=2)),
    (dead_letter_spec("t", 4), found(1, cleanup_policy="compact,delete", retention_ms=604800000)),
    (input_spec("outcomes", "t"), found(7, 3, cleanup_policy="compact", min_insync_replicas=1)),
]


@pytest.mark.parametrize(("spec", "topic"), FINE)
def test_a_topic_as_it_is_needed_has_no_problem(spec: TopicSpec, topic: FoundTopic) -> None:
    assert list(topic_problems(spec, topic)) == []


ADD = "kafka-configs --alter --entity-type topics --entity-name t --add-config "
COMPACT, KEPT = {"cleanup_policy": "compact"}, {"cleanup_policy": "delete"}
WRONG = [
    (maps_spec("t"), found(1, **KEPT), "cleanup.policy=delete and needs compact", "cleanup.policy=compact"),
    (maps_spec("t"), found(1, cleanup_policy="delete,compact"), "cleanup.policy=compact,delete", "=compact"),
    (counts_spec("t", 4), found(4, **KEPT), "needs compact", "cleanup.policy=compact"),
    (state_spec("t", 4), found(4, **COMPACT), "needs delete", "cleanup.policy=delete"),
    (state_spec("t", 4), found(4, **KEPT, retention_ms=604800000), "retention.ms=604800000", "retention.ms=-1"),
    (state_spec("t", 4), found(4, **KEPT, retention_bytes=10), "retention.bytes=10", "retention.bytes=-1"),
    (state_spec("t", 4), found(4, **KEPT, max_message_bytes=999_999), "bytes=999999", "max.message.bytes=1000000"),
    (counts_spec("t", 4), found(4, **COMPACT, max_message_bytes=100), "bytes=100", "max.message.bytes=1000000"),
    (maps_spec("t"), found(1, **COMPACT, max_message_bytes=100), "bytes=100", "max.message.bytes=1000000"),
    (
        maps_spec("t"),
        found(1, 3, **COMPACT, min_insync_replicas=1),
        "3 replicas and min.insync.replicas=1",
        "min.insync.replicas=2",
    ),
]


@pytest.mark.parametrize(("spec", "topic", "what", "remedy"), WRONG)
def test_what_is_wrong_is_said_with_what_mends_it(spec: TopicSpec, topic: FoundTopic, what: str, remedy: str) -> None:
    (problem,) = topic_problems(spec, topic)
    assert what in problem.what
    assert f"'t' ({spec.key})" in problem.what
    assert problem.remedy.startswith(ADD)
    assert problem.remedy.endswith(remedy)


@pytest.mark.parametrize(("spec", "there"), [(counts_spec("t", 4), 3), (state_spec("t", 1), 2)])
def test_another_partition_count_is_refused_with_both(spec: TopicSpec, there: int) -> None:
    (problem,) = topic_problems(spec, found(there))
    assert f"has {there} partition" in problem.what
    assert f"needs {spec.partitions}" in problem.what
    assert "new kafka.group_id" in problem.remedy


def test_all_that_is_wrong_is_said_at_once() -> None:
    topic = found(3, 3, cleanup_policy="delete", retention_ms=1, retention_bytes=1, min_insync_replicas=1)
    assert len(list(topic_problems(state_spec("t", 4), topic))) == 4


def test_rights_are_missing_only_where_the_broker_told_of_rights() -> None:
    assert missing_rights(maps_spec("t"), FoundTopic(1, 1)) == ()
    assert missing_rights(maps_spec("t"), FoundTopic(1, 1, {}, frozenset({"ALL"}))) == ()
    told = frozenset({"READ", "DESCRIBE", "CREATE"})
    assert missing_rights(maps_spec("t"), FoundTopic(1, 1, {}, told)) == ("DESCRIBE_CONFIGS", "WRITE")
