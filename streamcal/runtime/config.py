"""The configuration of every command: read, checked as a whole, resolved per model.

A file and the environment become one frozen `Config`, or one `ConfigError` that lists every problem with its dotted
key and where it was set. Nothing here contacts a broker; only the files the configuration names are opened, to see
that they can be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from streamcal.errors import ConfigError
from streamcal.runtime.config_classes import class_problems, class_sets, usual_class_problems
from streamcal.runtime.config_events import EventFilter, Events
from streamcal.runtime.config_fields import Section, Text, can_be_read, empty_if_null, problems_below
from streamcal.runtime.config_kafka import Kafka, Topics
from streamcal.runtime.config_overrides import Values, override, variable_name
from streamcal.runtime.config_problems import problems_of
from streamcal.runtime.config_sections import (
    Alarms,
    Join,
    Labels,
    Maps,
    Metrics,
    ModelOverrides,
    Prior,
    Refit,
    Segments,
    Serve,
    Windows,
)
from streamcal.runtime.config_security import SECRET_KEYS
from streamcal.runtime.config_transform import Transform
from streamcal.runtime.yaml_reader import Problem, YamlMapping, read_yaml
from streamcal.stream.classes import ClassSets

__all__ = ["DEFAULT_MODEL", "Config", "ModelSettings", "load_config"]

DEFAULT_MODEL: Final = "default"
"""The model of events that name none."""

_REQUIRED_BY_KAFKA: Final = ("bootstrap_servers", "group_id")

_S = TypeVar("_S", bound=Section)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What holds for one model: its own keys over those of the sections.

    Attributes
    ----------
    filter : EventFilter or None
        Predictions of this model that are taken; None takes all.
    horizon_ms : int
        > 0.
    prior : Prior or None
        The map in force before any label; None is the identity.
    classes : tuple of str
        Each counted as a model of its own, ``<model>/<class>``; empty: the model has one score.
    """

    name: str
    filter: EventFilter | None
    labels: Labels
    horizon_ms: int
    alarms: Alarms
    refit: Refit
    prior: Prior | None
    classes: tuple[str, ...]


class Config(Section):
    """The whole configuration; every section has defaults, and `Config()` is what an empty file means."""

    kafka: Kafka = Kafka()
    topics: Topics = Topics()
    events: Events = Events()
    join: Join = Join()
    windows: Windows = Windows()
    segments: Segments = Segments()
    metrics: Metrics = Metrics()
    alarms: Alarms = Alarms()
    refit: Refit = Refit()
    maps: Maps = Maps()
    models: Annotated[Mapping[Text, ModelOverrides], BeforeValidator(empty_if_null)] = Field(default_factory=dict)
    serve: Serve = Serve()
    transform: Transform = Transform()

    @model_validator(mode="before")
    @classmethod
    def _topics_of_the_group(cls, value: Any) -> Any:
        """Fill `topics.counts` and `topics.state` from the group where they are not given."""
        if not isinstance(value, Mapping) or not isinstance(value.get("kafka"), Mapping):
            return value
        group, topics = value["kafka"].get("group_id"), empty_if_null(value.get("topics"))
        if not isinstance(group, str) or not isinstance(topics, Mapping):
            return value
        derived = {role: f"{group.strip()}-{role}" for role in ("counts", "state") if topics.get(role) is None}
        return {**value, "topics": {**topics, **derived}}

    @field_validator("join")
    @classmethod
    def _knows_negatives_of_classes(cls, value: Join, info: ValidationInfo) -> Join:
        events = info.data.get("events")
        if isinstance(events, Events) and (problems := list(usual_class_problems(events, value))):
            raise problems_below(problems)
        return value

    @field_validator("segments")
    @classmethod
    def _dimensions_have_paths(cls, value: Segments, info: ValidationInfo) -> Segments:
        events = info.data.get("events")
        paths = events.prediction.segments if isinstance(events, Events) else ""
        if isinstance(paths, Mapping) and (missing := [name for name in _dimensions(value.cuts) if name not in paths]):
            text = "{!r} has no path in events.prediction.segments"
            raise problems_below(("cuts", text.format(name)) for name in missing)
        unread = [] if isinstance(paths, Mapping) else [n for n in _dimensions(value.cuts) if not can_be_read(n)]
        if unread:
            text = "{!r} cannot be read from an event; give it a path in events.prediction.segments under another name"
            raise problems_below(("cuts", text.format(name)) for name in unread)
        return value

    @field_validator("refit")
    @classmethod
    def _fits_whole_panes(cls, value: Refit, info: ValidationInfo) -> Refit:
        problems = list(_fit_window_problems(value, info, "fit_window"))
        if problems := [*problems, *_correction_problems(value, info, "segments")]:
            raise problems_below(problems)
        return value

    @field_validator("models")
    @classmethod
    def _models_fit_whole_panes(
        cls, value: Mapping[str, ModelOverrides], info: ValidationInfo
    ) -> Mapping[str, ModelOverrides]:
        problems = [
            problem
            for name, model in value.items()
            if model.refit is not None and "fit_window" in model.refit.model_fields_set
            for problem in _fit_window_problems(model.refit, info, f"{name}.refit.fit_window")
        ]
        problems += [
            problem
            for name, model in value.items()
            if model.refit is not None
            for problem in _correction_problems(model.refit, info, f"{name}.refit.segments")
        ]
        events, join = info.data.get("events"), info.data.get("join")
        if isinstance(events, Events) and isinstance(join, Join):
            problems += class_problems(events, join, value)
        if problems:
            raise problems_below(problems)
        return value

    @cached_property
    def class_sets(self) -> ClassSets:
        """The classes of every model."""
        return class_sets(self.events, self.models)

    @cached_property
    def cut_list(self) -> tuple[tuple[str, ...], ...]:
        """Every cut, the empty one first."""
        return ((), *(cut for cut in self.segments.cuts if cut))

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """Every dimension in order of first appearance over the cuts."""
        return _dimensions(self.segments.cuts)

    @property
    def longest_horizon_ms(self) -> int:
        """The longest horizon of any model, the default one included."""
        return max(self.model(name).horizon_ms for name in (DEFAULT_MODEL, *self.models))

    def model(self, name: str) -> ModelSettings:
        """What holds for the model `name`, or for one class; a name that is not configured has the defaults.

        A class, ``<model>/<class>``, has what its model has unless it is configured itself.
        """
        own, of_all = self.models.get(name) or ModelOverrides(), ModelOverrides()
        parent = self.class_sets.parent(name)
        if parent is not None:
            of_all = self.models.get(parent) or of_all
        return ModelSettings(
            name=name,
            filter=own.filter,
            labels=own.labels or of_all.labels or self.join.labels,
            horizon_ms=(own.horizon or of_all.horizon or self.join.horizon).ms,
            alarms=_over(_over(self.alarms, of_all.alarms), own.alarms),
            refit=_over(_over(self.refit, of_all.refit), own.refit),
            prior=own.prior or of_all.prior,
            classes=() if parent is not None else self.class_sets.of(name),
        )

    def hash(self) -> str:
        """SHA-256 (hex) of what is measured and how.

        Equal for configurations that mean the same, however they are written. Where the broker is, what listens,
        and topics that only carry results do not matter.
        """
        content = self.model_dump(
            mode="json",
            include={"events", "join", "windows", "segments", "metrics", "alarms", "refit"},
        )
        content["segments"]["cuts"] = self.cut_list
        content["events"] = _what_is_read(content["events"], by_class=bool(self.class_sets))
        content["topics"] = [self.topics.predictions, self.topics.outcomes]
        content["models"] = {name: _plain_settings(self.model(name)) for name in self.models}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def load_config(path: Path | None, *, environ: Mapping[str, str], require_kafka: bool) -> Config:
    """Read the file `path` (None: defaults only) with the ``STREAMCAL_`` variables of `environ` over it.

    Parameters
    ----------
    path : Path or None
    environ : mapping
        Environment variables; others than ours are left alone.
    require_kafka : bool
        Whether the command needs a broker: then `kafka.bootstrap_servers` and `kafka.group_id` are required, and the
        files for its connections must be readable.

    Raises
    ------
    ConfigError
        The file cannot be read, or anything in it is wrong; every problem is listed.
    """
    document = YamlMapping({}) if path is None else read_yaml(path)
    values = override(document, environ, Config.model_fields, SECRET_KEYS)
    problems = list(values.problems)
    if require_kafka:
        problems += _missing_for_kafka(values)
    config = None
    try:
        config = Config.model_validate(
            values.tree, context={"check_input_files": True, "check_service_files": require_kafka}
        )
    except ValidationError as error:
        problems += problems_of(error, Config, values.origin)
    if config is None or problems:
        raise ConfigError(problems, where="environment" if path is None else str(path))
    return config


