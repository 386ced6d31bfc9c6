"""The refit loop of one model: what is in force, what was tried, and why.

Fits read the frozen parts of panes only (see `streamcal.stream.join`), so every attempt is a function of
the logs and of its event time. An attempt is made at a multiple of ``refit.every``; one with no new row
since the last says nothing new and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamcal.maps.document import Counts, FitWindow, MapDocument, decode, encode, new_document
from streamcal.maps.families import Identity, Map
from streamcal.maps.policy import Decision, RefitSettings, attempt, holdout_start
from streamcal.snapshot import MapState
from streamcal.stats.cells import PaneStore, reduce_cells
from streamcal.stats.counts import Column
from streamcal.stats.layout import N_BINS
from streamcal.stats.windows import WindowTotal

__all__ = ["LoopSettings", "MapAttempt", "ModelLoop", "PublishMap", "shadow_key"]

Ints = NDArray[np.int64]
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
    """

    mode: Literal["auto", "shadow", "off"]
    every_ms: int
    fit_window_ms: int
    pane_ms: int
    min_count: int
    maturity_ms: int
    prior: Map | None


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


class FitSource(Protocol):
    """What the loop reads: the fit panes of all models."""

    fit_panes: PaneStore

    @property
    def width(self) -> int:
        """Columns per cell."""
        ...

    def fit_window(self) -> WindowTotal:
        """A new moving total over the fit panes."""
        ...


def shadow_key(model: str) -> str:
    """Key of candidates that are not served (``refit.mode: shadow``)."""
    return f"{model}#shadow"


_NO_PANES = np.empty((0, 3), dtype=np.int64)


