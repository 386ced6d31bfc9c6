"""Protobuf values read as what they say: the JSON codec, fed with the same events as JSON, is the oracle."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, timestamp_pb2, wrappers_pb2
from raw_records import LIMITS, RawRecord, T, fate, raw
from registry_stub import RegistryStub, running_registry

from streamcal.errors import ConfigError
from streamcal.runtime.config import load_config
from streamcal.runtime.registry import SchemaRegistry
from streamcal.runtime.wire_format import FieldTree, Reading, WireFormat
from streamcal.runtime.wiring import engine_settings
from streamcal.stream.codec import OutcomeDecoder, OutcomeFields, PredictionDecoder, PredictionFields
from streamcal.stream.events import Names, OutcomeBatch, PredictionBatch
from streamcal.stream.fields import FieldPath, TimeUnit

# Two messages before the one that is used, which is nested in the third: its path is [2, 1].
SCORES = """
name: "scores.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto"
dependency: "shared/geo.proto" dependency: "confluent/meta.proto"
message_type { name: "Unused" } message_type { name: "Unused2" }
message_type { name: "Event"
  nested_type { name: "Other" }
  nested_type { name: "Prediction"
    field { name: "meta" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Meta" }
    field { name: "at" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
    field { name: "p" number: 3 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
    field { name: "raw" number: 4 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
    field { name: "version" number: 5 label: LABEL_OPTIONAL type: TYPE_INT32 }
    field { name: "weight" number: 6 label: LABEL_OPTIONAL type: TYPE_MESSAGE
            type_name: ".google.protobuf.DoubleValue" }
    field { name: "model" number: 7 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "tier" number: 8 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.Tier" }
    field { name: "geo" number: 9 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shared.Geo" }
    field { name: "tags" number: 10 label: LABEL_REPEATED type: TYPE_MESSAGE
            type_name: ".shop.Event.Prediction.TagsEntry" }
    field { name: "blob" number: 11 label: LABEL_REPEATED type: TYPE_BYTES }
    nested_type { name: "TagsEntry" options { map_entry: true }
      field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
      field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING } }
  }
}
message_type { name: "Meta" field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
enum_type { name: "Tier" value { name: "FREE" number: 0 } value { name: "PAID" number: 1 } }
"""
GEO = """
name: "shared/geo.proto" package: "shared" syntax: "proto3"
message_type { name: "Geo" field { name: "country" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING } }
"""
OUTCOME = """
name: "outcome.proto" syntax: "proto3"
message_type { name: "Outcome"
  field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "ts" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "label" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
}
message_type { name: "Strict"
  field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "ts" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "label" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 proto3_optional: true oneof_index: 0 }
  field { name: "kind" number: 4 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".Kind" }
  oneof_decl { name: "_label" }
}
message_type { name: "Key" field { name: "request" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 } }
enum_type { name: "Kind" value { name: "CLICK" number: 0 } value { name: "SALE" number: 1 } }
"""
FIELDS = PredictionFields(
    id="meta.id", time="at", score="p", raw_score="raw", map_version="version", weight="weight", model="model",
    segments={"country": "geo.country", "tier": "tier", "shop": "tags.shop"},
)  # fmt: skip
FIRST, PREDICTION, STRICT = b"\0", b"\x04\x04\x02", b"\x02\x02"
"""Which message follows, as producers write it: the first; [2, 1]; [1]. Zigzag varints, by hand."""


def file(text: str) -> descriptor_pb2.FileDescriptorProto:
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


def registered(text: str) -> str:
    return base64.b64encode(file(text).SerializeToString()).decode()


def message_classes() -> dict[str, Any]:
    """The library's own classes, in a pool of the test's own."""
    pool = descriptor_pool.DescriptorPool()
    for one in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
    scores = file(SCORES)
    scores.dependency.remove("confluent/meta.proto")
    for one in (file(GEO), scores, file(OUTCOME)):
        pool.AddSerializedFile(one.SerializeToString())
    names = ("shop.Event.Prediction", "Outcome", "Strict", "Key")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


CLASSES = message_classes()


def wire(number: int, path: bytes, message: Any) -> bytes:
    content: bytes = message.SerializeToString()
    return b"\0" + number.to_bytes(4, "big") + path + content


def prediction(**held: Any) -> Any:
    event = {"meta": {"id": "a"}, "p": 0.25, "at": timestamp_pb2.Timestamp(seconds=T // 1000, nanos=T % 1000 * 10**6)}
    event |= held
    message = CLASSES["shop.Event.Prediction"]()
    message.meta.id = event["meta"]["id"]
    message.at.seconds, message.at.nanos = event["at"].seconds, event["at"].nanos
    for name in {"p", "raw", "version", "model", "tier"} & event.keys():
        setattr(message, name, event[name])
    if event.get("weight") is not None:
        message.weight.value = event["weight"]
    if event.get("country") is not None:
        message.geo.country = event["country"]
    message.tags.update(event.get("tags", {}))
    message.blob.append(b"\xff")
    return message


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with running_registry() as found:
        reference = {"name": "shared/geo.proto", "subject": "geo", "version": 3}
        found.register(1, registered(SCORES), "PROTOBUF", [reference])
        found.subjects["geo", 3] = {"schema": registered(GEO), "schemaType": "PROTOBUF"}
        found.register(2, registered(OUTCOME), "PROTOBUF")
        yield found


OPTIONAL = frozenset({("raw",), ("version",), ("weight",), ("model",)})


def form(stub: RegistryStub, time: str = "at", unit: TimeUnit = "ms", **further: Any) -> WireFormat:
    reading = Reading(time=FieldPath.parse(time).parts, time_unit=unit, optional=OPTIONAL)
    return WireFormat(SchemaRegistry(stub.url), reading, **further)


def predictions(records: Sequence[RawRecord], fields: PredictionFields, **further: Any) -> PredictionBatch:
    return PredictionDecoder(fields, Names(("country", "tier", "shop")), **(LIMITS | further)).decode(records)


def outcomes(records: Sequence[RawRecord], fields: OutcomeFields | None = None, **further: Any) -> OutcomeBatch:
    return OutcomeDecoder(fields or OutcomeFields(), Names(()), **(LIMITS | further)).decode(records)


def read(stub: RegistryStub, message: Any, **further: Any) -> Any:
    found = form(stub, **further).json(wire(1, PREDICTION, message))
    assert found is not None
    return json.loads(found)


def assert_same(found: Any, expected: Any) -> None:
    for one in dataclasses.fields(expected):
        np.testing.assert_equal(getattr(found, one.name), getattr(expected, one.name), err_msg=one.name)


def test_batches_equal_those_of_the_same_events_as_json(stub: RegistryStub) -> None:
    rng = random.Random(4)
    as_json, as_protobuf = [], []
    for i in range(400):
        time = T + rng.randrange(10**6)
        held = {
            "meta": {"id": f"id-{rng.randrange(10**9)}"},
            "p": rng.choice([rng.random(), 1.0000005, 1.2, 0.0]),
            "raw": rng.choice([0.5, 0.125]),
            "version": rng.choice([1, 7]),
            "model": rng.choice(["a", "b"]),
            "weight": rng.choice([None, 0.0, 0.5, -1.0]),
            "country": rng.choice([None, "GB", "Ελλάδα"]),
            "tags": {"shop": rng.choice(["x", "y"]), "unread": "z"},
        }
        at = timestamp_pb2.Timestamp(seconds=time // 1000, nanos=time % 1000 * 10**6 + rng.randrange(10**6))
        message = prediction(**held, at=at, tier=i % 2)
        as_protobuf.append(RawRecord(wire(1, PREDICTION, message), offset=i))
        told = {**held, "at": time, "geo": {"country": held["country"]}, "tier": ("FREE", "PAID")[i % 2]}
        as_json.append(raw(told, offset=i))
    expected = predictions(as_json, FIELDS)
    assert 0 < len(expected.row) < 400
    assert_same(predictions(as_protobuf, FIELDS, value_format=form(stub)), expected)
    paths = ("meta.id", "at", "p", "raw", "version", "weight", "model", "geo.country", "tier", "tags.shop")
    tree = FieldTree.of([FieldPath.parse(path) for path in paths])
    pruned = WireFormat(SchemaRegistry(stub.url), Reading(tree, ("at",), optional=OPTIONAL))
    assert_same(predictions(as_protobuf, FIELDS, value_format=pruned), expected)


def test_the_registry_is_asked_for_compiled_schemas(stub: RegistryStub) -> None:
    read(stub, prediction())
    assert stub.asked == [
        "/schemas/ids/1",
        "/schemas/ids/1?format=serialized",
        "/subjects/geo/versions/3?format=serialized",
    ]


@pytest.mark.parametrize("unit", ["ms", "s", "us", "ns", "rfc3339"])
def test_a_timestamp_is_in_the_configured_unit_where_it_is_the_time(stub: RegistryStub, unit: TimeUnit) -> None:
    at = timestamp_pb2.Timestamp(seconds=T // 1000, nanos=123_456_789)
    fields = dataclasses.replace(FIELDS, time_unit=unit)
    records = [RawRecord(wire(1, PREDICTION, prediction(at=at)))]
    batch = predictions(records, fields, value_format=form(stub, unit=unit))
    assert batch.time_ms.tolist() == [T // 1000 * 1000 + 123]


def test_a_timestamp_elsewhere_is_text_and_its_fields_can_be_asked_for(stub: RegistryStub) -> None:
    at = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=5000)
    assert read(stub, prediction(at=at), time="p")["at"] == "2023-11-14T22:13:20.000005+00:00"
    seconds = Reading(FieldTree.of([FieldPath.parse("at.seconds")]), ("at", "seconds"), "s")
    found = WireFormat(SchemaRegistry(stub.url), seconds).json(wire(1, PREDICTION, prediction(at=at)))
    assert json.loads(found or b"") == {"at": {"seconds": 1_700_000_000}}


def test_zero_is_zero_where_it_is_needed_and_absent_where_nothing_tells_it_from_an_unset_field(
    stub: RegistryStub,
) -> None:
    unset = prediction(p=0.0)  # the bytes of a score of 0 and of no score are the same
    told = read(stub, unset)
    assert told["p"] == 0.0
    assert told["tier"] == "FREE"
    assert told.keys().isdisjoint({"raw", "version", "weight", "model", "geo"})
    batch = predictions([RawRecord(wire(1, PREDICTION, unset))], FIELDS, value_format=form(stub))
    assert batch.served.tolist() == [0.0]
    assert batch.map_version.tolist() == [-1]
    assert read(stub, prediction(weight=0.0))["weight"] == 0.0  # a wrapper tells
    label = outcomes([RawRecord(wire(2, FIRST, CLASSES["Outcome"](id="a", ts=T)))], value_format=form(stub, "ts"))
    assert label.label.tolist() == [0]


def test_a_field_with_presence_is_absent_until_it_is_set(stub: RegistryStub) -> None:
    strict = CLASSES["Strict"]
    unset, negative = strict(id=2**64 - 1, ts=T), strict(id=7, ts=T, label=0)
    records = [RawRecord(wire(2, STRICT, one)) for one in (unset, negative)]
    assert fate(outcomes(records[:1], value_format=form(stub, "ts"))) == "bad_label"
    assert outcomes(records[1:], value_format=form(stub, "ts")).label.tolist() == [0]
    assert json.loads(form(stub, "ts").json(records[0].value or b"") or b"")["id"] == 2**64 - 1


def test_an_enum_is_its_name_and_a_number_where_the_schema_has_none(stub: RegistryStub) -> None:
    for number, name in ((0, "CLICK"), (1, "SALE"), (9, 9)):
        value = wire(2, STRICT, CLASSES["Strict"](id=1, ts=T, kind=number))
        assert json.loads(form(stub, "ts").json(value) or b"")["kind"] == name


def test_nan_is_no_score_and_bytes_are_no_text(stub: RegistryStub) -> None:
    records = [RawRecord(wire(1, PREDICTION, prediction(p=p))) for p in (float("nan"), float("inf"))]
    assert fate(predictions(records[:1], FIELDS, value_format=form(stub))) == "bad_score"
    assert fate(predictions(records[1:], FIELDS, value_format=form(stub))) == "bad_score"
    assert read(stub, prediction())["blob"] == [{}]


GOOD = CLASSES["Outcome"](id="a", ts=T, label=True).SerializeToString()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        FIRST + GOOD[:-1],  # cut
        FIRST + b"\xff" * 20,
        b"\x02\x08" + GOOD,  # the fifth message of three
        b"\x04\x00\x00" + GOOD,  # a message in one that has none
        b"\x01" + GOOD,  # a count of -1
        b"\x02\x01" + GOOD,  # an index of -1
        b"\x80" * 30,
        b"\xfe\xff\xff\xff\x0f" + GOOD,
    ],
)
def test_bytes_that_do_not_fit_are_malformed(stub: RegistryStub, content: bytes) -> None:
    values = [b"\0\0\0\0\x02" + content, b"\0\0\0\0\x02" + FIRST + GOOD]
    batch = outcomes([RawRecord(value) for value in values], value_format=form(stub, "ts"))
    assert len(batch.rejected) == 1
    assert batch.label.tolist() == [1]


def test_any_bytes_are_read_or_malformed(stub: RegistryStub) -> None:
    rng = random.Random(8)
    whole = wire(1, PREDICTION, prediction(raw=0.5, model="m", tags={"shop": "x"}))
    records = []
    for _ in range(2000):
        value = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            value[rng.randrange(5, len(value))] = rng.randrange(256)
        records.append(RawRecord(bytes(value[: rng.randrange(5, len(value) + 1)])))
    batch = predictions(records, FIELDS, value_format=form(stub))
    assert len(batch.row) + len(batch.rejected) == len(records)


@pytest.mark.parametrize(
    "schema",
    [
        "syntax = 'proto3'; message A { }",  # a registry that knows no descriptors
        base64.b64encode(b"\xff\xff\xff").decode(),
        registered(SCORES),  # without its reference, whose type a field needs
        "",
    ],
)
def test_a_schema_that_cannot_be_read_is_no_end(stub: RegistryStub, schema: str) -> None:
    stub.register(5, schema, "PROTOBUF")
    value = wire(5, FIRST, CLASSES["Outcome"](id="a", ts=T))
    assert fate(outcomes([RawRecord(value)], value_format=form(stub, "ts"))) == "malformed"


def test_ids_may_disagree_about_a_type(stub: RegistryStub) -> None:
    changed = OUTCOME.replace('name: "label" number: 3', 'name: "label" number: 13')
    stub.register(6, registered(changed), "PROTOBUF")
    form_ = form(stub, "ts")
    content = FIRST + GOOD
    assert json.loads(form_.json(b"\0\0\0\0\x02" + content) or b"")["label"] is True
    assert json.loads(form_.json(b"\0\0\0\0\x06" + content) or b"")["label"] is False


def test_a_key_of_one_field_is_its_value(stub: RegistryStub) -> None:
    keyed = form(stub, "ts", decode_values=False, decode_keys=True)
    assert keyed.key(wire(2, b"\x02\x04", CLASSES["Key"](request=-5))) == b"-5"
    assert keyed.key(wire(2, FIRST, CLASSES["Outcome"](id="a"))) == b"\xff"


def test_it_is_configured_like_avro(stub: RegistryStub, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"""
events:
  format: protobuf
  schema_registry: {{url: "{stub.url}"}}
  prediction:
    {{id: meta.id, time: at, score: p, raw_score: raw, map_version: version, segments: {{country: geo.country}}}}
segments: {{cuts: [[country]]}}
""",
        encoding="utf-8",
    )
    settings = engine_settings(load_config(path, environ={}, require_kafka=False))
    predicted, outcome = settings.decoders(Names(("country",)))
    batch = predicted.decode([RawRecord(wire(1, PREDICTION, prediction(country="GB", p=0.5)))])
    assert (batch.served.tolist(), batch.time_ms.tolist(), batch.map_version.tolist()) == ([0.5], [T], [-1])
    assert outcome.decode([RawRecord(wire(2, FIRST, CLASSES["Outcome"](id="a", ts=T)))]).label.tolist() == [0]


def test_it_needs_the_address_of_a_registry(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("events: {format: protobuf}", encoding="utf-8")
    with pytest.raises(ConfigError, match="is required to read protobuf"):
        load_config(path, environ={}, require_kafka=False)
