"""Whether both topics are keyed so that an id's events meet in one partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamcal.inspect.columns import Table
from streamcal.inspect.findings import Finding, percent, problem, warning
from streamcal.inspect.pairing import Pairs
from streamcal.inspect.partitioners import likely_partitioner, partitioner_advice
from streamcal.inspect.sample import Sample

__all__ = ["KeyFacts", "key_facts", "key_findings"]


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The keys of one topic's sample.

    Attributes
    ----------
    present : float
        Share of the records that have a key.
    equal : float or None
        Share of the records whose key is their id; None where the id is read from the key, or nothing can be compared.
    partitioner : str or None
        As `likely_partitioner` tells.
    used : int
        Partitions with records.
    """

    present: float
    equal: float | None
    partitioner: str | None
    partitions: int
    used: int


def key_facts(sample: Sample, table: Table, id_path: str) -> KeyFacts:
    """Look at the keys of a sample."""
    ids, keys = table.columns.get(id_path), table.columns.get("$key")
    equal = None
    if ids is not None and keys is not None and id_path != "$key":
        both = [(i, k) for i, k in zip(ids.values, keys.values, strict=True) if i is not None]
        equal = sum(str(i) == k for i, k in both) / len(both) if both else None
    records = sample.records
    return KeyFacts(
        present=sum(record.key is not None for record in records) / len(records) if records else 0.0,
        equal=equal,
        partitioner=likely_partitioner(records, sample.partitions),
        partitions=sample.partitions,
        used=len({record.partition for record in records}),
    )


def key_findings(predictions: KeyFacts, outcomes: KeyFacts, pairs: Pairs) -> Iterator[Finding]:
    """What is wrong with the keys: pairs that lie apart first, for they decide."""
    if min(predictions.partitions, outcomes.partitions) < 2:  # one partition holds everything
        return
    found = len(pairs.delays_ms)
    if pairs.elsewhere:
        yield problem(
            f"{percent(pairs.elsewhere, found)} of the pairs found have their events in different partitions, where "
            f"they never meet: {_cause(predictions, outcomes)}",
            _remedy(predictions, outcomes),
        )
    elif not found and _differ(predictions, outcomes):
        what = f"the topics are partitioned differently: {_cause(predictions, outcomes)}"
        yield problem(what, _remedy(predictions, outcomes))
    for facts, name in ((predictions, "predictions"), (outcomes, "outcomes")):
        if facts.present < 1 and not pairs.elsewhere:
            yield warning(
                f"{percent(1 - facts.present, 1)} of the {name} have no key, so their partition is chance",
                "key both topics by the prediction id",
            )
        if facts.used == 1:
            yield warning(
                f"only one of the {facts.partitions} partitions of the {name} has records",
                "check that the producer keys them by the prediction id",
            )


def _differ(predictions: KeyFacts, outcomes: KeyFacts) -> bool:
    known = predictions.partitioner is not None and outcomes.partitioner is not None
    return known and predictions.partitioner != outcomes.partitioner


def _cause(predictions: KeyFacts, outcomes: KeyFacts) -> str:
    for facts, name in ((predictions, "predictions"), (outcomes, "outcomes")):
        if facts.present < 1:
            return f"{percent(1 - facts.present, 1)} of the {name} have no key"
        if facts.equal is not None and facts.equal < 1:
            return f"the key of {percent(1 - facts.equal, 1)} of the {name} is not their id"
    names = [facts.partitioner or "unknown" for facts in (predictions, outcomes)]
    if names[0] != names[1]:
        return (
            f"predictions were placed by {names[0]} ({partitioner_advice(names[0])}), outcomes by {names[1]} "
            f"({partitioner_advice(names[1])})"
        )
    return f"both seem to be placed by {names[0]} ({partitioner_advice(names[0])})"


def _remedy(predictions: KeyFacts, outcomes: KeyFacts) -> str:
    text = "key both topics by the prediction id, with the same partitioner"
    if "crc32" in {predictions.partitioner, outcomes.partitioner}:
        text += " (partitioner=murmur2_random in librdkafka's producers)"
    return f"{text}, and write the one that differs to a new topic"
