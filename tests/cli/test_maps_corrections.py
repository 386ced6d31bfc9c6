"""What the `maps` commands say of corrections per segment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamcal.maps.document import encode, new_document
from streamcal.maps.families import Platt


def document(version: int, segments: dict[str, dict[str, float]]) -> Any:
    return new_document("default", version, Platt(0.6, -0.1), at_ms=5, segments=segments)


def test_a_map_is_shown_and_compared_with_what_it_does_to_single_segments(streamcal, tmp_path: Path) -> None:
    steep, plain = tmp_path / "steep.json", tmp_path / "plain.json"
    steep.write_bytes(encode(document(3, {"country=GB": {"offset": 0.25}, "country=NO": {"offset": -0.5, "slope": 2}})))
    plain.write_bytes(encode(document(2, {})))
    words = (
        "2 segments, offsets -0.5 to +0.25 (logits), 1 with a slope of their own; "
        "largest: country=NO -0.5 slope 2, country=GB +0.25"
    )
    said = streamcal("maps", "show", "--file", steep)
    assert f"segments    {words}" in said.out
    assert "segments    none" in streamcal("maps", "show", "--file", plain).out
    compared = streamcal("maps", "diff", plain, steep)
    assert f"steep.json corrects single segments besides, not in these figures: {words}." in compared.out
    assert "plain.json corrects" not in compared.out
