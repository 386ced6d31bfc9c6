"""What the command was told, with everything filled in and checked."""

from __future__ import annotations

from dataclasses import dataclass

from streamcal.errors import ConfigError
from streamcal.runtime.config import Config
from streamcal.runtime.config_transform import host_instance
from streamcal.stream.classes import ClassSets
from streamcal.stream.fields import ModelFilter, PredictionFields
from streamcal.transform.stream.rewrite import check_places

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the command.

    Attributes
    ----------
    transactional_id : str
        Whoever takes it over fences its previous owner; one per process and group.
    start : {"earliest", "latest"} or int
        Where a partition without a committed offset begins; an int is a record time in ms.
    gather_s : float
        Longest wait for further records once one has come.
    stop_at_invalid : bool
        Stop at a record that cannot be served, instead of letting it pass.
    """

    input: str
    output: str
    maps: str
    group_id: str
    instance_id: str
    transactional_id: str
    start: str | int
    gather_s: float
    stop_at_invalid: bool
    fields: PredictionFields
    dimensions: tuple[str, ...]
    filters: tuple[ModelFilter, ...]
    max_bytes: int
    classes: ClassSets


def make_plan(config: Config) -> Plan:
    """The plan of a configuration that was loaded for Kafka.

    Raises
    ------
    ConfigError
        A key is missing, or two that must differ are equal; all problems are listed.
    """
    section, topics = config.transform, config.topics
    fields = PredictionFields(**config.events.prediction.model_dump(exclude={"format"}))
    output = section.output or topics.predictions
    group_id = section.group_id or f"{config.kafka.group_id}-transform"
    classes = config.class_sets
    problems = [(f"events.prediction.{name}", text) for name, text in check_places(fields, classes)]
    if (found := config.events.prediction_format) != "json":
        problems.append(("events.format", f"is {found}; transform rewrites JSON only"))
    problems += _topic_problems(config, output)
    if group_id == config.kafka.group_id:
        problems.append(("transform.group_id", "is the group of the daemon, kafka.group_id; this needs one of its own"))
    if problems or section.input is None:
        raise ConfigError(problems)
    instance_id = section.instance_id or config.kafka.group_instance_id or host_instance()
    start = config.kafka.start_from_ms
    return Plan(
        input=section.input,
        output=output,
        maps=topics.maps,
        group_id=group_id,
        instance_id=instance_id,
        transactional_id=f"{group_id}-{instance_id}",
        start=config.kafka.start_from if start is None else start,
        gather_s=section.commit_interval.ms / 1000,
        stop_at_invalid=section.invalid == "stop",
        fields=fields,
        dimensions=config.dimensions,
        filters=_filters(config),
        max_bytes=config.events.max_bytes,
        classes=classes,
    )


def _topic_problems(config: Config, output: str) -> list[tuple[str, str]]:
    """What is wrong with the topics read and written."""
    given = config.transform.input
    if given is None:
        return [("transform.input", "is required: the topic of predictions with raw scores")]
    problems = []
    if given == output:
        where = "transform.output" if config.transform.output else "topics.predictions"
        problems.append(("transform.input", f"is the topic written to, {where}: every score would be served again"))
    for role in ("outcomes", "maps", "counts", "state"):
        name = getattr(config.topics, role)
        problems += [
            (f"transform.{key}", f"is the same topic as topics.{role}")
            for key, topic in (("input", given), ("output", output))
            if topic == name
        ]
    return problems


def _filters(config: Config) -> tuple[ModelFilter, ...]:
    models = {name: config.model(name) for name in config.models}
    return tuple(
        ModelFilter(name, model.filter.path, model.filter.equals)
        for name, model in models.items()
        if model.filter is not None
    )
