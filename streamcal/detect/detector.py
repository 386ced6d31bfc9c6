"""The detector: sealed panes of served scores in, alarms out; one row of state per series.

Theory of operation
-------------------
A series is one segment of one model. Each pane, once sealed, is weighed once, in order of prediction time:

1. `bets`: what its outcomes pay on each of up to 14 bets against a calibrated score.
2. `dispersion`: the payoffs' logarithms are divided by phi, known from earlier blocks.
3. `evidence`: each bet's Shiryaev-Roberts statistic goes on; the evidence is the logarithm of their mean.
   When a longer block length becomes known and shows that phi was far too small, what was gathered is divided by the
   rise. (That lowers positive logarithms only, so the guarantee stands.)
4. `alarm`: at the threshold the leading bet names the fault, the alarm latches, and the series starts afresh:
   evidence, and the fit phi is taken about.

Order and choice of rows must not depend on labels: that is why it takes prediction-time panes, whole and only once
sealed. What comes later corrects counts, never the evidence.

A pane is *calm* when after it the evidence does not exceed the logarithm of the panes weighed since the last start.
That is what evidence comes to on average with calibrated scores; while a fault lasts it rises above within
a fraction of the time to the next alarm. Panes without rows of the series are no panes to it at all.

Weights are ignored: e^w is no e-value for w > 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.detect.alarm import NO_FAULT, AlarmEvent, Latch
from streamcal.detect.bets import FAULTS, PaneCells, bet_set, log_payoffs, pane_cells
from streamcal.detect.dispersion import MEMORY_DAYS, MOST_CAUTION, Dispersion
from streamcal.detect.evidence import advance, log_evidence
from streamcal.detect.settings import DetectorSettings
from streamcal.stats.counts import Column

__all__ = ["Detector", "DetectorSettings", "Evidence"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAR_TOO_SMALL: Final = 1.5
"""Rise of phi at which evidence is weighed again; smaller ones are the noise of 20 blocks (standard error a third)."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How some series stand; arrays over series.

    Attributes
    ----------
    evidence : float64
        Natural logarithm; minus infinity before the first pane since a start.
    threshold : float64
        What it is compared with; raised while phi is not known yet.
    leading : int8
        Fault of the leading bet, an index into `FAULTS`; `NO_FAULT` without evidence.
    active : int8
        Fault of the alarm in force; `NO_FAULT` without one.
    phi : float64
        Over-dispersion the last pane was weighed with; 1 before any.
    """

    evidence: Floats
    threshold: Floats
    leading: NDArray[np.int8]
    active: NDArray[np.int8]
    phi: Floats


class Detector:
    """Watches the series of one model.

    Guarantee: state and events are a function of the panes given. With calibrated scores (up to the tolerance)
    and outcomes independent given their scores, a series takes on average at least exp(threshold) panes to
    an alarm, and alarms within n panes with probability at most n / exp(threshold).

    Parameters
    ----------
    settings : DetectorSettings
    """

    _ROWS: Final = ("last_pane", "panes", "pivot_sums", "log_m", "phi", "lengths", "caution")

    def __init__(self, settings: DetectorSettings) -> None:
        self.settings = settings
        self.threshold = settings.log_threshold
        self._bets = bet_set(settings.tolerance)
        self._dispersion = Dispersion(settings.panes_per_day)
        self._latch = Latch(settings.clear_after)
        self._keep = np.exp(-1.0 / (MEMORY_DAYS * settings.panes_per_day))
        self.last_pane: Ints = np.zeros(0, dtype=np.int64)
        self.panes: Ints = np.zeros(0, dtype=np.int64)
        self.pivot_sums: Floats = np.zeros((0, 2))
        self.log_m: Floats = np.zeros((0, len(self._bets)))
        self.phi: Floats = np.zeros(0)
        self.lengths: Ints = np.zeros(0, dtype=np.int64)
        self.caution: Floats = np.zeros(0)

    def dump_state(self) -> dict[str, Any]:
        """The arrays of `state`."""
        return self.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; raises ValueError where another pane length made it.

        Under another tolerance there are other bets, and what was won with the former ones says nothing of them: the
        evidence begins again, alarms in force and what is known of phi stay.
        """
        held, rows = dict(state), len(state["log_m"])
        other_bets = held["log_m"].shape[1] != len(self._bets)
        if other_bets:
            fresh = Detector(self.settings)
            fresh._reserve(rows)
            held["log_m"] = fresh.log_m[:rows]
        detector = Detector.from_state(self.settings, held)
        if other_bets:
            detector.restart(np.arange(rows))
        vars(self).update(vars(detector))

    def update(self, pane: int, series: Ints, counts: Ints) -> list[AlarmEvent]:
        """Weigh one sealed pane given densely; see `update_cells`.

        Parameters
        ----------
        series : int64[S]
            Ascending.
        counts : int64[S, 284, K]
            Served scores.
        """
        of, bins = np.nonzero(counts[:, :, Column.N])
        return self.update_cells(pane, series[of], bins, counts[of, bins])

    def update_cells(self, pane: int, series_of: Ints, bins: NDArray[np.integer], values: Ints) -> list[AlarmEvent]:
        """Weigh one sealed prediction-time pane.

        Parameters
        ----------
        pane : int
            Pane number, ascending from call to call.
        series_of : int64[M]
            Series of each cell, ascending.
        bins : integer[M]
            Layout bin of each cell.
        values : int64[M, K]
            Its counts of served scores.

        Returns
        -------
        list of AlarmEvent
            By series; a clearing before the alarm that takes its place.

        Raises
        ------
        ValueError
            If series do not ascend, or one of them had this pane or a later one already.
        """
        series, cells = pane_cells(series_of, bins, values)
        if not len(series):
            return []
        if (series[1:] <= series[:-1]).any():
            raise ValueError("the series of a pane must ascend")
        self._reserve(int(series[-1]) + 1)
        if (self.last_pane[series] >= pane).any():
            raise ValueError(f"pane {pane} was weighed before, or a later one was")
        self.last_pane[series] = pane
        return self._events(pane, series, self._weigh(pane, series, cells))

    def restart(self, series: Ints) -> None:
        """Begin again with some series, as after a promoted map; alarms in force and what is known of phi stay."""
        known = self._known(series)
        self._start(known)
        self.pivot_sums[known] = 0.0

    def forget(self, series: Ints) -> None:
        """Drop everything about some series, alarms in force too: their numbers may be given to others."""
        known = self._known(series)
        for name in self._ROWS:
            getattr(self, name)[known] = self._empty(name)
        self._dispersion.forget(known)
        self._latch.forget(known)

    def evidence(self, series: Ints) -> Evidence:
        """How `series` stand; any number not seen yet stands as at the start."""
        if len(series):
            self._reserve(int(series.max()) + 1)
        log_m = self.log_m[series]
        evidence = log_evidence(log_m.T)
        leading = np.where(np.isfinite(evidence), self._bets.fault[log_m.argmax(axis=1)], np.int8(NO_FAULT))
        threshold = self.threshold * self.caution[series]
        return Evidence(evidence, threshold, leading, self._latch.fault[series], self.phi[series])

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays, by name; first axis series."""
        rows = {name: getattr(self, name) for name in self._ROWS}
        rows |= {f"latch.{name}": getattr(self._latch, name) for name in Latch.ROWS}
        rows |= {f"dispersion.{name}": getattr(self._dispersion, name) for name in Dispersion.ROWS}
        return {name: array.copy() for name, array in rows.items()}

    @classmethod
    def from_state(cls, settings: DetectorSettings, state: Mapping[str, NDArray[Any]]) -> Detector:
        """A detector that goes on where `state` was taken, under the same tolerance and pane length.

        Raises
        ------
        ValueError
            If an array's shape is that of another tolerance or pane length.
        """
        detector = cls(settings)
        for name, fresh in detector.state().items():
            given = np.array(state[name], dtype=fresh.dtype)
            if given.shape[1:] != fresh.shape[1:]:
                raise ValueError(f"{name} has shape {given.shape}; another tolerance or pane length made it")
            room, _, plain = name.rpartition(".")
            setattr({"": detector, "latch": detector._latch, "dispersion": detector._dispersion}[room], plain, given)
        return detector

    def _weigh(self, pane: int, series: Ints, cells: PaneCells) -> Floats:
        """Take the pane in; returns the evidence after it, float64[S]."""
        if self.settings.dispersion is None:
            self._look_at_phi(pane, series)
        sums = self.pivot_sums[series]
        pivot = np.divide(sums[:, 0], sums[:, 1], out=np.full(len(series), np.nan), where=sums[:, 1] > 0)
        log_m = advance(self.log_m[series].T, log_payoffs(cells, self._bets, pivot) / self.phi[series])
        self.log_m[series] = log_m.T
        self.panes[series] += 1
        weight = np.empty((2, len(cells.n)))
        np.multiply(cells.n * cells.p, 1.0 - cells.p, out=weight[1])
        np.multiply(weight[1], cells.x, out=weight[0])
        self.pivot_sums[series] = self._keep * sums + cells.total(weight).T
        if self.settings.dispersion is None:
            self._dispersion.add(pane, series, cells)
        return log_evidence(log_m)

    def _look_at_phi(self, pane: int, series: Ints) -> None:
        """Take phi from the blocks before the pane; weigh the evidence again where it was far too small."""
        now = self._dispersion.close(pane, series)
        rise = now.phi / self.phi[series]
        again = (now.lengths > self.lengths[series]) & (rise > FAR_TOO_SMALL)
        log_m = self.log_m[series[again]]
        self.log_m[series[again]] = np.where(log_m > 0, log_m / rise[again, None], log_m)
        self.phi[series], self.lengths[series], self.caution[series] = now

    def _events(self, pane: int, series: Ints, evidence: Floats) -> list[AlarmEvent]:
        crossed = evidence >= self.threshold * self.caution[series]
        fault = np.full(len(series), NO_FAULT, dtype=np.int8)
        fault[crossed] = self._bets.fault[self.log_m[series[crossed]].argmax(axis=1)]
        calm = evidence <= np.log(self.panes[series])
        cleared, raised = self._latch.update(series, crossed, fault, calm)
        if not cleared and not crossed.any():
            return []
        self._start(series[crossed])

        def event(at: int, code: int, *, up: bool) -> tuple[int, bool, AlarmEvent]:
            facts = (float(evidence[at]), float(self.phi[series[at]]))
            return at, up, AlarmEvent(pane, int(series[at]), FAULTS[code], up, *facts)

        events = [event(at, code, up=False) for at, code in cleared]
        events += [event(at, int(fault[at]), up=True) for at in raised.tolist()]
        return [found for _, _, found in sorted(events, key=lambda item: item[:2])]

    def _start(self, series: Ints) -> None:
        """Let the evidence of some series begin again."""
        self.log_m[series] = -np.inf
        self.panes[series] = 0
        if self.settings.dispersion is None and len(series):
            self._dispersion.new_epoch(series)

    def _known(self, series: Ints) -> Ints:
        return series[series < len(self.panes)]

    def _reserve(self, size: int) -> None:
        have = len(self.panes)
        if size <= have:
            return
        size = max(size, 2 * have)
        for name in self._ROWS:
            held = getattr(self, name)
            more = np.full((size - have, *held.shape[1:]), self._empty(name), dtype=held.dtype)
            setattr(self, name, np.concatenate([held, more]))
        self._dispersion.reserve(size)
        self._latch.reserve(size)

    def _empty(self, name: str) -> float:
        """What a state array holds for a series without panes."""
        if name == "last_pane":
            return int(np.iinfo(np.int64).min)
        if name == "phi":
            return 1.0 if self.settings.dispersion is None else self.settings.dispersion
        if name == "caution":
            return 1.0 if self.settings.dispersion is not None else MOST_CAUTION
        return -np.inf if name == "log_m" else 0
