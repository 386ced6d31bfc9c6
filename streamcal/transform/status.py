"""What a transformer tells about itself: to health checks, and to `streamcal.transform.metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["NO_MAP", "PROBLEMS", "UNMAPPED", "MapStatus", "Problem", "TransformerStatus"]

NO_MAP: Final = 0
"""Map version returned with a score that no map was applied to."""

PROBLEMS: Final = ("corrupt", "newer_schema", "wrong_model", "bad_signature", "source", "cache")
"""Why an update was not taken: it does not verify; its schema is newer than this release; it is filed under another
model than it names; it is not signed by an accepted key; the source itself failed (and is asked again); the cache on
disk could not be written."""

UNMAPPED: Final = ("no_map", "unknown_model", "stale")
"""Why a score came back as it was: there is no map at all; there are maps, but none of its model; maps are set aside
because the source has been silent for too long."""


class MapStatus(NamedTuple):
    """The map of one model that is in force.

    Attributes
    ----------
    version : int
    family : str
    at_ms : int
        Event time of the decision, ms; 0 for a map of day 0.
    hash : str
        Of the document.
    cached : bool
        Whether it came from the cache and the source has not confirmed it since.
    """

    version: int
    family: str
    at_ms: int
    hash: str
    cached: bool = False


class Problem(NamedTuple):
    """An update not taken: one of `PROBLEMS`, and words."""

    reason: str
    text: str


class TransformerStatus(NamedTuple):
    """What a health check wants to know.

    Attributes
    ----------
    maps : mapping
        Model to the map known last; with `stale` and ``when_stale="identity"`` it is not applied.
    problems : mapping
        Reason (`PROBLEMS`) to how often.
    last_problem : str
        The latest one in words; empty when there was none.
    scores : mapping
        Model to scores a map was applied to.
    unmapped : int
        Scores returned as they came.
    unmapped_by : mapping
        The same by reason (`UNMAPPED`).
    following : bool
        Whether the background thread lives.
    caught_up : bool
        Whether everything the source held at the start has been read.
    stale : bool
        Whether the source has been silent for longer than ``stale_after_s``; always False where that is not set.
    silent_s : float
        Seconds since the source last answered, or since it did so to the process that wrote the cache.
    at_s : float
        When this status was taken, seconds since the epoch.
    """

    maps: Mapping[str, MapStatus]
    problems: Mapping[str, int]
    last_problem: str
    scores: Mapping[str, int]
    unmapped: int
    unmapped_by: Mapping[str, int]
    following: bool
    caught_up: bool
    stale: bool
    silent_s: float
    at_s: float

    def age_s(self, model: str) -> float | None:
        """Seconds since the map of `model` was decided, by event time; None without one, or for a map of day 0."""
        known = self.maps.get(model)
        return None if known is None or known.at_ms == 0 else self.at_s - known.at_ms / 1000
