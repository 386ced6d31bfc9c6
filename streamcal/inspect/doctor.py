"""`streamcal doctor`: everything there is to say about a configuration and the topics it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from streamcal.errors import BrokerError
from streamcal.inspect.broker import TailReader, describe, describe_group
from streamcal.inspect.collecting import collect
from streamcal.inspect.columns import Table, table
from streamcal.inspect.fields import Looked, field_rows, read_paths, rejection_findings
from streamcal.inspect.findings import Finding, counted, percent, problem
from streamcal.inspect.joined import joined_findings, joined_rows, stream_findings
from streamcal.inspect.keys import KeyFacts, key_facts, key_findings
from streamcal.inspect.pairing import Decoded, Pairs, decode, pair
from streamcal.inspect.partitioners import partitioner_advice
from streamcal.inspect.sample import Sample
from streamcal.inspect.topics import (
    GroupFacts,
    TopicFacts,
    duration_text,
    group_findings,
    input_findings,
    own_findings,
    pair_findings,
)
from streamcal.runtime.config import Config
from streamcal.runtime.logs.kafka_clients import KafkaClients
from streamcal.runtime.wiring import engine_settings
from streamcal.settings import EngineSettings

__all__ = ["Diagnosis", "diagnose", "examine"]

Rows = list[tuple[str, str]]

_SHOWN_RIGHTS: Final = ("DESCRIBE", "READ", "WRITE")


@dataclass(slots=True)
class Diagnosis:
    """What was seen and what is wrong.

    Attributes
    ----------
    sections : dict
        Title to rows of (name, what was seen).
    findings : list of Finding
        Problems before warnings.
    numbers : dict
        The figures of the sample, for programs; what is not known is left out.
    """

    sections: dict[str, Rows] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def problems(self) -> list[Finding]:
        """The findings that keep figures from being right."""
        return [finding for finding in self.findings if finding.level == "problem"]

    def add(self, title: str, rows: Iterable[tuple[str, str]], findings: Iterable[Finding] = ()) -> None:
        """Add a section and what is wrong in it."""
        self.sections[title] = list(rows)
        self.findings = sorted([*self.findings, *findings], key=lambda finding: finding.level != "problem")

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "sections": {title: dict(rows) for title, rows in self.sections.items()},
            "findings": [asdict(finding) for finding in self.findings],
            "numbers": self.numbers,
        }


def diagnose(config: Config, *, records: int, seconds: float) -> Diagnosis:
    """Look at broker, topics and the ends of both input topics.

    Parameters
    ----------
    config : Config
        Loaded for Kafka.
    records : int
        Records of each topic to begin with.
    seconds : float
        Longest time to read.

    Raises
    ------
    BrokerError
        No broker answers. What fails later is a problem of the diagnosis.
    ConfigError
        A secret file cannot be read.
    """
    clients = KafkaClients(config.kafka)
    found = Diagnosis()
    names = config.topics
    inputs = {"predictions": names.predictions, "outcomes": names.outcomes}
    ours = {role: name for role in ("maps", "counts", "state") if (name := getattr(names, role)) is not None}
    facts, hidden = describe(clients, [*inputs.values(), *ours.values()])
    group = describe_group(clients, config.kafka.group_id or "")
    findings = [
        *(_hidden(f"topics.{role}", name) for role, name in {**inputs, **ours}.items() if name in hidden),
        *_topic_findings(config, {role: name for role, name in inputs.items() if name not in hidden}, facts),
        *own_findings(ours, facts, inputs),
        *group_findings(group),
    ]
    found.add("kafka", _topic_rows({**inputs, **ours}, facts, group, clients.servers), findings)
    if all(name in facts and facts[name].readable for name in inputs.values()):
        try:
            _look(found, config, clients, records, seconds)
        except BrokerError as error:
            where = f"{error.where}: " if error.where else ""
            found.add("sample", [("read", "nothing")], [problem(f"{where}{error.what}", error.hint)])
    return found


def _hidden(key: str, name: str) -> Finding:
    what = f"this user may not DESCRIBE topic {name!r} ({key}), so whether it is there is not known"
    return problem(what, f"grant it the rights of docs/how-to/security.md on topic {name!r}")


def _topic_findings(config: Config, inputs: Mapping[str, str], facts: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    for role, name in inputs.items():
        if name not in facts:
            yield problem(f"there is no topic {name!r}", f"create it, or set topics.{role} to the right one")
            continue
        yield from input_findings(facts[name], f"topics.{role}", config.longest_horizon_ms, config.events.max_bytes)
    if not _repartitioned(config) and len(inputs) == 2 and all(name in facts for name in inputs.values()):
        yield from pair_findings(facts[inputs["predictions"]], facts[inputs["outcomes"]])


def _repartitioned(config: Config) -> bool:
    """Whether events are keyed anew before they are joined, so that their own keys do not matter."""
    return str(config.join.repartition) != "none"


def _topic_rows(
    names: Mapping[str, str], facts: Mapping[str, TopicFacts], group: GroupFacts, servers: str
) -> Iterator[tuple[str, str]]:
    yield "brokers", servers
    for role, name in names.items():
        yield role, f"{name}: {_topic_text(facts[name])}" if name in facts else f"{name}: not there yet"
    yield "group", f"{group.group_id}: {counted(group.members, 'member')}"
    told = [held for held in facts.values() if held.operations is not None]
    yield (
        "rights",
        (
            "this user may " + "; ".join(f"{_operations(held)} {held.name}" for held in told)
            if told
            else "the broker does not tell what this user may do"
        ),
    )


def _operations(facts: TopicFacts) -> str:
    return ", ".join(name for name in _SHOWN_RIGHTS if name in (facts.operations or ())) or "nothing with"


def _topic_text(facts: TopicFacts) -> str:
    text = f"{counted(facts.partitions, 'partition')}, {counted(facts.replicas, 'replica')}"
    if not facts.settings:
        return text
    kept = facts.retention_ms
    policy = facts.settings.get("cleanup.policy", "unknown")
    insync = facts.settings.get("min.insync.replicas", "unknown")
    age = "kept for ever" if kept is None else f"kept {duration_text(kept)}"
    return f"{text} (min.insync {insync}), cleanup {policy}, {age}"


def _look(found: Diagnosis, config: Config, clients: KafkaClients, records: int, seconds: float) -> None:
    settings = engine_settings(config)

    def matched(predictions: Sample, outcomes: Sample) -> float:
        decoded = decode(settings, predictions, outcomes)
        return len(pair(decoded, predictions_complete=True).delays_ms) / max(1, len(decoded.outcomes.row))

    with closing(TailReader(clients, seconds)) as reader:
        names = (config.topics.predictions, config.topics.outcomes)
        samples = collect(reader, names, records, matched)
    examine(found, config, settings, samples)


def examine(found: Diagnosis, config: Config, settings: EngineSettings, samples: tuple[Sample, Sample]) -> None:
    """Add what there is to say about samples of predictions and outcomes.

    Parameters
    ----------
    settings : EngineSettings
        Made of `config`; its decoders read the samples.
    """
    decoded = decode(settings, *samples)
    pairs = pair(decoded, predictions_complete=samples[0].complete)
    looked = _looked(config, settings, samples, decoded)
    keys = [key_facts(one.sample, one.table, one.paths["id"]) for one in looked]
    for one, other, held in zip(looked, reversed(looked), keys, strict=True):
        _add_topic(found, one, other, held, decoded)
    findings = list(joined_findings(looked[0], looked[1], decoded, pairs))
    if not _repartitioned(config):
        findings += key_findings(keys[0], keys[1], pairs)
    found.add("together", joined_rows(pairs, positives_only=config.join.labels == "positives_only"), findings)
    found.numbers |= _numbers(looked, pairs)


def _looked(
    config: Config, settings: EngineSettings, samples: tuple[Sample, Sample], decoded: Decoded
) -> tuple[Looked, Looked]:
    forms = (settings.prediction_format, settings.outcome_format)
    tables: Sequence[Table] = [table(one.records, form) for one, form in zip(samples, forms, strict=True)]
    taken, known = decoded.predictions, decoded.outcomes
    sides = (
        ("prediction", len(np.unique(taken.row)), taken.ignored, decoded.prediction_rejections),
        ("outcome", len(np.unique(known.row)), known.ignored, decoded.outcome_rejections),
    )
    first, second = (
        Looked(role, sample, held, config, read_paths(config, role), rejected, accepted, ignored)
        for (role, accepted, ignored, rejected), sample, held in zip(sides, samples, tables, strict=True)
    )
    return first, second


def _add_topic(found: Diagnosis, one: Looked, other: Looked, keys: KeyFacts, decoded: Decoded) -> None:
    records = len(one.sample.records)
    if not records:
        empty = problem(f"the topic of the {one.topic} holds no records", "check the name, or start the producer")
        found.add(one.topic, [("sample", "the topic holds no records")], [empty])
        return
    whole = "all there are" if one.sample.complete else "from the end of the topic"
    rejected = ", ".join(f"{percent(n, records)} {reason}" for reason, n in one.rejected.most_common()) or "none"
    rows: Rows = [
        ("sample", f"{counted(records, 'record')}, {whole}"),
        ("accepted", f"{percent(one.accepted, records)}, ignored {percent(one.ignored, records)}, rejected {rejected}"),
        ("keys", _key_text(keys)),
        *field_rows(one),
    ]
    if one.role == "prediction":
        rows.append(("models", ", ".join(decoded.names.models) or "none"))
    found.add(one.topic, rows, [*rejection_findings(one, other), *stream_findings(one, decoded)])


def _key_text(keys: KeyFacts) -> str:
    if not keys.present:
        return "none"
    text = f"in {percent(keys.present, 1)}"
    text += "" if keys.equal is None else f", equal to the id in {percent(keys.equal, 1)}"
    if keys.partitioner is not None:
        text += f", placed by {keys.partitioner} ({partitioner_advice(keys.partitioner)})"
    return f"{text}, in {keys.used} of {counted(keys.partitions, 'partition')}"


def _numbers(looked: tuple[Looked, Looked], pairs: Pairs) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for one in looked:
        numbers |= {
            f"{one.topic}_sampled": len(one.sample.records),
            f"{one.topic}_accepted": one.accepted,
            f"{one.topic}_rejected": one.rejected.total(),
            f"{one.topic}_ignored": one.ignored,
        }
    numbers |= {"outcomes_judged": pairs.judged, "outcomes_matched": pairs.matched, "pairs": len(pairs.delays_ms)}
    if len(pairs.delays_ms):
        numbers |= {f"delay_p{100 * share:g}_ms": pairs.delay_quantile_ms(share) for share in (0.5, 0.9, 0.99, 0.999)}
        numbers |= {"pairs_in_different_partitions": pairs.elsewhere, "positive_labels_share": pairs.base_rate}
    if pairs.conclusive:
        numbers["matched_share"] = pairs.share
    return {name: value for name, value in numbers.items() if not np.isnan(value)}
