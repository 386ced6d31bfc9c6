"""What a person asks of a loop: which map it names, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StreamcalError
from streamcal.maps.challengers import Challengers
from streamcal.maps.document import MapDocument
from streamcal.maps.families import Map, same_map
from streamcal.maps.incumbent import Incumbent
from streamcal.maps.ledger import MapAttempt, MapRequest
from streamcal.maps.publishing import PublishMap

__all__ = ["Attempted", "Wanted", "map_to_go_back_to", "map_to_promote"]

_MOST_NAMED: Final = 20
"""Newest versions that a message names."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """What came of an attempt.

    Attributes
    ----------
    commands : sequence of PublishMap
    done : bool
        Whether anything is in force, or in shadow, that was not before; of pins: whether it is so now.
    detail : str
        The version made, or the reason of a refusal.
    """

    commands: Sequence[PublishMap]
    done: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A map that is to be put in force.

    Attributes
    ----------
    map_ : Map
    source : MapDocument or None
        The document it comes from; None where it was fitted just now, or where that is not known any more.
    fitted : bool
        Whether it was fitted to the fit window as it stands.
    """

    map_: Map
    source: MapDocument | None = None
    fitted: bool = False

    def check_new(self, champion: Incumbent) -> None:
        """Raise StreamcalError if it is in force already: a version more would only start its watch anew."""
        held = champion.document
        segments = {} if self.source is None else self.source.segments
        if held is not None and same_map(held.to_map(), self.map_) and held.segments == segments:
            raise StreamcalError(f"that map is in force already, as version {held.version}")


def map_to_promote(
    request: MapRequest,
    history: Iterable[MapAttempt],
    candidate: Incumbent | None,
    challengers: Challengers,
    counts: NDArray[np.int64],
) -> Wanted:
    """The map of a version, the fit of a family to `counts`, or the candidate in shadow.

    Raises
    ------
    StreamcalError
        There is none.
    """
    if request.version is not None:
        if candidate is not None and candidate.document is not None and candidate.document.version == request.version:
            return Wanted(candidate.map_, candidate.document)
        return _of_version(request.version, history)
    if request.family is not None:
        if request.family not in challengers.families:
            families = ", ".join(challengers.families) or "none"
            raise StreamcalError(f"{request.family!r} is not fitted here", hint=f"refit.families has: {families}")
        map_ = challengers.fit(request.family, counts)
        if isinstance(map_, str):
            raise StreamcalError(
                f"there is no {request.family!r} map: {map_}", hint="wait for labels, or give a version"
            )
        return Wanted(map_, fitted=True)
    if candidate is None:
        raise StreamcalError("there is no candidate in shadow", hint="give the version or the family to promote")
    return Wanted(candidate.map_, candidate.document)


def map_to_go_back_to(request: MapRequest, history: Sequence[MapAttempt], champion: Incumbent) -> Wanted:
    """The map of a version that was in force, or the parent of what is.

    Raises
    ------
    StreamcalError
        There is none.
    """
    if request.version is not None:
        return _of_version(request.version, (entry for entry in history if entry.promoted), "was never in force, or")
    if champion.parent is None:
        raise StreamcalError("the map in force has no parent to go back to", hint="give the version to go back to")
    return Wanted(champion.parent, document_of(champion.parent, history))


def document_of(map_: Map, history: Sequence[MapAttempt]) -> MapDocument | None:
    """The newest document in the history that has this map; None where there is none."""
    found = (entry.document for entry in reversed(history) if entry.document is not None)
    return next((document for document in found if same_map(document.to_map(), map_)), None)


def _of_version(version: int, history: Iterable[MapAttempt], why_not: str = "") -> Wanted:
    held: dict[int, MapDocument] = {
        entry.version: entry.document for entry in history if entry.document and entry.version
    }
    if version not in held:
        kept = ", ".join(map(str, sorted(held)[-_MOST_NAMED:])) or "none"
        what = " ".join(filter(None, (f"version {version}", why_not, "is not in the map history")))
        raise StreamcalError(what, hint=f"versions kept: {kept}")
    return Wanted(held[version].to_map(), held[version])
