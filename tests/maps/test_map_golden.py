"""Documents of earlier releases are still read, and served to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_maps import EXACT, FOLDER, MAPS, arithmetic, served

from streamcal.maps.document import MapDocument, decode, encode
from streamcal.maps.families import FAMILIES

FILES = sorted(FOLDER.glob("*.json"))
RELATIVE = 1e-14
"""What two sound pairs of `log` and `exp` may differ by: the last place of a logit of 16 is 4e-15 of a score."""


def read(path: Path) -> tuple[dict[str, Any], MapDocument, list[float]]:
    content = json.loads(path.read_text())
    return content, decode(content["document"].encode()), [float.fromhex(p) for p in content["scores"]]


def test_every_family_has_a_golden_file() -> None:
    assert {path.stem for path in FILES} == set(MAPS)
    assert {read(path)[1].family for path in FILES} == set(FAMILIES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_documents_keep_their_bytes(path: Path) -> None:
    content, document, _ = read(path)
    assert encode(document).decode() == content["document"]
    assert document.to_map() == MAPS[path.stem]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_same_bits_are_served(path: Path) -> None:
    content, document, scores = read(path)
    key = arithmetic(document.family if not document.segments else "")
    if key not in content["served"]:
        pytest.skip(f"no golden bits for the log and exp of this numpy and processor ({key})")
    assert [p.hex() for p in served(document, scores)] == content["served"][key]
    if not document.segments:
        assert [p.hex() for p in document.to_map().apply(np.array(scores)).tolist()] == content["served"][key]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_any_arithmetic_serves_the_same_but_for_the_last_places(path: Path) -> None:
    content, document, scores = read(path)
    assert content["served"]
    assert document.family not in EXACT or document.segments or set(content["served"]) == {"any"}
    now = np.array(served(document, scores))
    for outputs in content["served"].values():
        golden = np.array([float.fromhex(p) for p in outputs])
        np.testing.assert_allclose(now, golden, rtol=RELATIVE, atol=0)
