"""The challengers of one model: every configured family fitted again and again, and what each said when.

A fitted family gets a new map at the attempts; the tracking filter moves with every step of a quarter of an hour and
is noted at the attempts, when it could be published. All are fitted to raw scores, so that what is in force has no part
in what comes next: maps replace each other, they never compose.

Memory: at most `judged.GENERATIONS` maps per fitted family, one per attempt within the horizon for tracking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.costs import COSTS
from streamcal.maps.experts import DAY_MS, TrackingSettings
from streamcal.maps.families import Identity, Map, Platt, Tracking
from streamcal.maps.fit import FITS
from streamcal.maps.guards import scarcer
from streamcal.maps.judged import Generations, JudgedRows, spacing_ms
from streamcal.maps.tracking import TrackingFilter, step_cells
from streamcal.state.trees import dump, dump_fields, load, load_fields
from streamcal.stats.cells import reduce_cells
from streamcal.stats.fit_panes import Entered
from streamcal.stats.layout import N_BINS

__all__ = ["TRACKING", "ChallengerSettings", "Challengers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRACKING: Final = Tracking.family
LONGEST_STEP_MS: Final = DAY_MS // 8
"""The tracking filter's harmonics need eight steps a day."""


@dataclass(frozen=True, slots=True)
class ChallengerSettings:
    """What challengers are told.

    Attributes
    ----------
    families : tuple of str
        As configured; put into the order of `COSTS`.
    min_count : int
        Labels of either class without which nothing is fitted.
    every_ms, pane_ms, step_ms : int
        Between attempts; of a pane; of a step of prediction time.
    memory_ms : int
        How long after its prediction a label may become known.
    maturity_ms : int
        How long after its end a pane is read.
    """

    families: tuple[str, ...]
    min_count: int
    every_ms: int
    pane_ms: int
    step_ms: int
    memory_ms: int
    maturity_ms: int

    @property
    def ordered(self) -> tuple[str, ...]:
        """Families that are fitted here, the cheapest first."""
        fitted = COSTS if self.step_ms <= LONGEST_STEP_MS else tuple(FITS)
        return tuple(family for family in fitted if family in self.families)


