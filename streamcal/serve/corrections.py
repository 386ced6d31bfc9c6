"""What a map document adds for single segments, in short: how many, how far, and the largest."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, Final

from streamcal.serve.exposition import label_value

__all__ = ["MOST_LARGEST", "correction", "corrections"]

MOST_LARGEST: Final = 8
"""Corrections told one by one: what fits beside a chart, for each of a hundred maps."""


def corrections(segments: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
    """The corrections of a document in short; None where it has none.

    Parameters
    ----------
    segments : mapping
        Segment key to ``offset`` and perhaps ``slope``, on the logit of what the family serves.

    Returns
    -------
    dict or None
        ``segments`` and how many of them turn the slope (``slopes``), ``offset_low`` and ``offset_high``, and the
        ``largest`` by their offset, ties by name.

    >>> found = corrections({"country=GB": {"offset": 0.25}, "country=NO": {"offset": -0.5, "slope": 0.75}})
    >>> found["offset_low"], found["offset_high"], found["slopes"], found["largest"][0]
    (-0.5, 0.25, 1, {'segment': 'country=NO', 'offset': -0.5, 'slope': 0.75})
    """
    if not segments:
        return None
    # Read from a topic: what a reader would refuse to apply can still be looked at.
    offsets = {key: entry.get("offset", 0.0) for key, entry in segments.items()}
    largest = heapq.nsmallest(MOST_LARGEST, offsets, key=lambda key: (-abs(offsets[key]), key))
    return {
        "segments": len(segments),
        "slopes": sum(entry.get("slope", 1.0) != 1.0 for entry in segments.values()),
        "offset_low": min(offsets.values()),
        "offset_high": max(offsets.values()),
        "largest": [{"segment": label_value(key), **correction(segments[key])} for key in largest],
    }


def correction(entry: Mapping[str, float]) -> dict[str, float]:
    """One entry: its offset, and its slope where it has one."""
    slope = {"slope": entry["slope"]} if "slope" in entry else {}
    return {"offset": entry.get("offset", 0.0)} | slope
