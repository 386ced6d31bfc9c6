"""The refit loop of one model: what is in force, what was tried, and why.

Fits read the frozen parts of panes only (see `streamcal.stream.join`), so every attempt is a function of
the logs and of its event time. An attempt is made at a multiple of ``refit.every``; one with no new row
since the last says nothing new and is left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamcal.maps.document import Counts, FitWindow, MapDocument, decode, encode, new_document
from streamcal.maps.families import Identity, Map
from streamcal.maps.policy import Decision, RefitSettings, attempt, holdout_start
from streamcal.snapshot import MapState
from streamcal.stats.fit_panes import FitPanes

__all__ = ["LoopSettings", "MapAttempt", "ModelLoop", "PublishMap", "shadow_key", "shadowed_model"]

_SHADOW = "#shadow"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How one model is refitted.

    Attributes
    ----------
    mode : {"auto", "shadow", "off"}
    every_ms, fit_window_ms, pane_ms : int
    min_count : int
        Labels of either class a fit needs.
    maturity_ms : int
        How long after its end a fit pane is complete: 0 with ``labels: both``, the horizon otherwise.
    prior : Map or None
        The map of day 0.
    history : int or None
        Latest entries of the map history that are kept; None: all (bounded input).
    """

    mode: Literal["auto", "shadow", "off"]
    every_ms: int
    fit_window_ms: int
    pane_ms: int
    min_count: int
    maturity_ms: int
    prior: Map | None
    history: int | None = None


@dataclass(frozen=True, slots=True)
class PublishMap:
    """Append `document` to the maps topic under `key`."""

    key: str
    document: bytes


@dataclass(slots=True)
class MapAttempt:
    """One entry of the map history; refusals in a row for the same reason share one."""

    version: int | None
    family: str
    at_ms: int
    promoted: bool
    reason: str
    document: MapDocument | None
    until_ms: int = 0
    attempts: int = 1

    def report(self) -> dict[str, Any]:
        """The entry in the report's form."""
        entry: dict[str, Any] = {"family": self.family, "at_ms": self.at_ms, "promoted": self.promoted}
        entry |= {"reason": self.reason, "attempts": self.attempts, "until_ms": max(self.until_ms, self.at_ms)}
        if self.version is not None:
            entry["version"] = self.version
        if self.document is not None:
            entry["document"] = msgspec.to_builtins(self.document)
        return entry


def shadow_key(model: str) -> str:
    """Key of candidates that are not served (``refit.mode: shadow``)."""
    return model + _SHADOW


def shadowed_model(key: str) -> str | None:
    """The model whose candidates are published under `key`; None where `key` is a model's own.

    >>> shadowed_model("ctr#shadow"), shadowed_model("ctr#2")
    ('ctr', None)
    """
    return key.removesuffix(_SHADOW) if key.endswith(_SHADOW) else None


