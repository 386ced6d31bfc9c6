"""The conformance vectors: still what exact arithmetic says, passed by Python and by the JavaScript example."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from conformance_vectors import FOLDER, files

from streamcal.errors import MapDocumentError
from streamcal.maps.document import MapDocument, decode, encode
from streamcal.maps.families import FAMILIES
from streamcal.maps.signing import Verifier, verified
from streamcal.maps.signing_keys import parse_verify_key
from streamcal.transform.classes import apply_classes

RUNNER = Path(__file__).parent.parent.parent / "examples" / "javascript" / "conformance.mjs"
SCHEMA = json.loads((Path(__file__).parent.parent.parent / "streamcal" / "maps" / "map.schema.json").read_text())
FORMAT = (Path(__file__).parent.parent.parent / "docs" / "map-format.md").read_text()
APPLIED = [path for path in sorted(FOLDER.glob("*.json")) if path.stem not in ("refused", "signed", "classes")]
REFUSED = json.loads((FOLDER / "refused.json").read_text())["items"]
CLASSES = json.loads((FOLDER / "classes.json").read_text())
SIGNED = json.loads((FOLDER / "signed.json").read_text())


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_the_files_are_what_exact_arithmetic_gives() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == files()


def test_the_files_cover_every_family_and_segments() -> None:
    documents = [decode(read(path)["document"].encode()) for path in APPLIED]
    assert {document.family for document in documents} == set(FAMILIES)
    assert any(document.segments for document in documents)


def test_the_format_page_names_every_family_field_and_parameter() -> None:
    named = {*FAMILIES, *MapDocument.__struct_fields__, "offset", "slope"}
    for path in APPLIED:
        named |= set(decode(read(path)["document"].encode()).parameters)
    assert {name for name in named if f"`{name}`" not in FORMAT} == set()


@pytest.mark.parametrize("path", APPLIED, ids=lambda path: path.stem)
def test_python_serves_the_vectors(path: Path) -> None:
    content = read(path)
    document = decode(content["document"].encode())
    jsonschema.validate(json.loads(content["document"]), SCHEMA)
    assert encode(document).decode() == content["document"]
    compiled = document.compile()
    for vector in content["items"]:
        assert float.fromhex(vector["score_hex"]) == vector["score"]
        assert float.fromhex(vector["served_hex"]) == vector["served"]
        one = compiled.apply_one(vector["score"], vector.get("segments"))
        assert one == pytest.approx(vector["served"], rel=content["relative_tolerance"], abs=0)
        assert compiled.apply(np.array([vector["score"]]), vector.get("segments")).tolist() == [one]


@pytest.mark.parametrize("item", REFUSED, ids=lambda item: item["why"])
def test_python_refuses_what_must_be_refused(item: dict[str, str]) -> None:
    with pytest.raises(MapDocumentError):
        decode(item["document"].encode())


@pytest.mark.parametrize("item", SIGNED["items"], ids=lambda item: item["why"])
def test_python_takes_what_is_signed_by_an_accepted_key_and_nothing_else(item: dict[str, Any]) -> None:
    verifier = Verifier(parse_verify_key(content.encode()) for content in SIGNED["keys"])
    accepted, refused = verified(item["key"], [item["document"].encode()], verifier)
    assert (len(accepted), len(refused)) == (item["accepted"], not item["accepted"])


@pytest.mark.parametrize("item", CLASSES["items"], ids=range(len(CLASSES["items"])))
def test_python_serves_several_classes(item: dict[str, Any]) -> None:
    maps = {name: decode(text.encode()).compile() for name, text in CLASSES["documents"].items()}
    served = apply_classes(item["scores"], maps, CLASSES["classes"], item.get("segments"))
    assert list(served) == pytest.approx(item["served"], rel=CLASSES["relative_tolerance"], abs=0)
    assert sum(served) == pytest.approx(1.0, abs=1e-12)


def node() -> str:
    found = shutil.which("node")
    if found is None:
        reason = "node is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return found


def test_javascript_passes_all_vectors() -> None:
    run = subprocess.run([node(), RUNNER, FOLDER], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    total = sum(len(read(path)["items"]) for path in FOLDER.glob("*.json"))
    assert f"{total} of {total} passed" in run.stdout
    assert f"{total} of {total} passed" in FORMAT


def test_javascript_notices_a_wrong_vector(tmp_path: Path) -> None:
    content = (FOLDER / "platt.json").read_text().replace('"score": 0.3,', '"score": 0.31,')
    (tmp_path / "platt.json").write_text(content)
    run = subprocess.run([node(), RUNNER, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "platt.json" in run.stdout


def test_javascript_serves_basic_arithmetic_to_the_bit() -> None:
    """Families without log and exp have one answer in any language."""
    program = f"""
        import {{ readFileSync }} from 'node:fs'
        import {{ compile }} from {json.dumps(RUNNER.with_name("streamcal-map.mjs").as_uri())}
        for (const name of ['identity', 'prior_rate', 'prior_weight', 'isotonic', 'girb']) {{
          const file = JSON.parse(readFileSync({json.dumps(str(FOLDER))} + `/${{name}}.json`, 'utf8'))
          const map = compile(file.document)
          console.log(JSON.stringify(file.items.map((item) => map.apply(item.score))))
        }}
    """
    run = subprocess.run([node(), "--input-type=module", "-e", program], capture_output=True, text=True, check=True)
    for name, line in zip(
        ("identity", "prior_rate", "prior_weight", "isotonic", "girb"), run.stdout.splitlines(), strict=True
    ):
        content = read(FOLDER / f"{name}.json")
        map_ = decode(content["document"].encode()).to_map()
        assert json.loads(line) == [map_.apply_one(vector["score"]) for vector in content["items"]]
