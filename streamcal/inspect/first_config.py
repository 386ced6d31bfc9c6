"""`streamcal init`: from two samples to the text of a configuration that loads."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamcal.errors import ConfigError
from streamcal.inspect.columns import Table, table
from streamcal.inspect.config_text import config_text
from streamcal.inspect.findings import Finding, counted, percent
from streamcal.inspect.keys import key_facts, key_findings
from streamcal.inspect.pairing import Decoded, Pairs, decode, pair
from streamcal.inspect.proposal import Guess, Proposal, guess_fields, guess_spans
from streamcal.inspect.sample import Sample
from streamcal.runtime.config import Config, load_config
from streamcal.runtime.config_kafka import Kafka
from streamcal.runtime.registry import SchemaRegistry
from streamcal.runtime.value_formats import need_library, open_registry
from streamcal.runtime.wire_format import WireFormat
from streamcal.runtime.wiring import engine_settings
from streamcal.stream.formats import ValueFormat, wire_schema_id

__all__ = ["Explorer", "FirstConfig", "first_config", "kafka_section"]

_REGISTRY: Final = "events.schema_registry."


@dataclass(frozen=True, slots=True)
class FirstConfig:
    """What `init` came to.

    Attributes
    ----------
    summary : list of str
        What the decoders of the product make of the samples under this configuration.
    findings : list of Finding
        What no configuration can mend.
    doubts : list of str
        Guesses a person should look at.
    """

    text: str
    config: Config
    decoded: Decoded
    pairs: Pairs
    summary: list[str]
    findings: list[Finding]
    doubts: list[str]


class Explorer:
    """Turns samples into tables, with the schemas of a registry where values are in its wire format.

    Parameters
    ----------
    given : mapping
        Dotted keys of the configuration that are given.

    Raises
    ------
    ConfigError
        A library for what the values are is not installed, or a file cannot be read.
    RegistryError
        No registry answers.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.url = given.get(f"{_REGISTRY}url")
        guesses = {key: Guess(value, "") for key, value in given.items() if key.startswith(_REGISTRY)}
        self._section = _load(config_text((), guesses)).events.schema_registry if self.url else None
        self._forms: dict[tuple[bool, bool], ValueFormat] = {}
        self._opened: SchemaRegistry | None = None

    def table(self, sample: Sample) -> Table:
        """The sample as columns."""
        return table(sample.records, self._form(sample))

    def is_wire(self, sample: Sample) -> bool:
        """Whether the values are in the wire format, and a registry is given to read them."""
        held = [record.value for record in sample.records if record.value]
        return self._section is not None and 2 * sum(value[0] == 0 for value in held) > len(held)

    def has_wire_keys(self, sample: Sample) -> bool:
        """Whether the keys are."""
        held = [record.key for record in sample.records if record.key]
        return self._section is not None and bool(held) and all(wire_schema_id(key) is not None for key in held)

    def value_format(self, sample: Sample) -> str:
        """What the values in the wire format are."""
        return self._kind([record.value for record in sample.records])

    def key_format(self, sample: Sample) -> str:
        """What the keys in the wire format are."""
        return self._kind([record.key for record in sample.records])

    def _form(self, sample: Sample) -> ValueFormat | None:
        values, keys = self.is_wire(sample), self.has_wire_keys(sample)
        if not values and not keys:
            return None
        if (values, keys) not in self._forms:
            for kind in (self.value_format(sample) if values else None, self.key_format(sample) if keys else None):
                need_library(kind or "")
            self._forms[values, keys] = WireFormat(self._registry(), decode_values=values, decode_keys=keys)
        return self._forms[values, keys]

    def _registry(self) -> SchemaRegistry:
        if self._opened is None:
            assert self._section is not None
            self._opened = open_registry(self._section)
        return self._opened

    def _kind(self, held: Sequence[bytes | None]) -> str:
        """Format of the schema that most of the values name."""
        numbers = Counter(number for value in held if value and (number := wire_schema_id(value)) is not None)
        for number, _ in numbers.most_common():
            registered = self._registry().schema(number)
            if registered is not None:
                # JSON behind a schema id is read by either; a topic of it needs no library.
                return "protobuf" if registered.kind == "PROTOBUF" else "avro"
        return "avro"