def _missing_for_kafka(values: Values) -> Iterator[Problem]:
    kafka = empty_if_null(values.tree.get("kafka"))
    if isinstance(kafka, Mapping):  # otherwise the section itself is the problem
        for name in _REQUIRED_BY_KAFKA:
            if kafka.get(name) is None:
                yield f"kafka.{name}", f"is required; set it here or in {variable_name(('kafka', name))}"


def _dimensions(cuts: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for cut in cuts for name in cut))


def _fit_window_problems(refit: Refit, info: ValidationInfo, key: str) -> Iterator[tuple[str, str]]:
    windows = info.data.get("windows")
    if isinstance(windows, Windows) and refit.fit_window.ms % windows.pane.ms:
        yield key, f"{refit.fit_window} is not a multiple of windows.pane, {windows.pane}"


def _correction_problems(refit: Refit, info: ValidationInfo, key: str) -> Iterator[tuple[str, str]]:
    segments = info.data.get("segments")
    if isinstance(segments, Segments) and refit.segments and refit.segments not in segments.cuts:
        cuts = ", ".join(f"[{', '.join(cut)}]" for cut in segments.cuts if cut) or "there are none"
        yield key, f"[{', '.join(refit.segments)}] is none of segments.cuts in the same order: {cuts}"


def _over(section: _S, own: _S | None) -> _S:
    """`section` with the keys that `own` sets itself."""
    if own is None:
        return section
    return section.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def _what_is_read(events: dict[str, Any], *, by_class: bool) -> dict[str, Any]:
    """The section without where its schemas are and fields nobody reads, each topic with the format it has."""
    usual = events.pop("format")
    if not by_class:
        del events["classes"]
        for name in ("scores", "raw_scores", "map_versions"):
            del events["prediction"][name]
    del events["schema_registry"]
    for topic in ("prediction", "outcome"):
        events[topic]["format"] = events[topic]["format"] or usual
    return events


def _plain_settings(settings: ModelSettings) -> dict[str, Any]:
    sections = {name: getattr(settings, name) for name in ("filter", "alarms", "refit", "prior")}
    dumped = {name: None if held is None else held.model_dump(mode="json") for name, held in sections.items()}
    classes = {"classes": settings.classes} if settings.classes else {}
    return {**dumped, **classes, "labels": settings.labels, "horizon": settings.horizon_ms}
