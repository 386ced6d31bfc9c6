"""Corrections per segment of map documents, as API, report and command line tell of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import httpx
import pytest
from served_snapshots import NOW_MS, model_of, snapshot_of, sources_of

from streamcal.cli.maps_text import corrections_text
from streamcal.maps.compiled import segment_key
from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt
from streamcal.serve import api_tables as tables
from streamcal.serve.app import application
from streamcal.serve.corrections import MOST_LARGEST, corrections
from streamcal.serve.http import HttpServer
from streamcal.serve.live import SnapshotHolder
from streamcal.serve.report_charts import chart_data
from streamcal.snapshot import MapEntry, MapsHeld, MapState

HOSTILE = segment_key(["country"], ['<img src=x onerror="window.hacked=1">\0.'])


def many(count: int, seed: int = 3) -> dict[str, dict[str, float]]:
    rng = random.Random(seed)
    found: dict[str, dict[str, float]] = {}
    for i in range(count):
        found[f"country=C{i:03d}"] = {"offset": round(rng.gauss(0, 0.4), 3)}
        if i % 5 == 0:
            found[f"country=C{i:03d}"]["slope"] = 0.75
    return found


def document(version: int, segments: dict[str, dict[str, float]]) -> Any:
    return new_document("default", version, Platt(0.6, -0.1), at_ms=NOW_MS, segments=segments, parent=version - 1)


def entry(found: Any) -> MapEntry:
    return MapEntry(found.version, "platt", NOW_MS, NOW_MS, 1, True, "", found)


@pytest.mark.parametrize("count", [1, MOST_LARGEST, MOST_LARGEST + 1, 300])
def test_a_summary_has_the_count_the_range_and_the_largest(count: int) -> None:
    segments = many(count)
    found = corrections(segments)
    assert found is not None
    offsets = {key: held["offset"] for key, held in segments.items()}
    assert (found["segments"], found["slopes"]) == (count, -(-count // 5))
    assert (found["offset_low"], found["offset_high"]) == (min(offsets.values()), max(offsets.values()))
    order = sorted(offsets, key=lambda key: (-abs(offsets[key]), key))[:MOST_LARGEST]
    assert found["largest"] == [{"segment": key, **segments[key]} for key in order]


def test_without_corrections_there_is_no_summary_and_odd_entries_are_no_fault() -> None:
    assert corrections({}) is None
    assert corrections_text(None) == "none"
    found = corrections({"country=GB": {}, "country=NO": {"slope": 2.0, "shape": 7.0}})
    assert found is not None
    assert found["largest"] == [
        {"segment": "country=GB", "offset": 0.0},
        {"segment": "country=NO", "offset": 0.0, "slope": 2.0},
    ]


def test_the_api_tells_of_them_for_every_map_and_for_each_segment() -> None:
    segments = many(40) | {HOSTILE: {"offset": 3.5}}
    plain, corrected = document(4, {}), document(5, segments)
    model = model_of(segments=60)
    model = replace(
        model,
        champion=MapState(5, "platt", NOW_MS),
        map_log=[entry(plain), entry(corrected)],
        maps=MapsHeld(champion=corrected, candidate=plain),
    )
    holder = SnapshotHolder()
    holder.publish(snapshot_of(model))
    with HttpServer(application(sources_of(holder)), port=0) as server:
        base = f"{server.url}/api/v1"
        maps = httpx.get(f"{base}/maps", params={"model": "default"}).json()
        rows = httpx.get(f"{base}/segments", params={"model": "default", "limit": 500}).json()
    tables.MapsAnswer.model_validate(maps, strict=True)
    tables.SegmentsAnswer.model_validate(rows, strict=True)
    assert maps["current"]["corrections"]["segments"] == maps["maps"][0]["segments"] == 41
    assert maps["maps"][0]["corrections"]["offset_high"] == 3.5
    assert maps["maps"][0]["corrections"]["largest"][0] == {"segment": HOSTILE.replace("\0", "%00"), "offset": 3.5}
    assert maps["maps"][1]["corrections"] is None
    assert maps["candidate"]["corrections"] is None
    told = {
        row["segment"]: {name: row[f"map_{name}"] for name in ("offset", "slope") if f"map_{name}" in row}
        for row in rows["segments"]
    }
    assert len(told) == 60
    assert {key: held for key, held in told.items() if held} == many(40)


def test_the_report_has_them_beside_each_map() -> None:
    found = document(2, many(12))
    entries = [
        {"version": 2, "family": "platt", "at_ms": 1, "promoted": True, "reason": "", "document": as_told(found)},
        {"family": "platt", "at_ms": 2, "promoted": False, "reason": "no_gain"},
    ]
    data = chart_data({"segments": {}, "history": [], "alarms": [], "maps": entries})
    refused, promoted = data["maps"]["maps"]
    assert promoted["corrections"] == corrections(many(12))
    assert "corrections" not in refused


def as_told(found: Any) -> Any:
    return json.loads(encode(found))
