"""How one model is refitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streamcal.maps.challengers import ChallengerSettings
from streamcal.maps.compiled import SegmentTable
from streamcal.maps.corrections import CorrectionSettings
from streamcal.maps.costs import DEFAULT_FAMILIES
from streamcal.maps.families import Map
from streamcal.maps.policy import gain_bar
from streamcal.stats.fit_panes import step_length
from streamcal.stats.series import SAFETY_FACTOR

__all__ = ["LoopSettings"]


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
    families : tuple of str
        Challengers.
    dimensions : tuple of str
        By which maps are corrected, the coarsest first: one of the configured cuts. Empty: not at all.
    max_segments : int
        Segments per cut that are shown; four times as many are followed.
    prior_segments : SegmentTable
        Entries of the map of day 0.
    horizon_ms, out_of_order_ms : int
        A label is known so long after its prediction at the latest; together a maturity window.
    """

    mode: Literal["auto", "shadow", "off"]
    every_ms: int
    fit_window_ms: int
    pane_ms: int
    min_count: int
    maturity_ms: int
    prior: Map | None
    history: int | None = None
    families: tuple[str, ...] = DEFAULT_FAMILIES
    dimensions: tuple[str, ...] = ()
    max_segments: int = 1000
    prior_segments: SegmentTable = field(default_factory=dict)
    horizon_ms: int = 86_400_000
    out_of_order_ms: int = 60_000

    @property
    def cool_down_ms(self) -> int:
        """One maturity window: until then little that the new map served is known."""
        return self.horizon_ms + self.out_of_order_ms

    @property
    def memory_ms(self) -> int:
        """How long what was in force is remembered: rows predicted then may still become known."""
        return self.cool_down_ms + self.pane_ms

    @property
    def step_ms(self) -> int:
        """Length of a step of prediction time."""
        return step_length(self.pane_ms, self.every_ms)

    @property
    def corrected_by(self) -> tuple[str, ...]:
        """Dimensions by which maps are corrected; empty where nothing is fitted."""
        return () if self.mode == "off" else self.dimensions

    def bar(self, families: int) -> float:
        """Nats that each of so many families, and the corrections where there are any, must gain."""
        return gain_bar(families + bool(self.corrected_by))

    def corrections(self, bar: float) -> CorrectionSettings | None:
        """What the corrections are told; None where there are none."""
        if not self.corrected_by:
            return None
        return CorrectionSettings(
            dimensions=self.corrected_by,
            every_ms=self.every_ms,
            fit_window_ms=self.fit_window_ms,
            memory_ms=self.memory_ms,
            step_ms=self.step_ms,
            bar=bar,
            most=SAFETY_FACTOR * self.max_segments,
        )

    def challengers(self) -> ChallengerSettings:
        """What the challengers are told."""
        return ChallengerSettings(
            families=self.families,
            min_count=self.min_count,
            every_ms=self.every_ms,
            pane_ms=self.pane_ms,
            step_ms=self.step_ms,
            memory_ms=self.memory_ms,
            maturity_ms=self.maturity_ms,
        )
