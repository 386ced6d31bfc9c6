"""What `import streamcal.transform` loads, in fresh interpreters; `dev.py bench transform` prints what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

ALLOWED = {"numpy", "msgspec", "typing_extensions", "streamcal"}
"""Packages outside the standard library that it may load: every further one is felt at each start."""

ROOMS = ("transform", "maps", "stats.layout", "errors")
"""Parts of streamcal that it may load."""

LOADED = "import json, sys, {}; print(json.dumps(sorted(sys.modules)))"


def loaded(package: str) -> set[str]:
    code = LOADED.format(package)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_it_loads_nothing_but_numpy_msgspec_and_its_own_rooms() -> None:
    added = loaded("streamcal.transform") - loaded("numpy")
    packages = {name.split(".")[0] for name in added} - sys.stdlib_module_names
    assert packages <= ALLOWED
    own = {name.removeprefix("streamcal.") for name in added if name.startswith("streamcal.")} - {"stats"}
    assert {name for name in own if not name.startswith(ROOMS)} == set()
