"""From the configuration to what turns the values of each topic into JSON."""

from __future__ import annotations

from streamcal.errors import ConfigError
from streamcal.runtime.config import Config
from streamcal.runtime.config_events import OutcomeFields, PredictionFields
from streamcal.runtime.config_events import SchemaRegistry as RegistrySection
from streamcal.runtime.registry import SchemaRegistry
from streamcal.runtime.wire_format import FieldTree, Reading, WireFormat
from streamcal.stream.fields import FieldPath
from streamcal.stream.formats import ValueFormat

__all__ = ["need_library", "open_registry", "value_formats"]


def value_formats(config: Config) -> tuple[ValueFormat | None, ValueFormat | None]:
    """Formats of predictions and outcomes; None where values are JSON and keys are text.

    Raises
    ------
    ConfigError
        The library for values or keys is not installed, or the file with the credentials cannot be read.
    RegistryError
        No schema registry answers, or it refuses.
    """
    events = config.events
    values = [events.prediction_format != "json", events.outcome_format != "json"]
    keys = events.key_format != "text"
    if not any(values) and not keys:
        return None, None
    for kind in (events.prediction_format, events.outcome_format, events.key_format):
        need_library(kind)
    registry = open_registry(events.schema_registry)
    sections: list[tuple[PredictionFields | OutcomeFields, list[str]]] = [
        (events.prediction, _prediction_paths(config)),
        (events.outcome, _outcome_paths(config)),
    ]
    found = [
        _format(registry, section, paths, values=wire, keys=keys) if wire or keys else None
        for wire, (section, paths) in zip(values, sections, strict=True)
    ]
    return found[0], found[1]


def open_registry(section: RegistrySection) -> SchemaRegistry:
    """A client of the configured registry, which has answered once.

    Raises
    ------
    ConfigError
        The file with the credentials cannot be read.
    RegistryError
        No schema registry answers, or it refuses.
    """
    assert section.url is not None, "checked when the configuration is loaded"
    credentials = None
    if section.basic_auth_file is not None:
        key = "events.schema_registry.basic_auth_file"
        try:
            credentials = section.basic_auth_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigError([(key, f"the file cannot be read: {reason}")]) from error
        if ":" not in credentials:
            raise ConfigError([(key, "the file must hold user:password")])
    ca_file = None if section.ca_file is None else str(section.ca_file)
    registry = SchemaRegistry(section.url, credentials=credentials, ca_file=ca_file)
    registry.check()
    return registry


def need_library(kind: str) -> None:
    """See that values of this format can be read.

    Raises
    ------
    ConfigError
        The library for them is not installed.
    """
    try:
        if kind == "avro":
            import fastavro  # noqa: F401, PLC0415 - the extra `avro`
        elif kind == "protobuf":
            from google import protobuf  # noqa: F401, PLC0415 - the extra `protobuf`
    except ImportError as error:
        text = f"{kind} needs a library that is not installed: pip install 'streamcal-monitor[{kind}]'"
        raise ConfigError([("events.format", text)]) from error


def _format(
    registry: SchemaRegistry, section: PredictionFields | OutcomeFields, paths: list[str], *, values: bool, keys: bool
) -> ValueFormat:
    time = FieldPath.parse(section.time) if section.time_source == "field" else None
    reading = Reading(
        fields=FieldTree.of([FieldPath.parse(path) for path in paths]),
        time=time.parts if time is not None and time.source == "value" else None,
        time_unit=section.time_unit,
        optional=frozenset(FieldPath.parse(path).parts for path in _optional(section)),
    )
    return WireFormat(registry, reading, decode_values=values, decode_keys=keys)


def _optional(section: PredictionFields | OutcomeFields) -> list[str]:
    """Paths of what an event may go without."""
    found = [section.model]
    if isinstance(section, PredictionFields):
        found += [section.raw_score, section.map_version, section.weight, section.raw_scores, section.map_versions]
    return [path for path in found if path is not None]


def _prediction_paths(config: Config) -> list[str]:
    fields = config.events.prediction
    named = [fields.id, fields.time, fields.score, fields.raw_score, fields.map_version, fields.model, fields.weight]
    if config.class_sets:
        named += [fields.scores, fields.raw_scores, fields.map_versions]
    segments = [fields.segments] if isinstance(fields.segments, str) else list(fields.segments.values())
    return [path for path in (*named, *segments, *_model_paths(config)) if path is not None]


def _outcome_paths(config: Config) -> list[str]:
    fields = config.events.outcome
    picked = [] if fields.filter is None else [fields.filter.path]
    named = [fields.id, fields.time, fields.label, fields.model]
    return [path for path in (*named, *picked, *_model_paths(config)) if path is not None]


def _model_paths(config: Config) -> list[str]:
    return [model.filter.path for model in config.models.values() if model.filter is not None]
