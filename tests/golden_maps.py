"""Golden outputs: for one document of every family, what releases have served, to the bit.

A file in `maps/golden/` holds a document as written, scores, and what was served under each *arithmetic*: numpy picks
its `log` and `exp` by processor and version, and they differ in the last place, so bits can be promised per arithmetic
only (families without `log` and `exp` have one, ``any``). Documents and outputs in a file never change; run this to
add outputs for the arithmetic at hand, or a file for a new document::

    python tests/golden_maps.py
    NPY_DISABLE_CPU_FEATURES=X86_V4 python tests/golden_maps.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from streamcal.maps.document import Counts, FitWindow, MapDocument, decode, encode, new_document
from streamcal.maps.families import (
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

FOLDER = Path(__file__).parent / "maps" / "golden"

EXACT = ("identity", "prior", "isotonic", "girb")
"""Families that need neither `log` nor `exp`."""

_KNOTS = [0.0008, 0.0031, 0.011, 0.03, 1 / 15, 0.15, 0.3, 0.62, 0.87]
_VALUES = [0.0005, 0.0044, 0.0044, 0.021, 0.08, 0.08, 0.25, 0.5, 0.81]

MAPS: Mapping[str, Map] = {
    "identity": Identity(),
    "prior_rate": Prior(negative_sampling_rate=0.1),
    "prior_weight": Prior(positive_weight=30.0),
    "intercept": Intercept(-0.4366),
    "temperature": Temperature(1.1630217858890926),
    "platt": Platt(0.60314, 0.00871),
    "beta": Beta(0.7907249, 0.6919384, -0.2045015),
    "isotonic": Isotonic(_KNOTS, _VALUES),
    "girb": Girb(_KNOTS[::2], _VALUES[::2]),
    "cir": Cir([-7.25, -4.5, -4.375, -1.0, 0.1, 3.0], [-6.5, -4.875, -3.75, -1.0625, -0.3, 2.2]),
    "tracking": Tracking(0.93, 0.21),
    "segments": Platt(0.9, -0.2),
}
SEGMENTS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "segments": {
        "country=GB": {"offset": 0.5},
        "country=DE": {"offset": -0.25, "slope": 0.8},
        "country=GB,device=ios": {"offset": -1.0},
        "country=__missing__": {"offset": 0.0625},
    }
}
ROW_SEGMENTS = ({"country": "GB", "device": "ios"}, {"country": "GB"}, {"country": "DE"}, {"country": "FR"}, {})


def golden_scores() -> list[float]:
    """0, 1, the clip and what lies beyond it, knots with their neighbours, and 200 scores over all magnitudes."""
    knots = np.array(_KNOTS)
    ends = [0.0, 5e-324, 1e-9, 1e-7, 1e-6, 0.3, 0.5, 1 - 1e-6, 1 - 1e-7, 1 - 2**-53, 1.0]
    spread = 1 / (1 + np.exp(-np.random.default_rng(41).normal(-2, 5, 200).round(6)))
    near = np.concatenate([knots, np.nextafter(knots, 0), np.nextafter(knots, 1)])
    return [*ends, *near.tolist(), *spread.tolist()]


def arithmetic(family: str = "") -> str:
    """Name of the bits that `log` and `exp` of this numpy on this processor give; ``any`` where neither is used."""
    if family in EXACT:
        return "any"
    x = np.arange(1, 20_001) / 997.0
    return sha256(np.log(x).tobytes() + np.exp(-x).tobytes()).hexdigest()[:12]


def served(document: MapDocument, scores: list[float]) -> list[float]:
    """What the document serves; rows take turns with `ROW_SEGMENTS`."""
    compiled = document.compile()
    return [compiled.apply_one(p, ROW_SEGMENTS[i % len(ROW_SEGMENTS)]) for i, p in enumerate(scores)]


def _new(name: str) -> dict[str, Any]:
    document = new_document(
        "clicks/7",
        12,
        MAPS[name],
        at_ms=1_362_000_000_000,
        fit_window=FitWindow(1_360_800_000_000, 1_362_000_000_000),
        counts=Counts(12_345, 2_345),
        evidence={"gain": 5.25, "holdout_n": 420, "holdout_positives": 101},
        parent=11,
        segments=SEGMENTS.get(name),
    )
    return {"document": encode(document).decode(), "scores": [p.hex() for p in golden_scores()], "served": {}}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in MAPS:
        path = FOLDER / f"{name}.json"
        content = json.loads(path.read_text()) if path.exists() else _new(name)
        document = decode(content["document"].encode())
        key = arithmetic(document.family if not document.segments else "")
        outputs = served(document, [float.fromhex(p) for p in content["scores"]])
        content["served"].setdefault(key, [p.hex() for p in outputs])
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
