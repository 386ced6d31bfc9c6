"""What `import streamcal.transform` loads, in fresh interpreters; `dev.py bench transform` prints what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

AFTER_A_MAP = {"numpy", "msgspec", "typing_extensions", "streamcal"}
"""Packages outside the standard library that applying maps may load: every further one is felt at each start."""

HEAVY = {"hashlib", "pathlib", "dataclasses", "urllib.parse", "uuid", "tempfile"}
"""Of the standard library: 1 to 5 ms each, loaded by what needs them."""

LOADED = "import json, sys, {}\nprint(json.dumps(sorted(sys.modules)))"


FIRST_MAP = """streamcal.transform
from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
source = streamcal.transform.MemorySource()
source.publish("default", encode(new_document("default", 1, Platt(0.5, 0.0), at_ms=0)))
with streamcal.transform.CalibrationTransformer(source) as transformer:
    assert transformer.transform(0.5)[1] == 1
"""


def loaded(code: str) -> set[str]:
    program = LOADED.replace("{}", code)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_it_loads_nothing_but_numpy_and_its_own_room() -> None:
    added = loaded("streamcal.transform") - loaded("numpy")
    assert {name.split(".")[0] for name in added} - sys.stdlib_module_names == {"numpy", "streamcal"}
    own = {name for name in added if name.startswith("streamcal.")}
    assert {name for name in own if not name.startswith("streamcal.transform")} == {"streamcal.errors"}
    assert added & HEAVY == set()


def test_the_first_map_loads_what_reads_and_applies_documents_and_no_more() -> None:
    added = loaded(FIRST_MAP) - loaded("numpy")
    assert {name.split(".")[0] for name in added} - sys.stdlib_module_names <= AFTER_A_MAP
    own = {name.removeprefix("streamcal.") for name in added if name.startswith("streamcal.")} - {"stats"}
    assert {name for name in own if not name.startswith(("transform", "maps", "stats.layout", "errors"))} == set()
    assert not own & {"maps.signing", "maps.fit", "transform.cache", "transform.metrics", "transform.kafka_source"}
