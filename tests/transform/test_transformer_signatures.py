"""A transformer that is given keys: what is not signed by one of them changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcal.errors import StreamcalError
from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Identity, Platt
from streamcal.maps.loop import shadow_key
from streamcal.maps.signing import Verifier, sign_record
from streamcal.maps.signing_keys import HmacKey
from streamcal.transform import CalibrationTransformer, MapUpdate, MemorySource
from streamcal.transform.keys import read_verifier
from streamcal.transform.table import CANDIDATE, MapTable

KEY, STRANGER = HmacKey(b"k" * 32), HmacKey(b"s" * 32)


def document(version: int, model: str = "m") -> bytes:
    return encode(new_document(model, version, Platt(1.0, -version / 10), at_ms=0))


def source(*updates: tuple[str | None, bytes | None]) -> MemorySource:
    made = MemorySource()
    for model, data in updates:
        made.publish(model, data)
    return made


def test_only_what_an_accepted_key_has_signed_is_served_and_the_rest_is_counted() -> None:
    good = sign_record("m", document(3), KEY)
    tampered = good.replace(b'"version":3', b'"version":7')
    updates = [
        ("m", good),
        ("m", document(4)),
        ("m", sign_record("m", document(5), STRANGER)),
        ("m", sign_record(shadow_key("m"), document(6), KEY)),
        ("m", tampered),
    ]
    with CalibrationTransformer(source(*updates), verifier=Verifier([KEY])) as transformer:
        assert transformer.transform(0.5, "m") == (Platt(1.0, -0.3).apply_one(0.5), 3)
        status = transformer.status()
    assert status.problems == {"bad_signature": 3, "corrupt": 1}


def test_a_withdrawal_is_refused_and_a_signed_identity_does_its_work() -> None:
    identity = encode(new_document("m", 4, Identity(), at_ms=0))
    updates = [("m", sign_record("m", document(3), KEY)), ("m", None)]
    with CalibrationTransformer(source(*updates), verifier=Verifier([KEY])) as transformer:
        assert transformer.transform(0.5, "m")[1] == 3
        assert transformer.problems == {"bad_signature": 1}
    updates.append(("m", sign_record("m", identity, KEY)))
    with CalibrationTransformer(source(*updates), verifier=Verifier([KEY])) as transformer:
        assert transformer.transform(0.3, "m") == (0.3, 4)


def test_without_keys_signatures_do_not_matter() -> None:
    with CalibrationTransformer(source(("m", sign_record("m", document(5), STRANGER)))) as transformer:
        assert transformer.transform(0.5, "m")[1] == 5


def test_a_document_in_a_file_is_verified_for_its_model() -> None:
    table = MapTable(Verifier([KEY]))
    assert table.take(MapUpdate(None, sign_record("m", document(1), KEY))).problem is None
    problem = table.take(MapUpdate(None, sign_record(shadow_key("m"), document(2), KEY))).problem
    assert problem is not None
    assert problem.reason == "bad_signature"


def test_candidates_are_passed_over_signed_or_not_and_are_no_problem() -> None:
    assert shadow_key("") == CANDIDATE
    updates = [(shadow_key("m"), document(9)), (shadow_key("m"), None), ("m", document(2))]
    with CalibrationTransformer(source(*updates)) as transformer:
        assert transformer.transform(0.5, "m")[1] == 2
        assert transformer.problems == {}


def test_a_file_that_holds_no_key_is_named_and_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("hunter2")
    with pytest.raises(StreamcalError, match="short") as refused:
        read_verifier(tmp_path / "short")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(StreamcalError, match="No such file"):
        read_verifier(tmp_path / "none")
    with pytest.raises(StreamcalError, match="no key file"):
        read_verifier()