def first_config(
    samples: tuple[Sample, Sample], explorer: Explorer, given: Mapping[str, Any], *, head: Sequence[str] = ()
) -> FirstConfig:
    """Guess, decode with what was guessed, read the spans off that, and write it down.

    Parameters
    ----------
    samples : pair of Sample
        Predictions and outcomes.
    given : mapping
        Dotted keys that are not guessed; those of `kafka` and `topics` among them.
    head : sequence of str
        Comments at the top of the file.

    Raises
    ------
    CannotGuessError
        There is no id or no score.
    ConfigError
        A value that was given is not valid.
    """
    tables = explorer.table(samples[0]), explorer.table(samples[1])
    found = Proposal(given)
    _formats(found, samples, explorer)
    events = guess_fields(*tables, samples, given)
    found.guesses |= events.guesses
    found.doubts += events.doubts
    config = _load(config_text((), _ordered(found)))
    decoded = decode(engine_settings(config), *samples)
    pairs = pair(decoded, predictions_complete=samples[0].complete)
    guess_spans(found, decoded, pairs)
    summary = _summary(samples, decoded, pairs)
    keys = [
        key_facts(sample, held, found.value(f"events.{topic}.id"))
        for sample, held, topic in zip(samples, tables, ("prediction", "outcome"), strict=True)
    ]
    findings = list(key_findings(keys[0], keys[1], pairs)) if samples[0].keyed and samples[1].keyed else []
    remarks = [*summary, *(f"Look at: {doubt}" for doubt in found.doubts)]
    remarks += [f"{finding.level.capitalize()}: {finding.what}; {finding.change}" for finding in findings]
    text = config_text((*head, *remarks), _ordered(found))
    return FirstConfig(text, _load(text), decoded, pairs, summary, findings, found.doubts)


def kafka_section(given: Mapping[str, Any]) -> Kafka:
    """The section `kafka` of the keys that are given, checked.

    Raises
    ------
    ConfigError
        One of them is not valid.
    """
    return _load(
        config_text((), {key: Guess(held, "") for key, held in given.items() if key.startswith("kafka.")})
    ).kafka


def _formats(found: Proposal, samples: tuple[Sample, Sample], explorer: Explorer) -> None:
    wire = [explorer.value_format(sample) if explorer.is_wire(sample) else None for sample in samples]
    reason = "values begin with a zero byte and a schema id"
    if wire[0] is not None and wire[0] == wire[1]:
        found.put("events.format", wire[0], reason)
    else:
        for topic, kind in zip(("prediction", "outcome"), wire, strict=True):
            if kind is not None:
                found.put(f"events.{topic}.format", kind, reason)
    keyed = [explorer.key_format(sample) for sample in samples if explorer.has_wire_keys(sample)]
    if keyed:
        found.put("events.key_format", keyed[0], "keys begin with a zero byte and a schema id")


def _ordered(found: Proposal) -> dict[str, Guess]:
    """Every key given or guessed, by sections in the order of the shipped file."""
    every = {key: Guess(value, "") for key, value in found.given.items()}
    every |= found.guesses
    sections = list(Config.model_fields)
    known = [section for section in sections if section in {key.split(".")[0] for key in every}]
    ordered = {key: guess for section in known for key, guess in every.items() if key.split(".")[0] == section}
    return ordered | every  # unknown sections last, where they are refused by name


def _load(text: str) -> Config:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proposed.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            return load_config(path, environ={}, require_kafka=False)
        except ConfigError as error:
            raise ConfigError(error.problems, where="the configuration proposed, with what was given") from error


def _summary(samples: tuple[Sample, Sample], decoded: Decoded, pairs: Pairs) -> list[str]:
    lines = []
    for sample, batch, rejected, name in (
        (samples[0], decoded.predictions, decoded.prediction_rejections, "predictions"),
        (samples[1], decoded.outcomes, decoded.outcome_rejections, "outcomes"),
    ):
        text = f"{len(batch.row):,} of {counted(len(sample.records), 'record')} of the {name} sampled are accepted"
        text += f", {batch.ignored:,} ignored" if batch.ignored else ""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.most_common())
        lines.append(f"{text}, rejected: {reasons}." if reasons else f"{text}.")
    lines.append(
        f"{percent(pairs.matched, pairs.judged)} of {counted(pairs.judged, 'outcome')} match a prediction by id."
        if pairs.conclusive
        else "None of the outcomes is young enough for the predictions sampled to tell whether it matches."
    )
    return lines
