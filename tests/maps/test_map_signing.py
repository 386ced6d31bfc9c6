"""Signed map documents, checked against OpenSSL's and the standard library's own signatures."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument, decode, encode, new_document
from streamcal.maps.families import Identity, Platt
from streamcal.maps.signing import BadSignatureError, Verifier, sign, sign_record, verified
from streamcal.maps.signing_keys import HmacKey, SigningKey, parse_signing_key, parse_verify_key

SECRET = b"0123456789abcdef0123456789abcdef"
DOCUMENT = new_document("clicks/7", 12, Platt(0.55, -0.4), at_ms=5, segments={"country=GB": {"offset": 0.5}})
SCHEMA = json.loads((files("streamcal.maps") / "map.schema.json").read_text())


def openssl(*arguments: str | Path, given: bytes = b"") -> bytes:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    return subprocess.run([program, *map(str, arguments)], input=given, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def pem() -> tuple[bytes, bytes]:
    """A private key and its public one, as OpenSSL writes them."""
    private = openssl("genpkey", "-algorithm", "ed25519")
    return private, openssl("pkey", "-pubout", given=private)


@pytest.fixture(params=["hmac-sha256", "ed25519"])
def pair(request: pytest.FixtureRequest) -> tuple[SigningKey, Verifier]:
    if request.param == "hmac-sha256":
        return parse_signing_key(SECRET), Verifier([parse_verify_key(SECRET + b"\n")])
    private, public = request.getfixturevalue("pem")
    return parse_signing_key(private), Verifier([parse_verify_key(public)])


def message(document: MapDocument, key: str) -> bytes:
    """By the format page, without the product."""
    content = json.loads(encode(document))
    content.pop("signature", None)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"{key}\n{text}".encode()


def test_a_signed_document_is_accepted_and_keeps_its_hash(pair: tuple[SigningKey, Verifier]) -> None:
    key, verifier = pair
    signed = decode(encode(sign(DOCUMENT, key)))
    verifier.check(signed)
    verifier.check(signed, "clicks/7")
    assert signed.hash == DOCUMENT.hash
    assert signed.to_map() == DOCUMENT.to_map()
    jsonschema.validate(json.loads(encode(signed)), SCHEMA)


def test_an_hmac_is_that_of_the_standard_library() -> None:
    signed = json.loads(sign_record("clicks/7", encode(DOCUMENT), HmacKey(SECRET)))
    assert signed["signature"] == {
        "algorithm": "hmac-sha256",
        "key_id": hmac.new(SECRET, b"streamcal key id", hashlib.sha256).hexdigest()[:16],
        "value": hmac.new(SECRET, message(DOCUMENT, "clicks/7"), hashlib.sha256).hexdigest(),
    }


def test_openssl_accepts_our_signature_and_we_accept_its(pem: tuple[bytes, bytes], tmp_path: Path) -> None:
    private, public = pem
    for name, content in (("private", private), ("public", public), ("message", message(DOCUMENT, "clicks/7"))):
        (tmp_path / name).write_bytes(content)
    ours = json.loads(encode(sign(DOCUMENT, parse_signing_key(private))))["signature"]
    (tmp_path / "ours").write_bytes(bytes.fromhex(ours["value"]))
    common = ("pkeyutl", "-rawin", "-in", tmp_path / "message")
    openssl(*common, "-verify", "-pubin", "-inkey", tmp_path / "public", "-sigfile", tmp_path / "ours")
    theirs = openssl(*common, "-sign", "-inkey", tmp_path / "private").hex()
    content = {**json.loads(encode(DOCUMENT)), "signature": {**ours, "value": theirs}}
    Verifier([parse_verify_key(public)]).check(decode(json.dumps(content).encode()))


def test_an_unsigned_document_is_refused(pair: tuple[SigningKey, Verifier]) -> None:
    with pytest.raises(BadSignatureError, match="is not signed"):
        pair[1].check(DOCUMENT)


def test_what_is_changed_and_hashed_again_is_refused(pair: tuple[SigningKey, Verifier]) -> None:
    key, verifier = pair
    signed = json.loads(encode(sign(DOCUMENT, key)))
    for change in ({"version": 13}, {"model": "clicks/8"}, {"parameters": {"slope": 0.9, "intercept": -0.4}}):
        content = {**signed, **change}
        rest = {name: content[name] for name in content if name not in ("hash", "signature")}
        text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        content["hash"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        with pytest.raises(BadSignatureError, match="does not fit"):
            verifier.check(decode(json.dumps(content).encode()))


def test_a_signature_holds_for_one_key_of_the_topic_only(pair: tuple[SigningKey, Verifier]) -> None:
    key, verifier = pair
    candidate = sign(DOCUMENT, key, "clicks/7#shadow")
    verifier.check(candidate, "clicks/7#shadow")
    with pytest.raises(BadSignatureError, match="does not fit"):
        verifier.check(candidate, "clicks/7")


def test_every_bit_of_a_signature_matters(pair: tuple[SigningKey, Verifier]) -> None:
    key, verifier = pair
    signed = json.loads(encode(sign(DOCUMENT, key)))
    value = bytes.fromhex(signed["signature"]["value"])
    for place in range(0, len(value) * 8, 5):
        wrong = bytearray(value)
        wrong[place // 8] ^= 1 << place % 8
        content = {**signed, "signature": {**signed["signature"], "value": wrong.hex()}}
        with pytest.raises(BadSignatureError):
            verifier.check(decode(json.dumps(content).encode()))
    for cut in (value[:-1], value + b"\0", value[:1]):
        content = {**signed, "signature": {**signed["signature"], "value": cut.hex()}}
        with pytest.raises(BadSignatureError):
            verifier.check(decode(json.dumps(content).encode()))


def test_a_rotation_accepts_old_and_new_and_then_the_new_alone(pem: tuple[bytes, bytes]) -> None:
    old, new = HmacKey(SECRET), parse_signing_key(pem[0])
    both = Verifier([old, parse_verify_key(pem[1])])
    both.check(sign(DOCUMENT, old))
    both.check(sign(DOCUMENT, new))
    with pytest.raises(BadSignatureError, match=f"key {old.key_id}; accepted: {new.key_id}"):
        Verifier([new]).check(sign(DOCUMENT, old))


def test_a_public_key_taken_for_a_secret_signs_nothing(pem: tuple[bytes, bytes]) -> None:
    """The classic confusion: an HMAC with the public key, which everybody has, under the name of that key."""
    public = parse_verify_key(pem[1])
    forged = sign(DOCUMENT, HmacKey(pem[1]))
    content = json.loads(encode(forged))
    for algorithm in ("hmac-sha256", "ed25519"):
        content["signature"] |= {"algorithm": algorithm, "key_id": public.key_id}
        with pytest.raises(BadSignatureError):
            Verifier([public]).check(decode(json.dumps(content).encode()))


def test_records_that_do_not_verify_are_left_out_and_told() -> None:
    key = HmacKey(SECRET)
    good = encode(sign(DOCUMENT, key))
    later = encode(sign(new_document("clicks/7", 13, Identity(), at_ms=0), key))
    records = [good, encode(DOCUMENT), b"damaged", b'{"schema_version": 7}', later]
    accepted, refused = verified("clicks/7", records, Verifier([key]))
    assert accepted == [good, later]
    assert len(refused) == 3
    assert verified("clicks/7", records, None) == (records, [])


@pytest.mark.parametrize("signature", [None, {}, {"algorithm": "x"}, "00", {"algorithm": "ed25519", "key_id": "k"}])
def test_a_signature_of_another_form_is_no_document(signature: object) -> None:
    with pytest.raises(MapDocumentError, match="not a map document"):
        decode(json.dumps({**json.loads(encode(DOCUMENT)), "signature": signature}).encode())


@pytest.mark.parametrize("parse", [parse_signing_key, parse_verify_key])
def test_content_that_is_no_key_is_refused_without_repeating_it(parse: object, pem: tuple[bytes, bytes]) -> None:
    assert callable(parse)
    rsa = openssl("genpkey", "-algorithm", "rsa", "-pkeyopt", "rsa_keygen_bits:2048")
    other = rsa if parse is parse_signing_key else openssl("pkey", "-pubout", given=rsa)
    half = pem[1].replace(b"A", b"!")
    for content in (b"", b"hunter2", b" " * 40, other, pem[parse is parse_signing_key], half):
        with pytest.raises(ValueError, match=r"bytes|PEM|kind|private") as refused:
            parse(content)
        assert "hunter2" not in str(refused.value)


def test_an_unsigned_document_and_an_hmac_load_no_cryptography() -> None:
    code = (
        "import sys; from streamcal.maps.signing_keys import HmacKey; import streamcal.maps.signing;"
        "HmacKey(bytes(32)).sign(b''); print('cryptography' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
