"""The maps in force, and the rules by which a document enters them.

The highest version wins, whatever the order of arrival. A document that does not verify, is of a newer schema or is
filed under another model changes nothing. A withdrawal ends the versions seen so far; only a higher one comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import MapDocumentError
from streamcal.maps.compiled import CompiledMap
from streamcal.maps.document import MapDocument, NewerSchemaError, decode
from streamcal.transform.source import MapUpdate

__all__ = ["NO_MAP", "PROBLEMS", "Entry", "MapStatus", "MapTable", "Problem"]

NO_MAP: Final = 0
"""Map version returned with a score that no map was applied to."""

PROBLEMS: Final = ("corrupt", "newer_schema", "wrong_model", "source")
"""Why an update was not taken: it does not verify; its schema is newer than this release; it is filed under another
model than it names; the source itself failed (and is asked again)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MapStatus:
    """The map of one model that is in force."""

    version: int
    family: str
    at_ms: int
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What the hot path needs of one model's map, found by one look-up: map and version belong together.

    `compiled` is None where the map has no corrections per segment: `apply_one` and `apply` are then all there is.
    """

    apply_one: Callable[[float], float]
    apply: Callable[[Floats], Floats]
    compiled: CompiledMap | None
    version: int
    status: MapStatus


class Problem(NamedTuple):
    """An update not taken: one of `PROBLEMS`, and words."""

    reason: str
    text: str


class MapTable:
    """Maps by model. One thread takes updates; `entries` is replaced and never altered, so any thread may hold it."""

    def __init__(self) -> None:
        self.entries: Mapping[str, Entry] = {}
        self._highest: dict[str, int] = {}

    def take(self, update: MapUpdate) -> Problem | None:
        """Put an update in force, pass over an outdated one, or say why it cannot be taken."""
        if update.data is None:
            self.entries = {model: entry for model, entry in self.entries.items() if model != update.model}
            return None
        try:
            document = decode(update.data)
            entry = _entry(document)
        except NewerSchemaError as error:
            return Problem("newer_schema", str(error))
        except MapDocumentError as error:
            return Problem("corrupt", str(error))
        if update.model not in (None, document.model):
            return Problem("wrong_model", f"document of model {document.model!r} under key {update.model!r}")
        if document.version > self._highest.get(document.model, NO_MAP):
            self._highest[document.model] = document.version
            self.entries = {**self.entries, document.model: entry}
        return None


def _entry(document: MapDocument) -> Entry:
    compiled = document.compile()
    status = MapStatus(document.version, document.family, document.at_ms, document.hash)
    map_, segmented = compiled.map_, compiled if compiled.keys else None
    return Entry(map_.apply_one, map_.apply, segmented, document.version, status)
