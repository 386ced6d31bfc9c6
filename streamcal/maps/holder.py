"""What is in force of one model, what would be in shadow, and the versions, results and history of both."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.compiled import CompiledMap, SegmentTable
from streamcal.maps.corrections import Corrections
from streamcal.maps.document import MapDocument, decode, encode
from streamcal.maps.evidence import Evidence
from streamcal.maps.families import Map
from streamcal.maps.incumbent import Incumbent, higher, in_force, raw_scores
from streamcal.maps.ledger import MapAttempt, MapLedger, MapRequest, Trigger
from streamcal.maps.loop_settings import LoopSettings
from streamcal.maps.publishing import Epochs, PublishMap, shadow_key
from streamcal.snapshot import MapState
from streamcal.stream.events import Names

__all__ = ["MapHolder"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class MapHolder:
    """Holds the maps of one model.

    Invariant: versions never decrease; only what was put in force is ever applied; evidence begins again whenever the
    map to better changes.

    Parameters
    ----------
    settings : LoopSettings
    name : str
        The model.
    evidence : Evidence
    corrections : Corrections or None

    Attributes
    ----------
    ledger : MapLedger
        Versions, results, history.
    evidence : Evidence
        What speaks for the challengers.
    corrections : Corrections or None
        What segments add to the map to better.
    champion : Incumbent
        What is in force.
    candidate : Incumbent or None
        What would be in force, had the loop not been in shadow.
    """

    def __init__(self, settings: LoopSettings, name: str, evidence: Evidence, corrections: Corrections | None) -> None:
        self.settings = settings
        self.name = name
        self.ledger = MapLedger(name, settings.history)
        self.evidence = evidence
        self.corrections = corrections
        self.champion = raw_scores()
        self.candidate: Incumbent | None = None
        self._epochs = Epochs()
        self._compiled: tuple[MapDocument, CompiledMap] | None = None

    @property
    def version(self) -> int:
        """Highest version given to a document, shadow ones included."""
        return self.ledger.version

    @property
    def results(self) -> Counter[tuple[str, str]]:
        """(result, reason) to count; see `streamcal.snapshot.ModelSnapshot`."""
        return self.ledger.results

    @property
    def history(self) -> deque[MapAttempt]:
        """What was tried, oldest first."""
        return self.ledger.history

    def start(self) -> list[PublishMap]:
        """Put the map of day 0 in force, unless there is one already: adopt first what was published before."""
        prior = self.settings.prior
        if self.champion.document is not None or prior is None:
            return []
        document = self.ledger.document(prior, at_ms=0, parent=None, segments=self.settings.prior_segments)
        return [self._put_in_force(document, prior, None, self._entry("day_0", 0))]

    def adopt(self, documents: Sequence[bytes]) -> None:
        """Take over what was published before: the highest version is in force.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        found = [decode(data) for data in documents]
        self.ledger.seen(found)
        if (adopted := higher(found, self.champion)) is not None:
            self.champion = adopted
            self._begin_again()

    def adopt_shadow(self, documents: Sequence[bytes]) -> None:
        """Take over the candidates published under `shadow_key`: the highest is the one to better.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        found = [decode(data) for data in documents]
        self.ledger.seen(found)
        if (adopted := higher(found, self.candidate)) is not None:
            self.candidate = adopted
            self._begin_again()

    def standing(self) -> list[PublishMap]:
        """What is in force and the candidate, to be published once more by whoever goes on with a saved state."""
        held = ((self.name, self.champion), (shadow_key(self.name), self.candidate))
        return [PublishMap(key, encode(of.document)) for key, of in held if of is not None and of.document is not None]

    def apply(self, raw: Floats, profile: NDArray[np.int32], names: Names) -> Floats:
        """Served scores for raw ones: through the champion, unchanged where there is none.

        Parameters
        ----------
        raw : float64[n]
        profile : int32[n]
            Segments of each row, by `names`.
        names : Names
        """
        document = self.champion.document
        if document is None:
            return raw
        if not document.segments:
            return self.champion.map_.apply(raw)
        if self._compiled is None or self._compiled[0] is not document:
            self._compiled = document, document.compile()
        compiled = self._compiled[1]
        distinct, place = np.unique(profile, return_inverse=True)
        segments = (dict(zip(names.dimensions, names.profiles[index], strict=True)) for index in distinct.tolist())
        entries = np.array([compiled.entry(each) for each in segments], dtype=np.intp)
        return compiled.apply_entries(raw, entries[place])

    def state(self) -> MapState | None:
        """The champion, or None."""
        document = self.champion.document
        return None if document is None else MapState(document.version, document.family, self.champion.since_ms)

    def promotion_of(self, versions: Ints) -> Ints:
        """The versions, each publication of a tracking filter replaced by the promotion it goes on from."""
        return self._epochs.promotion_of(versions)

    @property
    def _judged(self) -> Incumbent:
        """What a challenger must better."""
        if self.settings.mode == "shadow" and self.candidate is not None:
            return self.candidate
        return self.champion

    def _change(
        self, document: MapDocument, map_: Map, parent: Map | None, entry: MapAttempt, reference: str | None = None
    ) -> PublishMap:
        """Put a map in force, or among the candidates where the loop is in shadow."""
        if self.settings.mode == "auto":
            return self._put_in_force(document, map_, parent, entry, reference)
        self.candidate = in_force(document, map_, parent)
        self._begin_again(reference)
        entry.promoted, entry.reason = False, "shadow"
        self.ledger.put(document, entry)
        return PublishMap(shadow_key(self.name), encode(document))

    def _put_in_force(
        self, document: MapDocument, map_: Map, parent: Map | None, entry: MapAttempt, reference: str | None = None
    ) -> PublishMap:
        self.champion = in_force(document, map_, parent)
        if self._judged is self.champion:
            self._begin_again(reference)
        self.ledger.put(document, entry)
        return PublishMap(self.name, encode(document))

    def _begin_again(self, reference: str | None = None) -> None:
        """The map to better has changed; `reference` as `Corrections.follow` takes it."""
        self.evidence.restart()
        self._correct_beside(reference)

    def _correct_beside(self, reference: str | None) -> None:
        if self.corrections is not None:
            judged = self._judged
            self.corrections.follow(reference, judged.map_, self._entries(judged.document), judged.since_ms)

    def _entries(self, document: MapDocument | None) -> SegmentTable:
        """Entries of a document that may be served: what cannot be judged here may not, but where nothing is judged."""
        if document is None or self.settings.mode == "off":
            return {} if document is None else document.segments
        return {} if self.corrections is None else self.corrections.judged_of(document.segments)

    def _entry(
        self,
        reason: str,
        moment_ms: int,
        trigger: Trigger = "schedule",
        request: MapRequest | None = None,
        *,
        promoted: bool = True,
        family: str = "",
    ) -> MapAttempt:
        who, why = ("", "") if request is None else (request.who, request.why)
        family = family or self._judged.map_.family
        return MapAttempt(None, family, moment_ms, promoted, reason, None, trigger=trigger, who=who, why=why)
