"""Avro values read as what they say: the JSON codec, fed with the same events as JSON, is the oracle."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import json
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from raw_records import LIMITS, RawRecord, T, fate, raw
from registry_stub import RegistryStub, running_registry, wire

from streamcal.runtime.config import Config, load_config
from streamcal.runtime.registry import RegistryError, SchemaRegistry
from streamcal.runtime.replay import ReplayOptions, replay
from streamcal.runtime.wire_format import FieldTree, Reading, WireFormat
from streamcal.stream.codec import EventFilter, OutcomeDecoder, OutcomeFields, PredictionDecoder, PredictionFields
from streamcal.stream.events import Names, OutcomeBatch, PredictionBatch
from streamcal.stream.fields import FieldPath, TimeUnit

PREDICTION: dict[str, Any] = {
    "type": "record",
    "name": "Prediction",
    "namespace": "shop.scores",
    "fields": [
        {"name": "meta", "type": {"type": "record", "name": "Meta", "fields": [{"name": "id", "type": "string"}]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "p", "type": "double"},
        {"name": "model", "type": ["null", {"type": "enum", "name": "Model", "symbols": ["a", "b"]}], "default": None},
        {"name": "country", "type": ["null", "string"]},
        {"name": "weight", "type": ["null", "float"]},
        {"name": "unread", "type": {"type": "map", "values": "bytes"}},
    ],
}
OUTCOME: dict[str, Any] = {
    "type": "record",
    "name": "Outcome",
    "fields": [{"name": "id", "type": "string"}, {"name": "label", "type": "boolean"}, {"name": "ts", "type": "long"}],
}
FIELDS = PredictionFields(
    id="meta.id", time="at", score="p", raw_score=None, map_version=None, segments={"country": "country"}
)


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with running_registry() as found:
        found.register(1, PREDICTION)
        found.register(2, OUTCOME)
        yield found


def avro_format(
    stub: RegistryStub, time: str = "at", unit: TimeUnit = "ms", fields: FieldTree | None = None, **further: Any
) -> WireFormat:
    reading = Reading(fields or FieldTree(), FieldPath.parse(time).parts, unit)
    return WireFormat(SchemaRegistry(stub.url), reading, **further)


def predictions(records: list[RawRecord], fields: PredictionFields, **further: Any) -> PredictionBatch:
    return PredictionDecoder(fields, Names(("country",)), **(LIMITS | further)).decode(records)


def outcomes(records: list[RawRecord], fields: OutcomeFields | None = None, **further: Any) -> OutcomeBatch:
    return OutcomeDecoder(fields or OutcomeFields(), Names(()), **(LIMITS | further)).decode(records)


def assert_same(found: Any, expected: Any) -> None:
    for one in dataclasses.fields(expected):
        np.testing.assert_equal(getattr(found, one.name), getattr(expected, one.name), err_msg=one.name)


def random_prediction(rng: random.Random) -> dict[str, Any]:
    return {
        "meta": {"id": f"id-{rng.randrange(10**9)}"},
        "at": (T + rng.randrange(10**6)) * 1000 + rng.randrange(1000),
        "p": rng.choice([rng.random(), 1.0000005, 1.2, 0.0]),
        "model": rng.choice([None, "a", "b"]),
        "country": rng.choice([None, "GB", "Ελλάδα"]),
        "weight": rng.choice([None, 0.5, -1.0]),
        "unread": {"x": b"\xff"},
    }


def test_batches_equal_those_of_the_same_events_as_json(stub: RegistryStub) -> None:
    rng = random.Random(4)
    events = [random_prediction(rng) for _ in range(400)]
    fields = dataclasses.replace(FIELDS, time_unit="us")
    as_json = [raw({**event, "unread": None}, offset=i) for i, event in enumerate(events)]
    as_avro = [RawRecord(wire(1, PREDICTION, event), offset=i) for i, event in enumerate(events)]
    expected = predictions(as_json, fields)
    assert 0 < len(expected.row) < len(events)
    assert_same(predictions(as_avro, fields, value_format=avro_format(stub, unit="us")), expected)
    tree = FieldTree.of([FieldPath.parse(path) for path in ("meta.id", "at", "p", "model", "country", "weight")])
    pruned = avro_format(stub, unit="us", fields=tree)
    assert_same(predictions(as_avro, fields, value_format=pruned), expected)


@pytest.mark.parametrize("unit", ["ms", "s", "us", "ns", "rfc3339"])
@pytest.mark.parametrize(("logical", "per_ms"), [("timestamp-millis", 1), ("timestamp-micros", 1000)])
def test_an_instant_says_its_own_unit(stub: RegistryStub, unit: TimeUnit, logical: str, per_ms: int) -> None:
    schema = json.loads(json.dumps(PREDICTION).replace("timestamp-micros", logical))
    stub.register(3, schema)
    times = [T, T + 1, T + 999, 946_684_800_000]
    event = {"meta": {"id": "a"}, "p": 0.3, "country": None, "weight": None, "unread": {}}
    records = [
        RawRecord(wire(3, schema, {**event, "at": dt.datetime.fromtimestamp(time / 1000, dt.UTC)})) for time in times
    ]
    fields = dataclasses.replace(FIELDS, time_unit=unit)
    batch = predictions(records, fields, value_format=avro_format(stub, unit=unit))
    assert batch.time_ms.tolist() == times
    assert per_ms  # the schema's own unit plays no part


def test_a_plain_number_is_in_the_configured_unit(stub: RegistryStub) -> None:
    record = RawRecord(wire(2, OUTCOME, {"id": "a", "label": True, "ts": T // 1000}))
    seconds = OutcomeFields(time_unit="s")
    assert outcomes([record], seconds, value_format=avro_format(stub, "ts", "s")).time_ms.tolist() == [T // 1000 * 1000]
    assert fate(outcomes([record], value_format=avro_format(stub, "ts"))) == "bad_time"


def typed(kind: Any) -> dict[str, Any]:
    names = ("id", "ts", "score", "weight")
    kinds = {"id": "string", "ts": "long", "score": "double", "weight": "double"} | kind
    return {"type": "record", "name": "P", "fields": [{"name": name, "type": kinds[name]} for name in names]}


@pytest.mark.parametrize(
    ("kind", "held", "expected"),
    [
        ({}, {}, "accepted"),
        ({"id": {"type": "string", "logicalType": "uuid"}}, {"id": uuid.UUID(int=5)}, "accepted"),
        ({"id": "long"}, {"id": 5}, "accepted"),
        ({"id": "bytes"}, {"id": b"a"}, "missing_id"),
        ({"score": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
         {"score": decimal.Decimal("0.25")}, "accepted"),
        ({}, {"score": float("nan")}, "bad_score"),
        ({}, {"score": float("inf")}, "bad_score"),
        ({}, {"weight": float("nan")}, "bad_weight"),
        ({"score": "string"}, {"score": "0.3"}, "bad_score"),
        ({"ts": "double"}, {"ts": float(T)}, "bad_time"),
        ({"ts": {"type": "int", "logicalType": "date"}}, {"ts": dt.date(2024, 1, 1)}, "bad_time"),
    ],
)  # fmt: skip
def test_fate_of_avro_values(stub: RegistryStub, kind: Any, held: Any, expected: str) -> None:
    schema = typed(kind)
    stub.register(5, schema)
    record = RawRecord(wire(5, schema, {"id": "a", "ts": T, "score": 0.3, "weight": 1.0} | held))
    form = avro_format(stub, "ts")
    assert (
        fate(PredictionDecoder(PredictionFields(), Names(()), **LIMITS, value_format=form).decode([record])) == expected
    )


def test_bytes_that_do_not_fit_are_malformed(stub: RegistryStub) -> None:
    good = wire(2, OUTCOME, {"id": "a", "label": True, "ts": T})
    stub.register(8, {"type": "string"})
    stub.register(9, "syntax = 'proto3';", kind="PROTOBUF")
    stub.register(10, "no schema at all")
    values = [
        good[:-1], good + b"\0", b"", b"\0", b"\0\0\0\0\2", b'{"id": "a"}', b"\1" + good[1:],
        b"\0\0\0\0\x63" + good[5:], wire(8, "string", "a"), b"\0\0\0\0\x09abc", b"\0\0\0\0\x0aabc",
    ]  # fmt: skip
    batch = outcomes([RawRecord(value) for value in [*values, good, None]], value_format=avro_format(stub, "ts"))
    assert [r.reason for r in batch.rejected] == ["malformed"] * len(values)
    assert batch.row.tolist() == [len(values)]
    assert batch.ignored == 1


RECURSIVE = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "score", "type": "double"},
        {"name": "parent", "type": ["null", "P"]},
    ],
}


@pytest.mark.parametrize("depth", [500, 5_000, 50_000])
def test_a_value_inside_itself_without_end_is_malformed_and_the_next_is_read(stub: RegistryStub, depth: int) -> None:
    stub.register(7, RECURSIVE)
    inner = b"\x02a" + bytes(9)  # id, time 0, score 0.0
    head = b"\0" + (7).to_bytes(4, "big")
    deep = RawRecord(head + (inner + b"\x02") * depth + inner + b"\0")
    held: dict[str, Any] = {"id": "b", "ts": T, "score": 0.25, "parent": None}
    sound = RawRecord(wire(7, RECURSIVE, held | {"parent": held}))
    value_format = avro_format(stub, time="ts")
    batch = predictions([deep, sound], PredictionFields(), value_format=value_format, max_bytes=10**6)
    assert [(one.row, one.reason) for one in batch.rejected] == [(0, "malformed")]
    assert batch.raw.tolist() == [0.25]


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_a_schema_by_which_few_bytes_ask_for_any_memory_is_not_read(stub: RegistryStub, items: Any) -> None:
    fields = [*RECURSIVE["fields"][:3], {"name": "x", "type": {"type": "array", "items": items}}]
    schema = {"type": "record", "name": "Q", "fields": fields}
    stub.register(8, schema)
    record = RawRecord(wire(8, schema, {"id": "a", "ts": T, "score": 0.5, "x": []}))
    batch = predictions([record], PredictionFields(), value_format=avro_format(stub, time="ts"))
    assert [one.reason for one in batch.rejected] == ["malformed"]


def test_a_random_byte_never_does_more_than_spoil_its_own_record(stub: RegistryStub) -> None:
    rng = random.Random(11)
    records = []
    for _ in range(2000):
        value = bytearray(wire(1, PREDICTION, random_prediction(rng)))
        value[rng.randrange(5, len(value))] ^= 1 << rng.randrange(8)
        records.append(RawRecord(bytes(value)))
    batch = predictions(records, FIELDS, value_format=avro_format(stub))
    assert len(batch.row) + len(batch.rejected) == len(records)


def test_a_value_too_long_on_the_wire_is_too_large_unless_something_else_is_wrong(stub: RegistryStub) -> None:
    event = {"meta": {"id": "a"}, "at": T * 1000, "p": 0.3, "country": None, "weight": None}
    long = {**event, "unread": {"x": b"y" * 3000}}
    form = avro_format(stub, fields=FieldTree.of([FieldPath.parse(p) for p in ("meta.id", "at", "p")]))
    records = [RawRecord(wire(1, PREDICTION, held)) for held in (long, {**long, "p": 7.0}, {**event, "unread": {}})]
    batch = predictions(records, FIELDS, value_format=form, max_bytes=2000)
    assert [r.reason for r in batch.rejected] == ["too_large", "bad_score"]
    assert batch.row.tolist() == [2]


def test_a_filter_picks_among_avro_values(stub: RegistryStub) -> None:
    fields = OutcomeFields(filter=EventFilter("label", True))
    records = [RawRecord(wire(2, OUTCOME, {"id": "a", "label": label, "ts": T})) for label in (True, False)]
    batch = outcomes(records, fields, value_format=avro_format(stub, "ts"))
    assert (batch.row.tolist(), batch.ignored, batch.clock_ms.tolist()) == ([0], 1, [T, T])


def test_named_types_of_references_are_found(stub: RegistryStub) -> None:
    instant = {"type": "record", "name": "time.At", "fields": [
        {"name": "v", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}  # fmt: skip
    outer = {"type": "record", "name": "O", "fields": [
        {"name": "id", "type": "string"}, {"name": "label", "type": "int"},
        {"name": "when", "type": ["null", "time.At"]},
    ]}  # fmt: skip
    stub.register(6, outer, references=[{"name": "time.At", "subject": "at", "version": 1}])
    stub.subjects["at", 1] = {"schema": json.dumps(instant)}
    named: dict[str, Any] = {}
    fastavro.parse_schema(instant, named)
    record = RawRecord(wire(6, outer, {"id": "a", "when": {"v": T}, "label": 1}, named))
    fields = OutcomeFields(time="when.v", time_unit="rfc3339")
    batch = outcomes([record], fields, value_format=avro_format(stub, "when.v", "rfc3339"))
    assert batch.time_ms.tolist() == [T]


def test_json_behind_a_schema_id_is_read_as_json(stub: RegistryStub) -> None:
    stub.register(4, "{}", kind="JSON")
    record = RawRecord(b"\0\0\0\0\4" + json.dumps({"id": "a", "label": 0, "ts": T}).encode())
    assert outcomes([record], value_format=avro_format(stub, "ts")).label.tolist() == [0]


@pytest.mark.parametrize(
    ("schema", "held", "text"),
    [
        ("string", "a1", b"a1"),
        ("long", 7, b"7"),
        ({"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]}, {"id": "a1"}, b"a1"),
    ],
)
def test_keys_in_the_wire_format_are_text(stub: RegistryStub, schema: Any, held: Any, text: bytes) -> None:
    stub.register(12, json.dumps(schema))
    form = avro_format(stub, decode_keys=True)
    assert form.key(wire(12, schema, held)) == text
    assert avro_format(stub).key(b"as it is") == b"as it is"
    record = RawRecord(wire(2, OUTCOME, {"id": "", "label": True, "ts": T}), key=b"no wire format")
    batch = outcomes([record], OutcomeFields(id="$key"), value_format=avro_format(stub, "ts", decode_keys=True))
    assert [r.reason for r in batch.rejected] == ["malformed"]


def test_an_outage_waits_and_loses_nothing(stub: RegistryStub) -> None:
    stub.failures = [503, 503]
    record = RawRecord(wire(2, OUTCOME, {"id": "a", "label": True, "ts": T}))
    assert fate(outcomes([record], value_format=avro_format(stub, "ts"))) == "accepted"
    stub.failures = [503] * 50
    form = WireFormat(SchemaRegistry(stub.url, patience_s=0.3), Reading(time=("ts",)))
    with pytest.raises(RegistryError):
        outcomes([record], value_format=form)
    stub.failures = []
    assert fate(outcomes([record], value_format=form)) == "accepted"


# --- through the engine -----------------------------------------------------------------------------------


def config(path: Path, url: str | None) -> Config:
    text = (
        "events:\n  prediction: {id: meta.id, time: at, time_unit: us, score: p, segments: {country: country}}\n"
        "join: {horizon: 1h}\nsegments: {cuts: [[country]]}\nrefit: {mode: off}\n"
    )
    if url is not None:
        text = text.replace("events:\n", f"events:\n  format: avro\n  schema_registry: {{url: '{url}'}}\n")
    path.write_text(text, encoding="utf-8")
    return load_config(path, environ={}, require_kafka=False)


def test_a_replay_of_avro_equals_that_of_json(stub: RegistryStub, tmp_path: Path) -> None:
    rng = random.Random(8)
    files: dict[str, list[str]] = {"json": [], "avro": []}
    for i in range(300):
        event = random_prediction(rng) | {"at": (T + 1000 * i) * 1000}
        outcome = {"id": event["meta"]["id"], "label": rng.random() < 0.3, "ts": event["at"] // 1000 + 5000}
        for topic, number, schema, held in (("predictions", 1, PREDICTION, event), ("outcomes", 2, OUTCOME, outcome)):
            binary = base64.b64encode(wire(number, schema, held)).decode()
            plain = {name: value for name, value in held.items() if name != "unread"}
            files["json"].append(json.dumps({"topic": topic, "value": plain}))
            files["avro"].append(json.dumps({"topic": topic, "value_base64": binary}))
    results = {}
    for name, lines in files.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        settings = config(tmp_path / f"{name}.yaml", stub.url if name == "avro" else None)
        results[name] = replay(settings, ReplayOptions(events=path, drain=True))
    found, expected = results["avro"], results["json"]
    assert expected.counters["matched"] > 50
    assert expected.rejected["bad_score"] > 0
    assert (found.counters, found.rejected) == (expected.counters, expected.rejected)
    assert found.models == expected.models
    assert (found.from_ms, found.to_ms) == (expected.from_ms, expected.to_ms)


def test_files_of_lines_are_json_whatever_the_topics_are(tmp_path: Path) -> None:
    lines = tmp_path / "p.jsonl"
    lines.write_text('{"meta": {"id": "a"}, "at": 1700000000000000, "p": 0.3}\n', encoding="utf-8")
    settings = config(tmp_path / "c.yaml", "http://127.0.0.1:1")
    result = replay(settings, ReplayOptions(predictions=lines, outcomes=lines))
    assert result.counters["accepted_prediction"] == 1


def test_a_registry_that_is_away_at_the_start_is_named(tmp_path: Path) -> None:
    events = tmp_path / "e.jsonl"
    events.write_text("", encoding="utf-8")
    settings = config(tmp_path / "c.yaml", "http://127.0.0.1:1")
    with pytest.raises(RegistryError, match="does not answer") as caught:
        replay(settings, ReplayOptions(events=events))
    assert "http://127.0.0.1:1" in str(caught.value)
    assert "events.schema_registry.url" in str(caught.value)


def test_json_values_may_have_keys_in_the_wire_format(stub: RegistryStub, tmp_path: Path) -> None:
    from streamcal.runtime.wiring import engine_settings

    stub.register(12, '"string"')
    path = tmp_path / "c.yaml"
    path.write_text(
        f"events: {{key_format: avro, schema_registry: {{url: '{stub.url}'}}, outcome: {{id: $key}}}}", encoding="utf-8"
    )
    settings = engine_settings(load_config(path, environ={}, require_kafka=False))
    record = RawRecord(json.dumps({"label": 1, "ts": T}).encode(), key=wire(12, "string", "a1"))
    _, decoder = settings.decoders(Names(()))
    found, expected = decoder.decode([record]), outcomes([raw({"id": "a1", "label": 1, "ts": T})])
    assert_same(found, expected)


def test_scores_by_class_may_be_a_map_or_a_record_and_an_enum_their_label(stub: RegistryStub, tmp_path: Path) -> None:
    from streamcal.runtime.wiring import engine_settings

    by_class = {"type": "record", "name": "Scores", "fields": [{"name": n, "type": "double"} for n in ("cat", "dog")]}
    fields: list[dict[str, Any]] = [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "scores", "type": by_class},
        {"name": "raw_scores", "type": ["null", {"type": "map", "values": "double"}]},
        {"name": "map_versions", "type": {"type": "map", "values": "long"}},
    ]
    scored = {"type": "record", "name": "Scored", "fields": fields}
    label = {"name": "label", "type": {"type": "enum", "name": "Pet", "symbols": ["cat", "dog"]}}
    told = {"type": "record", "name": "Told", "fields": [*fields[:2], label]}
    stub.register(21, scored)
    stub.register(22, told)
    path = tmp_path / "c.yaml"
    text = f"events: {{format: avro, classes: [cat, dog], schema_registry: {{url: '{stub.url}'}}}}"
    path.write_text(text + "\nsegments: {cuts: []}\n", encoding="utf-8")
    settings = engine_settings(load_config(path, environ={}, require_kafka=False))
    event = {"id": "a", "ts": T, "scores": {"cat": 0.25, "dog": 0.75}, "raw_scores": {"cat": 0.5, "dog": 0.5}}
    event["map_versions"] = {"dog": 3}
    predicted, outcome = settings.decoders(Names(()))
    found = predicted.decode([RawRecord(wire(21, scored, event))])
    assert (found.served.tolist(), found.raw.tolist()) == ([0.25, 0.75], [0.5, 0.5])
    assert found.map_version.tolist() == [-1, 3]
    assert outcome.decode([RawRecord(wire(22, told, {"id": "a", "ts": T, "label": "dog"}))]).label.tolist() == [0, 1]
