"""The section `transform`: the command that serves a topic of raw scores."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from streamcal.runtime.config_fields import Section, Span, Text
from streamcal.runtime.config_kafka import TopicName
from streamcal.runtime.durations import parse_duration

__all__ = ["Transform", "host_instance"]

# What Kafka accepts as the name of a static member; it becomes part of the transactional id too.
_INSTANCE: Final = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)


def _instance(value: str) -> str:
    if not _INSTANCE.fullmatch(value) or value in {".", ".."}:
        raise ValueError("must be letters, digits, '.', '_' and '-', at most 200 characters")
    return value


InstanceName = Annotated[Text, AfterValidator(_instance)]


class Transform(Section):
    """Where raw scores are read and served ones are written; null is filled in by the command."""

    input: TopicName | None = None
    output: TopicName | None = None
    group_id: Text | None = None
    instance_id: InstanceName | None = None
    commit_interval: Span = parse_duration("100ms")
    invalid: Literal["pass", "stop"] = "pass"
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None


def host_instance() -> str:
    """The name of this host as a static member is named: it outlives a restart, and others have another."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:200] or "host"