class Challengers:
    """Maps of every family in time, and why a family has none.

    Attributes
    ----------
    generations : dict
        Family to its maps.
    reasons : dict
        Family to why its newest fit failed; families that could be fitted are not in it.
    fitted_ms : int or None
        Moment of the last fit.
    """

    STATE = ("generations", "reasons", "fitted_ms", "_waiting")

    def __init__(self, settings: ChallengerSettings) -> None:
        self.settings = settings
        self.families: Sequence[str] = settings.ordered
        self.generations = {family: Generations() for family in self.families}
        self.reasons: dict[str, str] = {}
        self.fitted_ms: int | None = None
        self._spacing_ms = spacing_ms(settings.memory_ms, settings.every_ms)
        self._filter: TrackingFilter | None = None
        self._waiting: Entered | None = None

    def dump_state(self) -> dict[str, Any]:
        """Maps in time, and the filter where there is one."""
        tracking = None if self._filter is None else {"step": self._filter.step, "state": dump(self._filter)}
        return {"rest": dump_fields(self, self.STATE), "filter": tracking}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        load_fields(self, self.STATE, state["rest"])
        if (tracking := state["filter"]) is not None:
            self._filter = TrackingFilter(self._tracking(), tracking["step"])
            load(self._filter, tracking["state"])

    def losses(self, rows: JudgedRows) -> dict[str, Floats]:
        """Log loss of each family at each entry of `rows`; NaN where it had no map yet."""
        return {family: self.generations[family].log_loss(rows) for family in self.families}

    def learn(self, entered: Entered, moment_ms: int, stop: int) -> None:
        """Let the tracking filter learn what panes before `stop` brought, and stand at `moment_ms`."""
        if TRACKING not in self.families:
            return
        if self._waiting is not None:
            pairs = zip(_columns(self._waiting), _columns(entered), strict=True)
            entered = Entered(*(np.concatenate(pair) for pair in pairs))
        settings = self.settings
        known = (entered.pane * settings.pane_ms + settings.maturity_ms) // settings.step_ms
        over = (stop * settings.pane_ms + settings.maturity_ms) // settings.step_ms
        complete = known < over
        self._waiting = _rows(entered, ~complete)
        self._update(_rows(entered, complete), known[complete])
        if self._filter is None:
            return
        self._filter.advance(max(moment_ms // settings.step_ms, self._filter.step))
        intercept, slope = self._filter.current()
        usable = math.isfinite(intercept) and math.isfinite(slope)
        self._note(TRACKING, moment_ms, _made(slope, intercept) if usable else "not_finite")

    def refit(self, counts: Ints, moment_ms: int, *, due: bool = False) -> None:
        """Fit every family to the window's counts; between generations only where it is `due`."""
        last = self.fitted_ms
        if not due and last is not None and moment_ms // self._spacing_ms == last // self._spacing_ms:
            return
        self.fitted_ms = moment_ms
        fitted = self._fit([family for family in self.families if family != TRACKING], counts)
        for family, map_ in fitted.items():
            self._note(family, moment_ms, map_)

    def fit(self, family: str, counts: Ints) -> Map | str:
        """What a family says of `counts`, or why nothing; the tracking filter has its own time. Changes nothing."""
        return self.newest(family) if family == TRACKING else self._fit([family], counts)[family]

    def newest(self, family: str) -> Map | str:
        """The newest map of a family, or why there is none."""
        if family in self.reasons:
            return self.reasons[family]
        return self.generations[family].newest or "too_few_labels"

    def usable(self) -> dict[str, Map]:
        """The newest map of every family that has one."""
        newest = {family: generations.newest for family, generations in self.generations.items()}
        return {family: map_ for family, map_ in newest.items() if map_ is not None}

    def failed(self) -> list[tuple[str, str]]:
        """Families whose newest fit failed for another reason than too few labels, and that reason."""
        reasons = ((family, self.reasons.get(family, "")) for family in self.families)
        return [(family, reason) for family, reason in reasons if reason not in ("", "too_few_labels")]

    def _fit(self, families: Sequence[str], counts: Ints) -> dict[str, Map | str]:
        if scarcer(counts) < self.settings.min_count:
            return dict.fromkeys(families, "too_few_labels")
        line = FITS[Platt.family](counts, Identity())
        prior_map = Identity() if isinstance(line, str) else line
        return {family: line if family == Platt.family else FITS[family](counts, prior_map) for family in families}

    def _note(self, family: str, moment_ms: int, fitted: Map | str) -> None:
        generations = self.generations[family]
        if isinstance(fitted, str):
            self.reasons[family] = fitted
        else:
            self.reasons.pop(family, None)
            generations.put(moment_ms, fitted)
        generations.forget_before(moment_ms - self.settings.memory_ms)

    def _update(self, entered: Entered, known: Ints) -> None:
        """Teach the filter whole steps, in order."""
        for step in np.unique(known).tolist():
            mine = known == step
            cells = reduce_cells(entered.step[mine] * N_BINS + entered.bins[mine], entered.values[mine])
            if self._filter is None:
                self._filter = TrackingFilter(self._tracking(), step)
            if step >= self._filter.step:
                predicted, bins = cells.code // N_BINS, (cells.code % N_BINS).astype(np.intp)
                self._filter.update(step, step_cells(predicted, bins, cells.values))

    def _tracking(self) -> TrackingSettings:
        step_ms = self.settings.step_ms
        return TrackingSettings(memory_steps=self.settings.memory_ms // step_ms + 2, step_ms=step_ms)


def _made(slope: float, intercept: float) -> Tracking | str:
    return Tracking(slope=slope, intercept=intercept) if slope > 0.0 else "slope_not_positive"


def _columns(entered: Entered) -> tuple[Ints, ...]:
    return entered.pane, entered.step, entered.bins, entered.values


def _rows(entered: Entered, chosen: NDArray[np.bool_]) -> Entered:
    return Entered(*(column[chosen] for column in _columns(entered)))
