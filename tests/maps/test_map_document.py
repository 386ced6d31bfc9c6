"""Map documents: canonical bytes, verification, and the shipped JSON Schema."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.errors import MapDocumentError
from streamcal.maps.document import (
    Counts,
    FitWindow,
    MapDocument,
    NewerSchemaError,
    content_hash,
    decode,
    encode,
    new_document,
)
from streamcal.maps.families import (
    FAMILIES,
    Beta,
    Cir,
    Girb,
    Identity,
    Intercept,
    Isotonic,
    Map,
    Platt,
    Prior,
    Temperature,
    Tracking,
)

EVERY_FAMILY = (
    Identity(),
    Prior(negative_sampling_rate=0.1),
    Prior(positive_weight=30),
    Intercept(0.25),
    Temperature(1.5),
    Platt(0.5, 1),
    Beta(0.9, 1, -0.1),
    Isotonic([0.1, 1 / 3, 0.5], [0.125, 0.5, 0.5]),
    Girb([0.1, 0.2], [0.125, 0.7]),
    Cir([-1, 0.1, 2], [-3.5, -1, 0.7]),
    Tracking(0.5, 1),
)

DOCUMENT = new_document(
    "clicks/7",
    12,
    Platt(0.55, -0.43660000000000004),
    at_ms=1_362_000_000_000,
    fit_window=FitWindow(1_360_800_000_000, 1_362_000_000_000),
    counts=Counts(12_345, 2_345),
    evidence={"gain": 5.25, "holdout_n": 420, "holdout_positives": 101},
    parent=11,
)
SCHEMA = json.loads((files("streamcal.maps") / "map.schema.json").read_text())

GOLDEN = (
    b'{"at_ms":1362000000000,"counts":{"n":12345,"positives":2345},'
    b'"evidence":{"gain":5.25,"holdout_n":420.0,"holdout_positives":101.0},"family":"platt",'
    b'"fit_window":{"from_ms":1360800000000,"to_ms":1362000000000},'
    b'"hash":"sha256:9d0fc4c6a460285c0c3c327daef8d7227f374287e918b4fb8b11296691d72ca8","model":"clicks/7",'
    b'"parameters":{"intercept":-0.43660000000000004,"slope":0.55},"parent":11,'
    b'"product_version":"0.1.0","schema_version":1,"segments":{},"version":12}'
)


def resealed(change: dict[str, Any]) -> bytes:
    """The document with `change`, hashed anew by an independent recount of the canonical form."""
    content = {**json.loads(encode(DOCUMENT)), **change}
    content.pop("hash", None)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return json.dumps({**content, "hash": f"sha256:{sha256(canonical).hexdigest()}"}, ensure_ascii=False).encode()


def test_the_bytes_are_those_of_the_first_release() -> None:
    assert encode(decode(GOLDEN)) == GOLDEN
    assert decode(GOLDEN).to_map() == DOCUMENT.to_map()
    assert encode(DOCUMENT) == json.dumps(json.loads(encode(DOCUMENT)), sort_keys=True, separators=(",", ":")).encode()


def test_the_hash_is_the_digest_of_the_rest() -> None:
    assert decode(resealed({})) == DOCUMENT


@pytest.mark.parametrize("map_", EVERY_FAMILY, ids=repr)
def test_a_document_gives_its_map_back(map_: Map) -> None:
    assert decode(encode(new_document("default", 1, map_, at_ms=0))).to_map() == map_


@given(st.floats(1e-6, 1e6), st.floats(-1e6, 1e6), st.text(min_size=1).filter(str.isprintable), st.integers(1, 2**53))
def test_parameters_survive_to_the_bit(slope: float, intercept: float, model: str, version: int) -> None:
    document = new_document(model, version, Platt(slope, intercept), at_ms=0)
    again = decode(encode(document))
    assert again == document
    assert again.to_map() == Platt(slope, intercept)


def test_spaces_and_order_of_keys_do_not_matter() -> None:
    spaced = json.dumps(dict(reversed(json.loads(encode(DOCUMENT)).items())), indent=2).encode()
    assert decode(spaced) == DOCUMENT


@pytest.mark.parametrize(
    "change",
    [
        {"version": 13},
        {"parameters": {"slope": 0.56, "intercept": -0.43660000000000004}},
        {"parameters": {"slope": 0.55, "intercept": -0.4366}},
        {"model": "clicks/8"},
        {"counts": {"n": 12_345, "positives": 2_346}},
        {"evidence": {}},
        {"parent": None},
        {"fit_window": None},
        {"hash": "sha256:" + "0" * 64},
        {"hash": ""},
    ],
)
def test_tampering_is_noticed(change: dict[str, Any]) -> None:
    with pytest.raises(MapDocumentError, match="does not fit the content"):
        decode(json.dumps({**json.loads(encode(DOCUMENT)), **change}).encode())


def test_any_flipped_byte_is_noticed() -> None:
    good = encode(DOCUMENT)
    for place in range(len(good)):
        broken = bytearray(good)
        broken[place] ^= 1
        try:
            # A last digit too far to change a float64 may differ.
            assert decode(bytes(broken)) == DOCUMENT
        except MapDocumentError:
            continue


def test_truncation_is_noticed() -> None:
    good = encode(DOCUMENT)
    for length in range(len(good)):
        with pytest.raises(MapDocumentError):
            decode(good[:length])


def test_a_newer_schema_says_so_whatever_else_it_holds() -> None:
    with pytest.raises(NewerSchemaError, match="schema version 2; this release reads up to 1"):
        decode(b'{"schema_version": 2, "tables": [1, 2]}')


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"slope": -0.5, "intercept": 0.0}},
        {"parameters": {"slope": 0.0, "intercept": 0.0}},
        {"parameters": {"slope": 0.5}},
        {"family": "spline"},
        {"segments": {"country=GB": {"intercept": 0.1}}},
        {"segments": {"country=GB": {"slope": 1.0}}},
        {"segments": {"country=GB": {"offset": 0.1, "slope": 0.0}}},
        {"segments": {"country": {"offset": 0.1}}},
        {"segments": {"country=GB,country=DE": {"offset": 0.1}}},
        {"segments": {"country=%47B": {"offset": 0.1}}},
        {"segments": {"country= GB": {"offset": 0.1}}},
        {"segments": {"all": {"offset": 0.1}}},
        {"family": "isotonic", "parameters": {"scores": 0.5, "values": 0.5}},
        {"family": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.3, 0.3]}},
        {"family": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.3, 0.2]}},
        {"family": "girb", "parameters": {"scores": [0.2, 0.2], "values": [0.1, 0.3]}},
        {"family": "girb", "parameters": {"scores": [0.1, 0.2], "values": [0.0, 0.3]}},
        {"family": "girb", "parameters": {"scores": [0.1, 0.2, 0.3], "values": [0.1, 0.3]}},
        {"family": "cir", "parameters": {"logits": [], "served_logits": []}},
        {"family": "cir", "parameters": {"logits": [0, 1], "served_logits": [0, 0]}},
        {"family": "beta", "parameters": {"a": 0, "b": 0, "c": 0}},
        {"family": "beta", "parameters": {"a": [1], "b": 1, "c": 0}},
        {"family": "platt", "parameters": {"slope": [0.5], "intercept": 0.0}},
        {"schema_version": 0},
        {"version": 0},
        {"model": ""},
        {"at_ms": -1},
        {"counts": {"n": -1, "positives": 0}},
        {"note": "unknown field"},
    ],
)
def test_a_well_hashed_document_that_describes_no_usable_map_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MapDocumentError) as refused:
        decode(resealed(change))
    assert not isinstance(refused.value, NewerSchemaError)


def test_numbers_that_are_not_finite_are_never_written() -> None:
    broken = msgspec.structs.replace(DOCUMENT, evidence={"gain": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(broken)


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"schema_version": "1"}', b"{" * 5000])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(MapDocumentError, match="not a map document"):
        decode(data)


def test_the_schema_accepts_what_is_written() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    segments = {"country=GB,device=a%3Db": {"offset": 0.1, "slope": 0.9}, "country=GB": {"offset": 0}}
    documents = [new_document("default", 1, map_, at_ms=0, segments=segments) for map_ in EVERY_FAMILY]
    assert {document.family for document in documents} == set(FAMILIES)
    for document in (DOCUMENT, *documents):
        jsonschema.validate(json.loads(encode(document)), SCHEMA)


def test_the_schema_names_the_fields_and_families_of_the_code() -> None:
    assert set(SCHEMA["properties"]) == set(MapDocument.__struct_fields__) == {*SCHEMA["required"], "signature"}
    assert SCHEMA["properties"]["family"]["enum"] == list(FAMILIES)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"version": 0},
        {"family": "spline"},
        {"parameters": {"slope": -1.0, "intercept": 0.0}},
        {"parameters": {"slope": 1.0}},
        {"family": "prior"},
        {"family": "identity"},
        {"segments": {"a=b": {}}},
        {"segments": {"a": {"offset": 1.0}}},
        {"segments": {"a=b": {"offset": 1.0, "slope": 0.0}}},
        {"family": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.3, 1.0]}},
        {"family": "cir", "parameters": {"logits": [0.1], "served_logits": [701.0]}},
        {"family": "temperature", "parameters": {"temperature": 0.0}},
        {"family": "beta", "parameters": {"a": -1.0, "b": 1.0, "c": 0.0}},
        {"hash": "md5:0"},
        {"note": 1},
    ],
)
def test_the_schema_refuses_what_the_code_refuses(change: dict[str, Any]) -> None:
    content = {**json.loads(encode(DOCUMENT)), **change}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)
    with pytest.raises(MapDocumentError):
        decode(json.dumps(content).encode())


def test_the_hash_ignores_the_hash() -> None:
    assert content_hash(DOCUMENT) == DOCUMENT.hash == content_hash(msgspec.structs.replace(DOCUMENT, hash="other"))
