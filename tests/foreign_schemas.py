"""Seven pairs of topics as other people's systems write them, what is true of each; nothing of the product is used.

Every stream has a calibrated score, an outcome for every prediction that gets one, and the traps that come with such
topics: other numbers in [0, 1], other times, fields that repeat across topics, events that are no outcomes.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, timestamp_pb2
from registry_stub import wire

__all__ = ["SCHEMAS", "Foreign", "Message"]

START_MS = 1_717_200_000_000
COUNT = 800


class Message(NamedTuple):
    key: bytes | None
    value: bytes
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Foreign:
    """One pair of topics.

    Attributes
    ----------
    expected : mapping
        Dotted keys of the configuration and what they must be.
    outcomes_of_ours : int
        Outcomes among the messages of their topic.
    schemas : mapping
        Schema id to schema, as it is registered.
    kind : str
        Of the schemas.
    """

    name: str
    predictions: list[Message]
    outcomes: list[Message]
    expected: Mapping[str, Any]
    outcomes_of_ours: int
    longest_delay_ms: int
    schemas: Mapping[int, Any] = field(default_factory=dict)
    kind: str = "AVRO"


class Scored(NamedTuple):
    number: int
    at: int
    score: float
    label: bool
    outcome_at: int


def scored(rng: random.Random, delay_ms: int) -> Iterator[Scored]:
    for number in range(COUNT):
        score = rng.betavariate(1.2, 4)
        at = START_MS + number * 1200 + rng.randrange(500)
        yield Scored(number, at, score, rng.random() < score, at + 1000 + rng.randrange(delay_ms - 1000))


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def in_time(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda message: message.timestamp)


def rfc3339(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(timespec="milliseconds")


def nested(rng: random.Random) -> Foreign:
    predictions, outcomes = [], []
    for one in scored(rng, 600_000):
        name = f"req-{one.number:06x}"
        value = {
            "meta": {"requestId": name, "createdAt": one.at, "service": "ranker", "tags": ["a", "b"]},
            "payload": {
                "model": {"name": rng.choice(["ctr-v3", "ctr-v4"]), "threshold": 0.5},
                "prob": one.score,
                "position": rng.randrange(1, 9),
                "bid": rng.random() * 3,
                "geo": {"country": rng.choice(["GB", "DE", "NO"])},
                "device": rng.choice(["ios", "android", "web"]),
            },
        }
        predictions.append(Message(name.encode(), encoded(value), one.at))
        value = {
            "ref": {"requestId": name},
            "occurredAt": one.outcome_at,
            "clicked": one.label,
            "sampled": rng.random(),
        }
        outcomes.append(Message(name.encode(), encoded(value), one.outcome_at))
    return Foreign(
        "nested paths",
        predictions,
        in_time(outcomes),
        {
            "events.prediction.id": "meta.requestId",
            "events.prediction.time": "meta.createdAt",
            "events.prediction.time_unit": "ms",
            "events.prediction.score": "payload.prob",
            "events.prediction.model": "payload.model.name",
            "events.outcome.id": "ref.requestId",
            "events.outcome.time": "occurredAt",
            "events.outcome.label": "clicked",
            "join.labels": "both",
        },
        COUNT,
        600_000,
    )


def key_ids(rng: random.Random) -> Foreign:
    predictions, outcomes = [], []
    for one in scored(rng, 3_600_000):
        key = f"{rng.getrandbits(64):016x}".encode()
        value = {
            "ts": one.at,
            "score": one.score,
            "raw_score": one.score**1.1,
            "map_version": 3,
            "tenant": rng.choice("abc"),
        }
        predictions.append(Message(key, encoded(value), one.at, (("trace", b"\xff\xfe"),)))
        outcomes.append(Message(key, encoded({"ts": one.outcome_at, "label": int(one.label)}), one.outcome_at))
    return Foreign(
        "ids in the key",
        predictions,
        in_time(outcomes),
        {
            "events.prediction.id": "$key",
            "events.outcome.id": "$key",
            "events.prediction.score": "score",
            "events.prediction.raw_score": "raw_score",
            "events.prediction.map_version": "map_version",
            "events.outcome.label": "label",
            "join.labels": "both",
        },
        COUNT,
        3_600_000,
    )


def seconds_and_text(rng: random.Random) -> Foreign:
    predictions, outcomes = [], []
    for one in scored(rng, 5 * 86_400_000):
        loan = 700_000 + one.number
        value = {
            "loan_id": loan, "scored_at": one.at / 1000, "pd": one.score, "ltv": rng.random(),
            "opened": "2019-03-01", "product": rng.choice(["card", "car", "home"]), "age": rng.randrange(18, 90),
        }  # fmt: skip
        predictions.append(Message(str(loan).encode(), encoded(value), one.at))
        status = "defaulted" if one.label else "repaid"
        value = {"loanId": loan, "eventTime": rfc3339(one.outcome_at), "status": status, "officer": f"o{loan % 7}"}
        outcomes.append(Message(str(loan).encode(), encoded(value), one.outcome_at))
    return Foreign(
        "seconds and RFC 3339",
        predictions,
        in_time(outcomes),
        {
            "events.prediction.id": "loan_id",
            "events.prediction.time": "scored_at",
            "events.prediction.time_unit": "s",
            "events.prediction.score": "pd",
            "events.outcome.id": "loanId",
            "events.outcome.time": "eventTime",
            "events.outcome.time_unit": "rfc3339",
            "events.outcome.label": "status",
            "events.outcome.positive_values": ("defaulted",),
            "events.outcome.negative_values": ("repaid",),
            "join.labels": "both",
        },
        COUNT,
        5 * 86_400_000,
    )


def clicks(rng: random.Random) -> Foreign:
    predictions, outcomes = [], []
    for one in scored(rng, 1_800_000):
        name = f"{rng.getrandbits(96):024x}"
        value = {"impression_id": name, "ts": one.at, "pctr": one.score, "placement": rng.choice(["top", "side"])}
        predictions.append(Message(name.encode(), encoded(value), one.at))
        if one.label:
            value = {"impression_id": name, "ts": one.outcome_at, "x": rng.randrange(300), "referrer": "https://e.org/"}
            outcomes.append(Message(name.encode(), encoded(value), one.outcome_at))
    return Foreign(
        "positives-only clicks",
        predictions,
        in_time(outcomes),
        {
            "events.prediction.id": "impression_id",
            "events.prediction.score": "pctr",
            "events.outcome.id": "impression_id",
            "events.outcome.time": "ts",
            "join.labels": "positives_only",
        },
        len(outcomes),
        1_800_000,
    )


def mixed(rng: random.Random) -> Foreign:
    predictions, outcomes = [], []
    for one in scored(rng, 7_200_000):
        order = f"o-{one.number}-{rng.getrandbits(32):08x}"
        key = order.encode()
        value = {
            "order": order,
            "at": one.at * 1000,
            "risk": one.score,
            "customer": f"c{rng.randrange(90)}",
            "shop": rng.choice("xyz"),
        }
        predictions.append(Message(key, encoded(value), one.at))
        value = {
            "type": "settlement",
            "order": order,
            "at": one.outcome_at * 1000,
            "result": "fraud" if one.label else "legit",
        }
        outcomes.append(Message(key, encoded(value), one.outcome_at))
        if rng.random() < 0.6:
            value = {"type": "shipment", "order": order, "at": (one.at + 900) * 1000, "carrier": rng.choice("pq")}
            outcomes.append(Message(key, encoded(value), one.at + 900))
        if rng.random() < 0.2:
            outcomes.append(Message(b"hb", encoded({"type": "heartbeat", "at": one.at * 1000}), one.at))
    return Foreign(
        "a mixed topic",
        predictions,
        in_time(outcomes),
        {
            "events.prediction.id": "order",
            "events.prediction.time_unit": "us",
            "events.prediction.score": "risk",
            "events.outcome.id": "order",
            "events.outcome.time": "at",
            "events.outcome.time_unit": "us",
            "events.outcome.label": "result",
            "events.outcome.positive_values": ("fraud",),
            "events.outcome.negative_values": ("legit",),
            "events.outcome.filter.path": "type",
            "events.outcome.filter.equals": "settlement",
            "join.labels": "both",
        },
        COUNT,
        7_200_000,
    )


PREDICTION_SCHEMA: dict[str, Any] = {
    "type": "record", "name": "Scored", "namespace": "org.example", "fields": [
        {"name": "id", "type": "string"},
        {"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "probability", "type": "double"},
        {"name": "channel", "type": {"type": "enum", "name": "Channel", "symbols": ["WEB", "SHOP", "PHONE"]}},
        {"name": "payload", "type": ["null", "bytes"]},
    ],
}  # fmt: skip
OUTCOME_SCHEMA: dict[str, Any] = {
    "type": "record", "name": "Churn", "namespace": "org.example", "fields": [
        {"name": "predictionId", "type": "string"},
        {"name": "decided", "type": {"type": "record", "name": "Decided", "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}},
        {"name": "churned", "type": ["null", "boolean"]},
    ],
}  # fmt: skip


def avro(rng: random.Random) -> Foreign:
    predictions, outcomes = [], []
    for one in scored(rng, 20 * 3_600_000):
        name = f"{rng.getrandbits(96):024x}"
        value: dict[str, Any] = {
            "id": name, "timestamp": one.at * 1000 + 17, "probability": one.score,
            "channel": rng.choice(["WEB", "SHOP", "PHONE"]), "payload": b"\x00\xff",
        }  # fmt: skip
        predictions.append(Message(name.encode(), wire(71, PREDICTION_SCHEMA, value), one.at))
        value = {"predictionId": name, "decided": {"at": one.outcome_at}, "churned": one.label}
        outcomes.append(Message(name.encode(), wire(72, OUTCOME_SCHEMA, value), one.outcome_at))
    return Foreign(
        "Avro",
        predictions,
        in_time(outcomes),
        {
            "events.format": "avro",
            "events.prediction.id": "id",
            "events.prediction.time": "timestamp",
            "events.prediction.score": "probability",
            "events.outcome.id": "predictionId",
            "events.outcome.time": "decided.at",
            "events.outcome.label": "churned",
            "join.labels": "both",
        },
        COUNT,
        20 * 3_600_000,
        {71: PREDICTION_SCHEMA, 72: OUTCOME_SCHEMA},
    )


PROTO_FILE = """
name: "billing.proto" package: "billing" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Offer"
  field { name: "offer_id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "made_at" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "accept_probability" number: 3 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  field { name: "tier" number: 4 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".billing.Tier" }
  field { name: "payload" number: 5 label: LABEL_OPTIONAL type: TYPE_BYTES }
}
message_type { name: "Decision"
  field { name: "offer_id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "decided_ms" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "accepted" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
}
enum_type { name: "Tier" value { name: "FREE" number: 0 } value { name: "PAID" number: 1 } }
"""
SECOND_MESSAGE = b"\x02\x02"
"""One index, 1, as zigzag varints; the first message is a single zero."""


def protobuf(rng: random.Random) -> Foreign:
    file = text_format.Parse(PROTO_FILE, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    offer, decision = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"billing.{name}")) for name in ("Offer", "Decision")
    )
    prefix = b"\0\0\0\0\x51"
    predictions, outcomes = [], []
    for one in scored(rng, 20 * 3_600_000):
        name = f"{rng.getrandbits(96):024x}"
        made = offer(offer_id=name, accept_probability=one.score, tier=rng.randrange(2), payload=b"\xff")
        made.made_at.seconds, made.made_at.nanos = one.at // 1000, one.at % 1000 * 1_000_000
        predictions.append(Message(name.encode(), prefix + b"\0" + made.SerializeToString(), one.at))
        decided = decision(offer_id=name, decided_ms=one.outcome_at, accepted=one.label)
        value = prefix + SECOND_MESSAGE + decided.SerializeToString()
        outcomes.append(Message(name.encode(), value, one.outcome_at))
    return Foreign(
        "Protobuf",
        predictions,
        in_time(outcomes),
        {
            "events.format": "protobuf",
            "events.prediction.id": "offer_id",
            "events.prediction.time": "made_at",
            "events.prediction.score": "accept_probability",
            "events.outcome.id": "offer_id",
            "events.outcome.time": "decided_ms",
            "events.outcome.label": "accepted",
            "join.labels": "both",
        },
        COUNT,
        20 * 3_600_000,
        {0x51: base64.b64encode(file.SerializeToString()).decode()},
        "PROTOBUF",
    )


SCHEMAS: Mapping[str, Callable[[random.Random], Foreign]] = {
    "nested": nested,
    "key_ids": key_ids,
    "seconds_and_text": seconds_and_text,
    "clicks": clicks,
    "mixed": mixed,
    "avro": avro,
    "protobuf": protobuf,
}