@dataclass(slots=True)
class ModelLoop:
    """Keeps the champion of one model and tries to better it.

    Invariant: `version` never decreases; only what was promoted is ever applied.
    """

    settings: LoopSettings
    model: int
    name: str
    source: FitSource
    version: int = 0
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    history: list[MapAttempt] = field(default_factory=list)
    _total: WindowTotal = field(init=False)
    _champion: MapDocument | None = None
    _map: Map | None = None
    _shadow: Map | None = None
    _panes: Ints = field(default_factory=lambda: _NO_PANES)
    """Final panes of the fit window that have rows: pane, rows, positive rows; ascending."""
    _read_until: int | None = None
    _fresh: bool = True

    def __post_init__(self) -> None:
        self._total = self.source.fit_window()

    @property
    def every_ms(self) -> int:
        """Attempts are made at multiples of this."""
        return self.settings.every_ms

    @property
    def span_ms(self) -> int:
        """How long after the last row an attempt still reads anything."""
        return self.settings.fit_window_ms + self.settings.maturity_ms

    def start(self) -> list[PublishMap]:
        """Put the map of day 0 in force, unless one is already."""
        if self._champion is not None or self.settings.prior is None:
            return []
        return [self._promote(self.settings.prior, at_ms=0, reason="day_0")]

    def adopt(self, documents: Sequence[bytes]) -> None:
        """Take over what was published before: the highest version is in force.

        Raises
        ------
        MapDocumentError
            A document cannot be read.
        """
        for data in documents:
            document = decode(data)
            if document.version > self.version:
                self.version = document.version
                self._champion, self._map = document, document.to_map()

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
        if self.settings.mode == "off":
            return []
        self._advance(moment_ms)
        if not self._fresh:
            return []
        self._fresh = False
        older, newer = self._split()
        in_force = self._shadow if self.settings.mode == "shadow" and self._shadow is not None else self._map
        decision = attempt(older, newer, in_force or Identity(), RefitSettings(min_count=self.settings.min_count))
        if not decision.promoted or decision.map_ is None:
            self._refuse(decision, moment_ms)
            return []
        self.results["promoted", ""] += 1
        return [self._publish(decision, moment_ms)]

    def _advance(self, moment_ms: int) -> None:
        """Let the fit window end with the last pane that is final at `moment_ms`."""
        pane_ms = self.settings.pane_ms
        stop = (moment_ms - self.settings.maturity_ms) // pane_ms
        start = stop - self.settings.fit_window_ms // pane_ms
        first = start if self._read_until is None else max(start, self._read_until)
        self._read_until = max(stop, first)
        self._total.move(start, stop)
        entering = self._rows_per_pane(first, stop)
        kept = self._panes[np.searchsorted(self._panes[:, 0], start) :]
        self._panes = np.concatenate([kept, entering])
        self._fresh |= bool(len(entering))

    def _rows_per_pane(self, start: int, stop: int) -> Ints:
        """Pane, rows and positive rows of the panes that have rows of this model, shape (m, 3)."""
        rows = []
        for pane, cells in self.source.fit_panes.each(start, stop):
            mine = cells.code // N_BINS == self.model
            if mine.any():
                n, positives = cells.values[mine][:, [Column.N, Column.Y]].sum(axis=0).tolist()
                rows.append((pane, n, positives))
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def _split(self) -> tuple[Ints, Ints]:
        """Counts of the older and the newer part of the fit window, (284, width) each."""
        whole = np.zeros((N_BINS, self.source.width), dtype=np.int64)
        mine = self._total.values[self.model * N_BINS : (self.model + 1) * N_BINS]
        whole[: len(mine)] = mine
        newer = np.zeros_like(whole)
        if len(self._panes):
            cut = holdout_start(self._panes[:, 1], self._panes[:, 2], RefitSettings(min_count=self.settings.min_count))
            cells = self.source.fit_panes.between(int(self._panes[cut, 0]), self._total.stop)
            assert cells is not None
            held = cells.code // N_BINS == self.model
            reduced = reduce_cells(cells.code[held] % N_BINS, cells.values[held])
            newer[reduced.code] = reduced.values
        return whole - newer, newer

    def _publish(self, decision: Decision, moment_ms: int) -> PublishMap:
        assert decision.map_ is not None
        window = FitWindow(from_ms=moment_ms - self.span_ms, to_ms=moment_ms - self.settings.maturity_ms)
        counts = Counts(n=decision.n, positives=decision.positives)
        if self.settings.mode == "auto":
            return self._promote(
                decision.map_, at_ms=moment_ms, reason="", window=window, counts=counts, evidence=decision.evidence
            )
        self._shadow = decision.map_
        document = self._document(decision.map_, moment_ms, window, counts, decision.evidence)
        self.history.append(MapAttempt(document.version, document.family, moment_ms, False, "shadow", document))
        return PublishMap(shadow_key(self.name), encode(document))

    def _promote(
        self,
        map_: Map,
        *,
        at_ms: int,
        reason: str,
        window: FitWindow | None = None,
        counts: Counts | None = None,
        evidence: Mapping[str, float] | None = None,
    ) -> PublishMap:
        document = self._document(map_, at_ms, window, counts, evidence)
        self._champion, self._map = document, map_
        self.history.append(MapAttempt(document.version, document.family, at_ms, True, reason, document))
        return PublishMap(self.name, encode(document))

    def _document(
        self,
        map_: Map,
        at_ms: int,
        window: FitWindow | None,
        counts: Counts | None,
        evidence: Mapping[str, float] | None,
    ) -> MapDocument:
        self.version += 1
        parent = None if self._champion is None else self._champion.version
        return new_document(
            self.name,
            self.version,
            map_,
            at_ms=at_ms,
            fit_window=window,
            counts=counts,
            evidence=evidence,
            parent=parent,
        )

    def _refuse(self, decision: Decision, moment_ms: int) -> None:
        self.results["refused", decision.reason] += 1
        last = self.history[-1] if self.history else None
        if last is not None and not last.promoted and last.reason == decision.reason:
            last.until_ms, last.attempts = moment_ms, last.attempts + 1
            return
        family = decision.map_.family if decision.map_ is not None else "platt"
        self.history.append(MapAttempt(None, family, moment_ms, False, decision.reason, None))
