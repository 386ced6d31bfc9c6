"""The sections `kafka` and `topics`: where the streams are and how to get to them."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo, field_validator

from streamcal.runtime.config_fields import (
    PositiveSpan,
    Section,
    Text,
    empty_if_null,
    problems_below,
)
from streamcal.runtime.config_security import KafkaSecurity, security_problems
from streamcal.runtime.durations import parse_duration

__all__ = ["Kafka", "KafkaSecurity", "Topics"]

_OWN_KEY: Final = "is set by kafka.{}"
_BYTES: Final = "values are decoded by the codec, per message and counted by reason"
_OBJECT: Final = "takes a Python object, which a configuration file cannot hold"
_EXACT: Final = "is fixed so that nothing is counted twice or lost"

_FORBIDDEN: Final[Mapping[str, str]] = {
    "bootstrap_servers": _OWN_KEY.format("bootstrap_servers"),
    "client_id": _OWN_KEY.format("client_id"),
    "group_id": _OWN_KEY.format("group_id"),
    "group_instance_id": _OWN_KEY.format("group_instance_id"),
    "auto_offset_reset": "offsets are never reset silently; kafka.start_from says where a new group begins",
    "enable_auto_commit": "offsets are committed only once their records are folded in",
    "auto_commit_interval_ms": _OWN_KEY.format("commit_interval"),
    "isolation_level": "input is always read committed",
    "allow_auto_create_topics": "a mistyped topic name must be an error, not a new topic",
    "partition_assignment_strategy": "one task needs the same partition of both topics, which only range assigns",
    "consumer_timeout_ms": "would end the stream when it is merely quiet",
    "default_offset_commit_callback": _OBJECT,
    "key_deserializer": _BYTES,
    "value_deserializer": _BYTES,
    "key_serializer": _BYTES,
    "value_serializer": _BYTES,
    "acks": _EXACT,
    "enable_idempotence": _EXACT,
    "transactional_id": _EXACT,
    "transaction_timeout_ms": _EXACT,
    "partitioner": _OBJECT,
    "kafka_client": _OBJECT,
    "metric_reporters": _OBJECT,
    "selector": _OBJECT,
    "socket_options": _OBJECT,
}
_SECURITY_KEY: Final = re.compile(r"(?:sasl|ssl|security)_")


def _servers(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        return value
    return tuple(part.strip() if isinstance(part, str) else part for part in parts)


def _server(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError("must be host:port")
    return value


# Seconds to nanoseconds after the point; the offset is not optional, since no time zone is ever guessed.
_RFC3339: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _instant_ms(text: str) -> int:
    if not _RFC3339.fullmatch(text):
        raise ValueError("must be earliest, latest or a time like 2024-01-31T06:00:00Z")
    fraction = re.sub(r"(\.\d{6})\d+", r"\1", text.upper())  # datetime holds microseconds
    return (datetime.fromisoformat(fraction) - _EPOCH) // timedelta(milliseconds=1)


def _start(value: str) -> str:
    if value not in {"earliest", "latest"}:
        _instant_ms(value)
    return value


ServerList = Annotated[
    tuple[Annotated[Text, AfterValidator(_server)], ...], Field(strict=False, min_length=1), BeforeValidator(_servers)
]


def _kind_problem(value: str | float, default: object) -> str | None:
    # The client checks some options when it is made and others at the first poll, with an error that names no key.
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if not isinstance(default, (int, float)):
        return None
    if isinstance(value, (bool, str)) or not math.isfinite(value):
        return f"must be a number, not {value!r}"
    if isinstance(default, int) and not isinstance(value, int):
        return f"must be a whole number, not {value!r}"
    return None if value >= 0 else f"must be at least 0, not {value!r}"


def _option_problem(key: str, value: object, client: str, known: Mapping[str, object]) -> str | None:
    if key in _FORBIDDEN:
        return f"cannot be set here: {_FORBIDDEN[key]}"
    if _SECURITY_KEY.match(key):
        return "cannot be set here: security belongs in kafka.security, secrets in files"
    if key not in known:
        close = difflib.get_close_matches(re.sub("[^a-z0-9]+", "_", key.lower()), known, n=1)
        return f"is no option of the client's {client}" + (f"; did you mean {close[0]!r}?" if close else "")
    if not isinstance(value, (str, int, float)):
        return "must be text, a number, true or false"
    return _kind_problem(value, known[key])


def _client_options(client: str) -> Mapping[str, object]:
    # Loaded here only: most configurations pass nothing through, and replay runs without the client.
    from kafka import KafkaConsumer, KafkaProducer  # noqa: PLC0415

    defaults: Mapping[str, object] = (KafkaConsumer if client == "consumer" else KafkaProducer).DEFAULT_CONFIG
    return defaults


def _options(value: Any, info: ValidationInfo) -> Mapping[str, str | int | float | bool]:
    value = empty_if_null(value)
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping of `key: value` lines")  # noqa: TRY004 - pydantic collects ValueError
    client = str(info.field_name)
    known: Mapping[str, object] = _client_options(client) if value else {}
    found = ((key, _option_problem(key, held, client, known)) for key, held in value.items())
    if problems := [(key, text) for key, text in found if text]:
        raise problems_below(problems)
    return dict(value)


PassThrough = Annotated[Mapping[str, str | int | float | bool], PlainValidator(_options)]


class Kafka(Section):
    """The broker, the consumer group and how to connect."""

    bootstrap_servers: ServerList | None = None
    group_id: Text | None = None
    client_id: Text = "streamcal"
    group_instance_id: Text | None = None
    start_from: Annotated[Text, AfterValidator(_start)] = "latest"
    commit_interval: PositiveSpan = parse_duration("1s")
    create_topics: bool = True
    replication_factor: Annotated[int, Field(ge=1, le=32767)] | None = None
    security: KafkaSecurity = KafkaSecurity()
    consumer: PassThrough = Field(default_factory=dict)
    producer: PassThrough = Field(default_factory=dict)

    @property
    def start_from_ms(self) -> int | None:
        """The time to start from, None for ``earliest`` and ``latest``."""
        return None if self.start_from in {"earliest", "latest"} else _instant_ms(self.start_from)

    @field_validator("security")
    @classmethod
    def _is_consistent(cls, value: KafkaSecurity) -> KafkaSecurity:
        if problems := security_problems(value):
            raise problems_below(problems)
        return value


# What Kafka accepts; dots and underscores both, although they collide in its metric names.
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError("must be a topic name: letters, digits, '.', '_' and '-', at most 249 characters")
    return value


TopicName = Annotated[Text, AfterValidator(_topic)]


class Topics(Section):
    """Names of the topics; `counts` and `state` are filled from the group where they are not given."""

    predictions: TopicName = "predictions"
    outcomes: TopicName = "outcomes"
    maps: TopicName = "streamcal.maps"
    counts: TopicName | None = None
    state: TopicName | None = None
    dead_letter: TopicName | None = None

    @field_validator("outcomes", "maps", "counts", "state", "dead_letter")
    @classmethod
    def _is_distinct(cls, value: str | None, info: ValidationInfo) -> str | None:
        for other, name in info.data.items():
            if value is not None and name == value:
                raise ValueError(f"is the same topic as topics.{other}; every role needs its own")
        return value
