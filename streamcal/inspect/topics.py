"""What the broker tells of the topics, and what is wrong with that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamcal.inspect.findings import Finding, counted, problem, warning
from streamcal.runtime.durations import DAY_MS
from streamcal.runtime.logs.kafka_specs import (
    FoundTopic,
    TopicSpec,
    counts_spec,
    maps_spec,
    missing_rights,
    state_spec,
    topic_problems,
)

__all__ = [
    "GroupFacts",
    "TopicFacts",
    "about",
    "duration_text",
    "group_findings",
    "input_findings",
    "own_findings",
    "pair_findings",
]

_READ: Final = ("DESCRIBE", "READ")
_SPECS: Final[Mapping[str, Callable[[str, int], TopicSpec]]] = {"counts": counts_spec, "state": state_spec}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic as the broker tells of it.

    Attributes
    ----------
    replicas : int
        Fewest of any partition.
    settings : mapping
        Kafka's names to values; empty where the broker does not tell.
    settings_untold : str
        Why it does not.
    operations : frozenset of str or None
        What this user may do; None: not told.
    """

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str] = field(default_factory=dict)
    settings_untold: str = ""
    operations: frozenset[str] | None = None

    @property
    def readable(self) -> bool:
        """Whether nothing is known against reading it."""
        return not _missing(self.operations, _READ)

    @property
    def retention_ms(self) -> int | None:
        """How long records are kept; None where for ever or not told."""
        told = int(self.settings.get("retention.ms", "-1"))
        return told if told >= 0 and "delete" in self.settings.get("cleanup.policy", "delete") else None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The consumer group as the broker tells of it."""

    group_id: str
    members: int = 0
    operations: frozenset[str] | None = None
    denied: bool = False


def input_findings(facts: TopicFacts, key: str, horizon_ms: int, max_bytes: int) -> Iterator[Finding]:
    """What is wrong with an input topic; `key` is its key in the configuration."""
    what = f"topic {facts.name!r} ({key})"
    if missing := _missing(facts.operations, _READ):
        yield problem(f"this user may not {missing} {what}", f"grant it {missing} on topic {facts.name!r}")
    if facts.settings_untold:
        yield warning(
            f"the settings of {what} are not told: {facts.settings_untold}",
            "grant this user DESCRIBE_CONFIGS to have retention and cleanup checked",
        )
    kept = facts.retention_ms
    if kept is not None and kept < horizon_ms:
        yield problem(
            f"{what} keeps records for {duration_text(kept)}, less than the horizon of {duration_text(horizon_ms)}: "
            "after a restart, predictions whose outcomes still come may be gone",
            f"raise retention.ms of the topic to at least {2 * horizon_ms}, or lower join.horizon",
        )
    elif kept is not None and kept < 2 * horizon_ms:
        yield warning(
            f"{what} keeps records for {duration_text(kept)}, less than twice the horizon of "
            f"{duration_text(horizon_ms)}: a daemon that was down for the difference cannot catch up",
            f"raise retention.ms of the topic to at least {2 * horizon_ms}",
        )
    if "compact" in facts.settings.get("cleanup.policy", ""):
        yield warning(
            f"{what} is compacted: of several events of an id only the last is kept, so what is read again later "
            "differs from what was read first",
            f"set cleanup.policy=delete on topic {facts.name!r}",
        )
    largest = int(facts.settings.get("max.message.bytes", "0"))
    if largest > 2 * max_bytes:
        yield warning(
            f"{what} takes records of up to {largest:,} bytes, and those over {max_bytes:,} are rejected as too_large",
            "raise events.max_bytes if there are such records",
        )
    yield from _copies(facts, what)


def _copies(facts: TopicFacts, what: str) -> Iterator[Finding]:
    if facts.replicas == 1:
        yield warning(f"{what} has one replica: it is lost with its broker", "fine for a trial; replicate it otherwise")
    elif int(facts.settings.get("min.insync.replicas", "2")) < 2:
        yield warning(
            f"{what} has {facts.replicas} replicas and min.insync.replicas=1: a record can be acknowledged by one "
            "broker and lost with it",
            f"set min.insync.replicas=2 on topic {facts.name!r}",
        )


def pair_findings(predictions: TopicFacts, outcomes: TopicFacts) -> Iterator[Finding]:
    """What is wrong with the two input topics together."""
    if predictions.partitions != outcomes.partitions:
        yield problem(
            f"topic {predictions.name!r} has {counted(predictions.partitions, 'partition')} and {outcomes.name!r} has "
            f"{outcomes.partitions}; they are joined partition by partition",
            "write the smaller one again to a new topic with as many partitions, keyed by id (adding partitions to it "
            "moves keys), and set topics.predictions or topics.outcomes to it",
        )


def group_findings(group: GroupFacts) -> Iterator[Finding]:
    """Whether the daemon may join its group."""
    if group.denied or _missing(group.operations, ("READ",)):
        yield problem(f"this user may not READ group {group.group_id!r}", f"grant it READ on group {group.group_id!r}")


def own_findings(
    names: Mapping[str, str], facts: Mapping[str, TopicFacts], inputs: Mapping[str, str]
) -> Iterator[Finding]:
    """What is wrong with topics of ours that exist; by the rules the daemon starts with.

    Parameters
    ----------
    names : mapping
        Role to name of maps, counts and state.
    inputs : mapping
        Role to name of the input topics.
    """
    partitions = facts[inputs["predictions"]].partitions if inputs["predictions"] in facts else None
    for role, name in names.items():
        found = facts.get(name)
        if found is None or (partitions is None and role != "maps"):
            continue
        spec = maps_spec(name) if role == "maps" else _SPECS[role](name, partitions or 1)
        told = FoundTopic(found.partitions, found.replicas, found.settings, found.operations)
        for wrong in topic_problems(spec, told):
            yield problem(wrong.what, wrong.remedy)
        if missing := ", ".join(missing_rights(spec, told)):
            yield problem(f"this user may not {missing} topic {name!r} ({spec.key})", f"grant it {missing} on it")


def _missing(operations: frozenset[str] | None, wanted: tuple[str, ...]) -> str:
    if operations is None or "ALL" in operations:
        return ""
    return ", ".join(name for name in wanted if name not in operations)


def duration_text(ms: int) -> str:
    """A span for people, in its largest whole unit.

    >>> duration_text(90_000), duration_text(172_800_000), duration_text(1_500)
    ('90s', '2d', '1500ms')
    """
    for unit, size in (("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def about(ms: float) -> str:
    """A span for people, to two or three digits.

    >>> about(950), about(-61_000), about(5_000_000), about(200_000_000)
    ('0.95 s', '-61 s', '83.3 min', '55.6 h')
    """
    size = abs(ms)
    unit, name = next(
        (unit, name)
        for unit, name, most in (
            (1000, "s", 120),
            (60_000, "min", 120),
            (3_600_000, "h", 72),
            (DAY_MS, "days", math.inf),
        )
        if size < most * unit
    )
    return f"{ms / unit:.3g} {name}"