class ModelLoop:
    """Keeps the champion of one model and tries to better it.

    Invariant: `version` never decreases; only what was promoted is ever applied.

    Parameters
    ----------
    settings : LoopSettings
    name : str
        The model.
    fits : FitPanes
        What its fits read.

    Attributes
    ----------
    version : int
        Highest version given to a document, shadow ones included.
    results : Counter
        (result, reason) to count; see `streamcal.snapshot.ModelSnapshot`.
    history : deque of MapAttempt
    """

    def __init__(self, settings: LoopSettings, name: str, fits: FitPanes) -> None:
        self.settings = settings
        self.name = name
        self.version = 0
        self.results: Counter[tuple[str, str]] = Counter()
        self.history: deque[MapAttempt] = deque(maxlen=settings.history)
        self._fits = fits
        self._policy = RefitSettings(min_count=settings.min_count)
        self._champion: MapDocument | None = None
        self._map: Map | None = None
        self._shadow: Map | None = None
        self._shadow_version = 0

    @property
    def every_ms(self) -> int:
        """Attempts are made at multiples of this."""
        return self.settings.every_ms

    @property
    def span_ms(self) -> int:
        """How long after the last row an attempt still reads anything."""
        return self.settings.fit_window_ms + self.settings.maturity_ms

    def start(self) -> list[PublishMap]:
        """Put the map of day 0 in force, unless there is one already: adopt first what was published before."""
        if self._champion is not None or self.settings.prior is None:
            return []
        document = self._document(self.settings.prior, at_ms=0)
        return [self._put_in_force(document, self.settings.prior, reason="day_0")]

    def adopt(self, documents: Sequence[bytes]) -> None:
        """Take over what was published before: the highest version is in force.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        for document in map(decode, documents):
            if self._champion is None or document.version > self._champion.version:
                self._champion, self._map = document, document.to_map()
            self.version = max(self.version, document.version)

    def adopt_shadow(self, documents: Sequence[bytes]) -> None:
        """Take over the candidates published under `shadow_key`: the highest is the one to better.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        for document in map(decode, documents):
            if document.version > self._shadow_version:
                self._shadow, self._shadow_version = document.to_map(), document.version
            self.version = max(self.version, document.version)

    def apply(self, raw: Floats) -> Floats:
        """Served scores for raw ones: through the champion, unchanged where there is none."""
        return raw if self._map is None else self._map.apply(raw)

    def state(self) -> MapState | None:
        """The champion, or None."""
        if self._champion is None:
            return None
        return MapState(self._champion.version, self._champion.family, self._champion.at_ms)

    def attempt(self, moment_ms: int) -> list[PublishMap]:
        """Try a refit on what is final at `moment_ms` (a multiple of `every_ms`)."""
        pane_ms = self.settings.pane_ms
        stop = (moment_ms - self.settings.maturity_ms) // pane_ms
        start = stop - self.settings.fit_window_ms // pane_ms
        # Panes are let go even where nothing is fitted.
        fresh = self._fits.move(start, stop)
        if not fresh or self.settings.mode == "off":
            return []
        rows = self._fits.rows
        older, newer = self._fits.split(int(rows[holdout_start(rows[:, 1], rows[:, 2], self._policy), 0]))
        decision = attempt(older, newer, self._in_force(), self._policy)
        if not decision.promoted or decision.map_ is None:
            self._refuse(decision, moment_ms)
            return []
        self.results["promoted", ""] += 1
        return [self._publish(decision, decision.map_, moment_ms, FitWindow(max(start, 0) * pane_ms, stop * pane_ms))]

    def _in_force(self) -> Map:
        """What a candidate must better."""
        if self.settings.mode == "shadow" and self._shadow is not None:
            return self._shadow
        return self._map or Identity()

    def _publish(self, decision: Decision, map_: Map, moment_ms: int, window: FitWindow) -> PublishMap:
        document = self._document(map_, at_ms=moment_ms, window=window, decision=decision)
        if self.settings.mode == "auto":
            return self._put_in_force(document, map_, reason="")
        self._shadow, self._shadow_version = map_, document.version
        self.history.append(MapAttempt(document.version, document.family, moment_ms, False, "shadow", document))
        return PublishMap(shadow_key(self.name), encode(document))

    def _put_in_force(self, document: MapDocument, map_: Map, *, reason: str) -> PublishMap:
        self._champion, self._map = document, map_
        self.history.append(MapAttempt(document.version, document.family, document.at_ms, True, reason, document))
        return PublishMap(self.name, encode(document))

    def _document(
        self, map_: Map, *, at_ms: int, window: FitWindow | None = None, decision: Decision | None = None
    ) -> MapDocument:
        self.version += 1
        return new_document(
            self.name,
            self.version,
            map_,
            at_ms=at_ms,
            fit_window=window,
            counts=None if decision is None else Counts(n=decision.n, positives=decision.positives),
            evidence=None if decision is None else decision.evidence,
            parent=None if self._champion is None else self._champion.version,
        )

    def _refuse(self, decision: Decision, moment_ms: int) -> None:
        self.results["refused", decision.reason] += 1
        last = self.history[-1] if self.history else None
        if last is not None and not last.promoted and last.reason == decision.reason:
            last.until_ms, last.attempts = moment_ms, last.attempts + 1
            return
        family = decision.map_.family if decision.map_ is not None else "platt"
        self.history.append(MapAttempt(None, family, moment_ms, False, decision.reason, None))
