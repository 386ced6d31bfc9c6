"""What is in force of one model with its corrections per segment: when they come, move and go."""

from __future__ import annotations

from collections.abc import Mapping

from streamcal.maps.compiled import SegmentTable
from streamcal.maps.corrections import FOREIGN
from streamcal.maps.document import MapDocument, encode
from streamcal.maps.families import Map
from streamcal.maps.guards import dispersion
from streamcal.maps.holder import MapHolder
from streamcal.maps.ledger import MapAttempt
from streamcal.maps.policy import HOLDOUT_SHARE, WAGER
from streamcal.maps.publishing import PublishMap, shadow_key
from streamcal.maps.wanted import Attempted
from streamcal.stats.fit_panes import FitPanes
from streamcal.stats.segment_panes import SegmentsEntered

__all__ = ["CorrectedHolder", "in_shadow", "made"]


class CorrectedHolder(MapHolder):
    """Holds maps, and puts corrections beside them.

    A change of the corrections is a version of its own that leaves the map, its watch and its cool-down as they are.
    """

    def state_loaded(self) -> None:
        """Let corrections that were not there when the state was written stand beside what is in force."""
        if self.corrections is not None and not self.corrections.loaded:
            self._correct_beside(None)

    def _correct(self, rows: SegmentsEntered | None, maps: Mapping[str, Map], moment_ms: int) -> None:
        """Judge the corrections on rows that became known, then let them learn from these."""
        if self.corrections is not None and rows is not None:
            self.corrections.judge(rows, self._judged.served, self._judged.since_ms, moment_ms)
            self.corrections.learn(rows, maps, moment_ms)
            self.corrections.note(moment_ms)

    def _table(self) -> SegmentTable | None:
        """Entries for the next document of the map in force; None where the loop has none to give."""
        return None if self.corrections is None else self.corrections.table()

    def _is_table_last(self) -> bool:
        """Whether the newest change of what is served was to put corrections beside the map."""
        corrections, champion = self.corrections, self.champion
        if corrections is None or not corrections.active or self.settings.mode != "auto":
            return False
        return champion.parent is None or corrections.since_ms > champion.since_ms

    def _has_foreign_entries(self) -> bool:
        """Whether entries are served that nobody can judge: of dimensions that are not corrected, or not any more."""
        document = self.champion.document
        if self.settings.mode != "auto" or document is None or not document.segments:
            return False
        return not (self.corrections is not None and self.corrections.active) and not self._entries(document)

    def _table_of(self, family: str) -> SegmentTable | None:
        """Entries for a document of a family's newest fit."""
        corrections = self.corrections
        return corrections.newest(family) if corrections is not None and corrections.wanted else None

    def _of_parent(self) -> tuple[str, SegmentTable]:
        """Reference and entries of the map in force before."""
        if self.corrections is None:
            return FOREIGN, {}
        reference, own = self.corrections.former
        parent = self._judged.parent
        known = reference != FOREIGN or (parent is not None and self.corrections.is_followed(parent))
        return reference, self.corrections.newest(reference) if self.corrections.active and known else own

    def _may_correct(self, moment_ms: int) -> bool:
        """Whether the corrections have earned their place and have not just been taken back."""
        corrections = self.corrections
        if corrections is None or not corrections.sufficient:
            return False
        held = corrections.evidence
        if min(held.positives, held.n - held.positives) < HOLDOUT_SHARE * self.settings.min_count:
            return False
        return corrections.since_ms == 0 or moment_ms >= corrections.since_ms + self.settings.cool_down_ms

    def _is_worse_corrected(self, fits: FitPanes) -> bool:
        """Whether the map without its corrections would have been better, by the rule of the watch."""
        against = 0.0 if self.corrections is None else self.corrections.against
        return against >= WAGER and bool(len(fits.rows)) and against >= WAGER * dispersion(fits)

    def _turn(self, moment_ms: int, entry: MapAttempt, *, on: bool) -> Attempted:
        """Put the corrections in force beside the map there is, or take back what entries it has."""
        if self.settings.mode == "shadow" and self.candidate is None:
            self.candidate = self.champion.copy()
        judged, evidence = self._judged, None
        segments: SegmentTable = {}
        if self.corrections is not None:
            evidence = self.corrections.told()
            self.corrections.turn(moment_ms, on=on)
            segments = self.corrections.table()
        document = self.ledger.document(
            judged.map_,
            at_ms=moment_ms,
            parent=judged.document,
            evidence=evidence,
            like=judged.document,
            segments=segments,
        )
        judged.document = document
        if self.settings.mode == "auto":
            self.ledger.put(document, entry)
            return made(document, PublishMap(self.name, encode(document)))
        entry.promoted, entry.reason = False, "shadow"
        self.ledger.put(document, entry)
        return Attempted([PublishMap(shadow_key(self.name), encode(document))], True, in_shadow(document))


def in_shadow(document: MapDocument) -> str:
    """What came of an attempt in shadow."""
    return f"candidate version {document.version}, in shadow"


def made(document: MapDocument, command: PublishMap) -> Attempted:
    """What came of an attempt that put a document in force."""
    return Attempted([command], True, f"version {document.version}")
