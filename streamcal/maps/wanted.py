"""The map that a person's request names."""

from __future__ import annotations

from collections.abc import Iterable

from streamcal.errors import StreamcalError
from streamcal.maps.challengers import Challengers
from streamcal.maps.document import MapDocument
from streamcal.maps.families import Map
from streamcal.maps.incumbent import Incumbent
from streamcal.maps.ledger import MapAttempt, MapRequest

__all__ = ["map_to_go_back_to", "map_to_promote"]


def map_to_promote(
    request: MapRequest, history: Iterable[MapAttempt], candidate: Incumbent | None, challengers: Challengers
) -> tuple[Map, bool]:
    """The map of a version, the newest fit of a family, or the candidate in shadow; and whether it was fitted just now.

    Raises
    ------
    StreamcalError
        There is none.
    """
    if request.version is not None:
        return _of_version(request.version, history), False
    if request.family is not None:
        if request.family not in challengers.families:
            families = ", ".join(challengers.families) or "none"
            raise StreamcalError(f"{request.family!r} is not fitted here", hint=f"refit.families has: {families}")
        map_ = challengers.newest(request.family)
        if isinstance(map_, str):
            raise StreamcalError(
                f"there is no {request.family!r} map: {map_}", hint="wait for labels, or give a version"
            )
        return map_, True
    if candidate is None:
        raise StreamcalError("there is no candidate in shadow", hint="give the version or the family to promote")
    return candidate.map_, False


def map_to_go_back_to(request: MapRequest, history: Iterable[MapAttempt], champion: Incumbent) -> Map:
    """The map of a version, or the parent of what is in force.

    Raises
    ------
    StreamcalError
        There is none.
    """
    if request.version is not None:
        return _of_version(request.version, history)
    if champion.parent is None:
        raise StreamcalError("the map in force has no parent to go back to", hint="give the version to go back to")
    return champion.parent


def _of_version(version: int, history: Iterable[MapAttempt]) -> Map:
    held: dict[int, MapDocument] = {
        entry.version: entry.document for entry in history if entry.document and entry.version
    }
    if version not in held:
        kept = ", ".join(map(str, sorted(held))) or "none"
        raise StreamcalError(f"version {version} is not in the map history", hint=f"versions kept: {kept}")
    return held[version].to_map()
