"""The maps in force, and the rules by which a document enters them.

The highest version wins, whatever the order of arrival. A document that does not verify, is of a newer schema, is
filed under another model or (where signatures are asked for) not signed by an accepted key changes nothing. A
withdrawal ends the versions seen so far; only a higher one comes back. It carries no signature, so it is refused where
signatures are asked for. Candidates (key ``<model>#shadow``) are never served and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import MapDocumentError
from streamcal.transform.source import MapUpdate
from streamcal.transform.status import NO_MAP, MapStatus, Problem
from streamcal.transform.tally import Tally

if TYPE_CHECKING:  # documents, families and msgspec are loaded with the first document
    from streamcal.maps.compiled import CompiledMap
    from streamcal.maps.document import MapDocument
    from streamcal.maps.signing import Verifier

__all__ = ["CANDIDATE", "NO_MAP", "Entry", "MapTable", "Taken"]

CANDIDATE: Final = "#shadow"
"""Ends the key of a candidate; `streamcal.maps.loop.shadow_key` writes it."""

Floats = NDArray[np.float64]


class Entry(NamedTuple):
    """What the hot path needs of one model's map, found by one look-up: map and version belong together.

    `compiled` is None where the map has no corrections per segment: `apply_one` and `apply` are then all there is.
    `tally` takes how many scores were served.
    """

    apply_one: Callable[[float], float]
    apply: Callable[[Floats], Floats]
    compiled: CompiledMap | None
    version: int
    tally: Callable[[int], None]
    status: MapStatus


class Taken(NamedTuple):
    """What an update came to.

    Attributes
    ----------
    model : str or None
        Model whose map changed, or was confirmed.
    data : bytes or None
        Its document; None where it was withdrawn.
    problem : Problem or None
        Why the update was not taken.
    """

    model: str | None = None
    data: bytes | None = None
    problem: Problem | None = None


class MapTable:
    """Maps by model. One thread takes updates; `entries` is replaced and never altered, so any thread may hold it.

    Parameters
    ----------
    verifier : Verifier or None
        Whose signatures count; None takes documents as they are.
    """

    def __init__(self, verifier: Verifier | None = None) -> None:
        self.entries: Mapping[str, Entry] = {}
        self.served: dict[str, Tally] = {}
        self._verifier = verifier
        self._highest: dict[str, int] = {}

    def take(self, update: MapUpdate, *, cached: bool = False) -> Taken:
        """Put an update in force, pass over an outdated one, or say why it cannot be taken.

        `cached` tells that it comes from the disk: the source's own document of the same version replaces it.
        """
        if update.model is not None and update.model.endswith(CANDIDATE):
            return Taken()
        if update.data is None:
            return self._withdraw(update.model)
        document = self._read(update.data, update.model)
        if isinstance(document, Problem):
            return Taken(problem=document)
        model, version = document.model, document.version
        highest, held = self._highest.get(model, NO_MAP), self.entries.get(model)
        confirms = held is not None and held.status.cached and version == highest
        if version > highest or confirms:
            self._highest[model] = version
            self.entries = {**self.entries, model: self._entry(document, cached)}
            return Taken(model, update.data)
        return Taken()

    def _withdraw(self, model: str | None) -> Taken:
        if self._verifier is not None:
            text = f"a withdrawal of model {model!r} can carry no signature; publish the identity instead"
            return Taken(problem=Problem("bad_signature", text))
        self.entries = {held: entry for held, entry in self.entries.items() if held != model}
        return Taken(model)

    def _read(self, data: bytes, key: str | None) -> MapDocument | Problem:
        from streamcal.maps.document import NewerSchemaError, decode  # noqa: PLC0415 -- see above

        try:
            document = decode(data)
        except NewerSchemaError as error:
            return Problem("newer_schema", str(error))
        except MapDocumentError as error:
            return Problem("corrupt", str(error))
        if key not in (None, document.model):
            return Problem("wrong_model", f"document of model {document.model!r} under key {key!r}")
        if self._verifier is not None:
            try:
                self._verifier.check(document, key)
            except MapDocumentError as error:
                return Problem("bad_signature", str(error))
        return document

    def _entry(self, document: MapDocument, cached: bool) -> Entry:
        compiled = document.compile()
        status = MapStatus(document.version, document.family, document.at_ms, document.hash, cached)
        map_, segmented = compiled.map_, compiled if compiled.keys else None
        tally = self.served.setdefault(document.model, Tally()).add
        return Entry(map_.apply_one, map_.apply, segmented, document.version, tally, status)
