"""What was tried with the map of a model, and why: one entry per attempt, or per run of like attempts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from streamcal.maps.compiled import SegmentTable
from streamcal.maps.document import Counts, FitWindow, MapDocument, new_document
from streamcal.maps.families import Map
from streamcal.state.trees import recorded

__all__ = ["MapAttempt", "MapLedger", "MapRequest", "Trigger"]

Trigger = Literal["schedule", "alarm", "manual"]

PUBLICATION: Final = "publication"


@dataclass(frozen=True, slots=True)
class MapRequest:
    """What a person asks of the loop of one model.

    Attributes
    ----------
    what : {"refit", "promote", "rollback", "pin", "unpin"}
    who, why : str
        Kept in the history.
    version : int or None
        To promote or to go back to: a version in the history, or the candidate in shadow. None: see `family`; for a
        roll-back, the parent.
    family : str or None
        To promote: the newest fit of this family.
    """

    what: Literal["refit", "promote", "rollback", "pin", "unpin"]
    who: str
    why: str
    version: int | None = None
    family: str | None = None


@recorded
@dataclass(slots=True)
class MapAttempt:
    """One entry of the map history.

    Refusals in a row for the same reason share one (of requests: of one person for one reason), publications of a
    tracking filter too (`document` and `version` are the last one's), even where they take turns.
    """

    version: int | None
    family: str
    at_ms: int
    promoted: bool
    reason: str
    document: MapDocument | None
    until_ms: int = 0
    attempts: int = 1
    trigger: Trigger = "schedule"
    who: str = ""
    why: str = ""

    def report(self) -> dict[str, Any]:
        """The entry in the report's form."""
        entry: dict[str, Any] = {"family": self.family, "at_ms": self.at_ms, "promoted": self.promoted}
        entry |= {"reason": self.reason, "attempts": self.attempts, "until_ms": max(self.until_ms, self.at_ms)}
        if self.version is not None:
            entry["version"] = self.version
        if self.document is not None:
            entry["document"] = msgspec.to_builtins(self.document)
        if self.trigger != "schedule":
            entry["trigger"] = self.trigger
        if self.trigger == "manual":
            entry |= {"who": self.who, "why": self.why}
        return entry


class MapLedger:
    """Versions given, results counted, and what was tried with the map of a model.

    Invariant: `version` never decreases.

    Parameters
    ----------
    name : str
        The model.
    kept : int or None
        Latest entries that are kept; None: all.

    Attributes
    ----------
    version : int
        Highest version given to a document, shadow ones included.
    results : Counter
        (result, reason) to count; see `streamcal.snapshot.ModelSnapshot`.
    history : deque of MapAttempt
    """

    STATE = ("version", "results", "history")

    def __init__(self, name: str, kept: int | None) -> None:
        self.name = name
        self.version = 0
        self.results: Counter[tuple[str, str]] = Counter()
        self.history: deque[MapAttempt] = deque(maxlen=kept)

    def seen(self, documents: Iterable[MapDocument]) -> None:
        """Give only higher versions than these have."""
        self.version = max([self.version, *(document.version for document in documents)])

    def document(
        self,
        map_: Map,
        *,
        at_ms: int,
        parent: MapDocument | None,
        fitted_on: tuple[FitWindow | None, Counts] | None = None,
        evidence: Mapping[str, float] | None = None,
        like: MapDocument | None = None,
        segments: SegmentTable | None = None,
    ) -> MapDocument:
        """A document of the next version.

        `like` had the same map, and says what it was fitted on, and which entries it has unless `segments` do.
        """
        self.version += 1
        if like is not None:
            fitted_on = (like.fit_window, like.counts)
        window, counts = (None, None) if fitted_on is None else fitted_on
        return new_document(
            self.name,
            self.version,
            map_,
            at_ms=at_ms,
            fit_window=window,
            counts=counts,
            evidence=evidence,
            parent=None if parent is None else parent.version,
            segments=like.segments if segments is None and like is not None else segments,
        )

    def put(self, document: MapDocument, entry: MapAttempt) -> None:
        """Append what became of an attempt that made `document`."""
        entry.version, entry.family, entry.document = document.version, document.family, document
        self.history.append(entry)

    def refuse(self, entry: MapAttempt) -> None:
        """Count and append a refusal; one like those before it is counted to them."""
        self.results["refused", entry.reason] += 1
        last = self._latest(lambda held: _alike(held, entry))
        if last is not None:
            last.until_ms, last.attempts = entry.at_ms, last.attempts + 1
        else:
            self.history.append(entry)

    def publish(self, document: MapDocument) -> None:
        """Count and append what a tracking filter published; it takes the place of what it published before."""
        self.results["published", ""] += 1
        last = self._latest(lambda held: held.promoted and held.reason == PUBLICATION)
        if last is not None:
            last.version, last.document, last.until_ms = document.version, document, document.at_ms
            last.attempts += 1
        else:
            self.put(document, MapAttempt(None, document.family, document.at_ms, True, PUBLICATION, None))

    def _latest(self, fits: Callable[[MapAttempt], bool]) -> MapAttempt | None:
        """An entry that fits among the last two: where a filter publishes, attempts are refused in between."""
        latest = [self.history[-place] for place in (1, 2) if place <= len(self.history)]
        return next((entry for entry in latest if fits(entry)), None)


def _alike(last: MapAttempt, entry: MapAttempt) -> bool:
    refused = not last.promoted and last.version is None
    asked = (last.trigger, last.who, last.why) == (entry.trigger, entry.who, entry.why)
    return refused and asked and entry.trigger != "alarm" and last.reason == entry.reason
