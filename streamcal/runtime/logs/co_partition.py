"""Whether both topics put an id into the same partition: judged by a sample of 1 in 1,000, for the whole run.

What counts is the id, not the key: a record is in the right place if the rule its topic follows says so for its id. A
topic that follows no known rule of the id (keyed by a customer, say) can still be right; then only ids seen in both
samples decide.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import structlog

from streamcal.runtime.logs.kafka_specs import Problem
from streamcal.runtime.logs.partitioner import PARTITIONERS, UNKNOWN, WRITERS, likely_rule
from streamcal.serve.process_counters import ProcessCounters
from streamcal.stream.events import TOPICS, Record

__all__ = ["EVERY", "CoPartition"]

EVERY: Final = 1000
"""One record in so many is looked at."""

_MOST: Final = 2000
"""Ids kept per topic: a wrong rule with two partitions agrees on half of them, give or take 50."""

_JUDGE_EVERY: Final = 200
"""New ids after which a topic's rule is looked for again: hashing a sample of 2,000 takes 15 ms."""

_FEWEST_SHARED: Final = 5
"""Ids seen in both topics below which they decide nothing."""

log = structlog.get_logger(__name__)


class CoPartition:
    """Watches where ids are.

    Parameters
    ----------
    ids : mapping
        Role to a reader of the ids of records.
    partitions : int
        Of either topic.
    names : mapping
        Role to the name of the topic.
    rewritten : collection of str
        Roles whose topic we write ourselves, by murmur2 of the id.
    """

    def __init__(
        self,
        ids: Mapping[str, Callable[[Sequence[Record]], Sequence[str | None]]],
        partitions: int,
        names: Mapping[str, str],
        counters: ProcessCounters | None = None,
        *,
        rewritten: Collection[str] = (),
    ) -> None:
        self._ids = ids
        self._partitions = partitions
        self._names = names
        self._counters = counters or ProcessCounters()
        self._placed: dict[str, OrderedDict[bytes, int]] = {role: OrderedDict() for role in TOPICS}
        self._keyed: dict[str, Counter[str]] = {role: Counter() for role in TOPICS}
        self._rules: dict[str, tuple[int, str | None]] = dict.fromkeys(TOPICS, (0, None))
        self._rewritten = frozenset(rewritten)
        self._warned = False

    def look(self, role: str, partition: int, records: Sequence[Record]) -> None:
        """Take these records into the sample."""
        if self._partitions < 2:
            return
        placed, name = self._placed[role], self._names[role]
        rule = PARTITIONERS.get(self.rule(role) or "")
        for record, text in zip(records, self._ids[role](records), strict=True):
            if text is None:
                continue
            key = text.encode()
            self._keyed[role]["none" if record.key is None else "id" if record.key == key else "other"] += 1
            if rule is not None:
                self._counters.add("streamcal_partitioner_checked", (name,))
                if rule(key) % self._partitions != partition:
                    self._counters.add("streamcal_partitioner_mismatch", (name,))
            placed[key] = partition
            placed.move_to_end(key)
            if len(placed) > _MOST:
                placed.popitem(last=False)

    def sample(self, role: str, partition: int, records: Sequence[Record]) -> None:
        """Take one record in `EVERY` of consecutive ones into the sample, and warn once if the topics disagree."""
        if not records or self._partitions < 2:
            return
        first = -records[0].offset % EVERY
        chosen = records[first::EVERY]
        if not chosen:
            return
        self.look(role, partition, chosen)
        if not self._warned and (problem := self.problem()) is not None:
            self._warned = True
            log.error("the topics are not partitioned alike", what=problem.what, remedy=problem.remedy)

    def rule(self, role: str) -> str | None:
        """The rule by which the topic places ids, as `likely_rule` tells."""
        if role in self._rewritten:
            return "murmur2"
        seen, (judged, rule) = self._keyed[role].total(), self._rules[role]
        if rule is None or seen - judged >= _JUDGE_EVERY:
            rule = likely_rule(self._placed[role], self._partitions)
            self._rules[role] = seen, rule
        return rule

    def problem(self) -> Problem | None:
        """What is clearly wrong, if anything."""
        predictions, outcomes = (self._placed[role] for role in TOPICS)
        shared = predictions.keys() & outcomes.keys()
        apart = sum(predictions[key] != outcomes[key] for key in shared)
        rules = [self.rule(role) for role in TOPICS]
        if len(shared) >= _FEWEST_SHARED:
            # Ids that were seen in both decide, whatever the rules look like.
            if apart * 5 < len(shared):
                return None
            cause = f"{apart} of {len(shared)} ids seen in both are in different partitions, where they never meet"
        elif None in rules or rules[0] == rules[1]:
            return None
        else:
            cause = "an id's events are in different partitions, where they never meet"
        told = "; ".join(
            f"{self._names[role]!r} {self._told(role, rule)}" for role, rule in zip(TOPICS, rules, strict=True)
        )
        return Problem(f"{cause}: {told}", self._remedy(rules))

    def _told(self, role: str, rule: str | None) -> str:
        keyed = self._keyed[role]
        (most, count), *_ = keyed.most_common(1) or [("id", 0)]
        if role in self._rewritten:
            return "is written again by murmur2 of the id"
        if most == "none":
            return f"has no keys ({count} of {keyed.total()} records sampled)"
        if most == "other":
            return f"is keyed by something else than its id ({count} of {keyed.total()} records sampled)"
        return "is placed by " + WRITERS[rule or UNKNOWN]

    def _remedy(self, rules: Sequence[str | None]) -> str:
        wrong = [role for role, rule in zip(TOPICS, rules, strict=True) if rule != "murmur2"]
        value = wrong[0] if len(wrong) == 1 and not self._rewritten else "both"
        return f"set join.repartition: {value}, or key both topics by id with the same partitioner"
