"""The keys of the section `maps`: what goes out is signed, what comes in is verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcal.errors import ConfigError
from streamcal.maps.document import decode, encode, new_document
from streamcal.maps.families import Platt
from streamcal.maps.signing import Verifier
from streamcal.maps.signing_keys import HmacKey
from streamcal.runtime.config import load_config
from streamcal.runtime.map_signing import map_signing

OLD, NEW = b"0" * 32, b"1" * 32
DATA = encode(new_document("m", 3, Platt(0.5, 0.0), at_ms=0))


def write(folder: Path, maps: str) -> Path:
    (folder / "old").write_bytes(OLD)
    (folder / "new").write_bytes(NEW + b"\n")
    (folder / "short").write_bytes(b"hunter2")
    path = folder / "streamcal.yaml"
    path.write_text(f"maps: {{{maps}}}".replace("DIR", str(folder)))
    return path


def test_without_keys_documents_pass_as_they_are() -> None:
    signing = map_signing(load_config(None, environ={}, require_kafka=False).maps)
    assert signing.outgoing("m", DATA) == DATA
    assert signing.incoming("m", [DATA, b"damaged"]).accepted == [DATA, b"damaged"]


def test_with_a_key_documents_are_signed_and_others_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "signing_key_file: DIR/new, verify_key_files: [DIR/old]")
    signing = map_signing(load_config(path, environ={}, require_kafka=False).maps)
    data = signing.outgoing("m", DATA)
    Verifier([HmacKey(NEW)]).check(decode(data), "m")
    shadow = signing.outgoing("m#shadow", DATA)
    assert signing.incoming("m", [DATA, data, shadow]).accepted == [data]
    assert signing.incoming("m#shadow", [DATA, data, shadow]).accepted == [shadow]
    assert len(signing.incoming("m", [DATA, b"damaged"]).refused) == 2


def test_every_bad_key_is_listed_and_none_is_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "signing_key_file: DIR/short, verify_key_files: [DIR/old, DIR/none]")
    with pytest.raises(ConfigError) as refused:
        map_signing(load_config(path, environ={}, require_kafka=False).maps)
    text = str(refused.value)
    assert "maps.signing_key_file: a secret of 7 bytes" in text
    assert "maps.verify_key_files.1: cannot be read: No such file" in text
    assert "hunter2" not in text
