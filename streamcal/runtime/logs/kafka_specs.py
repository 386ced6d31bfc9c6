"""What each topic must be: how it is made, what is refused of one that exists, and which rights on it are needed.

Pure: what the broker said comes in as `FoundTopic`, problems go out as text. Asking the broker is `kafka_topics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

__all__ = [
    "CHECKED_SETTINGS",
    "LARGEST_LETTER",
    "LARGEST_PART",
    "FoundTopic",
    "Problem",
    "TopicSpec",
    "counts_spec",
    "dead_letter_spec",
    "input_spec",
    "maps_spec",
    "missing_rights",
    "repartition_spec",
    "state_spec",
    "topic_problems",
]

CHECKED_SETTINGS: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "max.message.bytes",
)
"""Settings of an existing topic that are asked for."""

LARGEST_LETTER: Final = 65 * 2**20
"""Largest record of a dead-letter topic made here: the largest value that is read at all, and room for headers."""


LARGEST_PART: Final = 32 * 2**20
"""Largest record of a counts topic made here, compressed: thousands of busy segments in one pane."""


USUAL_RECORD: Final = 1_000_000
"""What every topic that we write to has to take; brokers take a little more unless told otherwise."""


class Problem(NamedTuple):
    """What is wrong with a topic, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as the daemon needs it.

    Attributes
    ----------
    key : str
        Its key in the configuration (``topics.state``), or ``join.repartition``.
    partitions : int
        Made with so many.
    exact : bool
        An existing topic must have exactly so many.
    settings : mapping
        Made with these.
    where_known : mapping
        And with these, if the broker knows them; one that does not need not be told.
    cleanup : frozenset of str
        What ``cleanup.policy`` may be, each sorted and joined by commas; empty: not looked at.
    kept : bool
        Nothing may be deleted for its age or for size: deleting is ours to do.
    rights : tuple of str
        Operations (Kafka's names) this user needs on it.
    ours : bool
        Whether it may be made here, and must survive the loss of a broker.
    record_bytes : int
        It has to take records, and batches of them, of this size.
    """

    key: str
    name: str
    partitions: int = 1
    exact: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    where_known: Mapping[str, str] = field(default_factory=dict)
    cleanup: frozenset[str] = frozenset()
    kept: bool = False
    rights: tuple[str, ...] = ()
    ours: bool = True
    record_bytes: int = 0


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """An existing topic as the broker tells of it.

    Attributes
    ----------
    replicas : int
        Fewest of any partition.
    settings : mapping
        Those of `CHECKED_SETTINGS` that were told.
    operations : frozenset of str or None
        What this user may do with it; None: not told.
    """

    partitions: int
    replicas: int
    settings: Mapping[str, str] = field(default_factory=dict)
    operations: frozenset[str] | None = None


def input_spec(role: Literal["predictions", "outcomes"], name: str) -> TopicSpec:
    """A topic that others write."""
    return TopicSpec(f"topics.{role}", name, rights=("DESCRIBE", "READ"), ours=False)


def maps_spec(name: str) -> TopicSpec:
    """The maps in force: the last document per key is kept for ever."""
    return TopicSpec(
        "topics.maps",
        name,
        settings={"cleanup.policy": "compact"},
        cleanup=frozenset({"compact"}),
        rights=("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"),
        record_bytes=USUAL_RECORD,
    )


def counts_spec(name: str, partitions: int) -> TopicSpec:
    """Absolute counts: the last record per key is kept for ever."""
    return TopicSpec(
        "topics.counts",
        name,
        partitions=partitions,
        exact=True,
        settings={"cleanup.policy": "compact", "max.message.bytes": str(LARGEST_PART)},
        cleanup=frozenset({"compact"}),
        rights=("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"),
        record_bytes=USUAL_RECORD,
    )


def state_spec(name: str, partitions: int) -> TopicSpec:
    """The log of what happened: deleted below a snapshot by its owner, never for age, size or key."""
    return TopicSpec(
        "topics.state",
        name,
        partitions=partitions,
        exact=True,
        settings={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        cleanup=frozenset({"delete"}),
        kept=True,
        rights=("DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"),
        record_bytes=USUAL_RECORD,
    )


def dead_letter_spec(name: str, partitions: int) -> TopicSpec:
    """Rejected events: one record per event (by key), deleted for age as the broker does by default."""
    return TopicSpec(
        "topics.dead_letter",
        name,
        partitions=partitions,
        settings={"cleanup.policy": "compact,delete", "max.message.bytes": str(LARGEST_LETTER)},
        rights=("DESCRIBE", "DESCRIBE_CONFIGS", "WRITE"),
    )


def repartition_spec(name: str, partitions: int) -> TopicSpec:
    """Events keyed anew: deleted once they were read, never for their age, since their times may be of years past."""
    return TopicSpec(
        "join.repartition",
        name,
        partitions=partitions,
        exact=True,
        settings={
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "message.timestamp.type": "CreateTime",
            "max.message.bytes": str(LARGEST_LETTER),
        },
        # Brokers from 3.6 on refuse times an hour ahead of theirs; what the first topic took must pass here too.
        where_known={"message.timestamp.after.max.ms": str(2**63 - 1)},
        cleanup=frozenset({"delete"}),
        kept=True,
        rights=("DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"),
    )


def topic_problems(spec: TopicSpec, found: FoundTopic) -> Iterator[Problem]:
    """What is wrong with an existing topic; nothing the broker did not tell of is wrong."""
    what = f"topic {spec.name!r} ({spec.key})"
    if spec.exact and found.partitions != spec.partitions:
        yield Problem(
            f"{what} has {found.partitions} partition{'s' * (found.partitions != 1)} and needs {spec.partitions}",
            "what it holds belongs to another partition count; start with a new kafka.group_id, or delete the topic "
            "and begin without what it holds",
        )
    policy = _sorted(found.settings.get("cleanup.policy", ""))
    if spec.cleanup and policy and policy not in spec.cleanup:
        wanted = min(spec.cleanup)
        yield Problem(
            f"{what} has cleanup.policy={policy} and needs {wanted}", _alter(spec.name, "cleanup.policy", wanted)
        )
    if spec.kept and policy == "delete":  # another policy is a problem of its own
        for setting in ("retention.ms", "retention.bytes"):
            if found.settings.get(setting, "-1") != "-1":
                text = f"{what} has {setting}={found.settings[setting]}, which deletes what is still needed"
                yield Problem(text, _alter(spec.name, setting, "-1"))
    if int(found.settings.get("max.message.bytes", spec.record_bytes)) < spec.record_bytes:
        yield Problem(
            f"{what} has max.message.bytes={found.settings['max.message.bytes']}: what is written there can be larger",
            _alter(spec.name, "max.message.bytes", str(spec.record_bytes)),
        )
    if spec.ours and found.replicas > 1 and found.settings.get("min.insync.replicas") in {"0", "1"}:
        yield Problem(
            f"{what} has {found.replicas} replicas and min.insync.replicas={found.settings['min.insync.replicas']}: "
            "a record could be acknowledged by one broker and lost with it",
            _alter(spec.name, "min.insync.replicas", "2"),
        )


def missing_rights(spec: TopicSpec, found: FoundTopic) -> tuple[str, ...]:
    """Operations this user lacks, sorted."""
    if found.operations is None or "ALL" in found.operations:
        return ()
    return tuple(sorted(set(spec.rights) - found.operations))


def _sorted(policy: str) -> str:
    return ",".join(sorted(part.strip() for part in policy.split(",")))


def _alter(topic: str, setting: str, value: str) -> str:
    value = f"[{value}]" if "," in value else value
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {setting}={value}"
