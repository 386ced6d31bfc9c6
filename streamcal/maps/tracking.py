"""The tracking filter: a Platt map that moves with the stream.

Time goes in *steps* (a quarter of an hour by default). For each step the filter says which map is in force; once the
step is over it learns from the rows that became known in it. An *expert* is one idea of how fast the truth moves. Its
logit is::

    level + slope * x + cycle(time of day) + transient

- `level` and `slope` walk at random; `cycle` is two harmonics of the day, walking slowly; `transient` is what a bad day
  adds, and reverts to 0 with its half-life.
- The slow parts learn from each row *beside the transient that was in force when the row was predicted*: their errors
  are the errors that were served. Beside today's transient they would learn who is known when: late flights become
  known at night, together, and a filter in outcome time alone takes that for a change of level (measured on flights:
  monthly calibration error .0146 in place of .0095, and no gain in log loss).
- The transient learns beside the slow parts of now, from the same rows: a fast part must use the freshest news.

Both updates are Laplace's: the mode of (normal prior x logistic likelihood), and the curvature there. One curvature
more per step costs nothing and keeps every expert a plain Gaussian.

Experts are mixed by their prequential log loss, each row judged by the parameters in force **when it was predicted**.
Judged when its label arrived, an expert is praised for what it learned meanwhile, and whatever forgets fastest wins.
Losses fade with a half-life, so that a stream may change its manners. What is served is one Platt map with the mean of
the parameters: a document holds it, and no reader needs to know of experts.

What it needs of the counts: rows by (step in which known, step of prediction, bin), each once. What it leaves out: the
spread of logits inside a bin (3e-4 in the slope at most), over-dispersion, and any limit on what may be published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.experts import CYCLE_START_SD, DAY_MS, HARMONICS, SLOPE_SHARE, TrackingSettings, harmonics
from streamcal.maps.laplace import Rows, laplace
from streamcal.stats.counts import PLAIN, SCALE, Column
from streamcal.stats.layout import LOGIT_CENTRES

__all__ = ["StepCells", "Tracked", "TrackingFilter", "step_cells"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOVING: Final = (
    "mean",
    "covariance",
    "transient",
    "transient_variance",
    "log_weight",
    "served",
    "slopes",
    "transients",
)
"""Attributes that `state` saves, without their underscore."""


class StepCells(NamedTuple):
    """Rows that became known in one step, merged as far as they share a prediction step and a bin.

    Attributes
    ----------
    predicted : int64[M]
        Step of prediction.
    rows : Rows
        Their weight, positive weight and mean raw logit.
    """

    predicted: Ints
    rows: Rows


class Tracked(NamedTuple):
    """Parameters of the map in force: p = sigmoid(slope * logit(score) + intercept)."""

    intercept: float
    slope: float


def step_cells(predicted: Ints, bins: NDArray[np.intp], values: Ints) -> StepCells:
    """Cells from fixed-point counts of raw scores.

    Parameters
    ----------
    predicted : int64[M]
    bins : intp[M]
    values : int64[M, 9] or int64[M, 23]
        Weights are scaled to effective rows (by sum w / sum w^2), since doubling every weight is no new evidence.
    """
    weighted = values.shape[1] > PLAIN
    first = Column.W if weighted else Column.N
    held = values[:, first] > 0
    kept = values[held]
    columns: Floats = kept.T / SCALE[: values.shape[1], None]
    weight, positive = columns[first], columns[first + 1]
    dx = columns[Column.WDX if weighted else Column.DX]
    logit = LOGIT_CENTRES[bins[held]] + dx / weight
    if weighted and len(kept):
        scale = float(weight.sum() / columns[Column.W2].sum())
        weight, positive = weight * scale, positive * scale
    return StepCells(predicted[held], Rows(weight, positive, logit))


class TrackingFilter:
    """The filter of one model, standing at a step.

    Invariant: `_served`, `_slopes` and `_transients` hold what was in force at each of the last `memory_steps` steps,
    this one included, at index step modulo memory; the identity map before the first.

    Parameters
    ----------
    settings : TrackingSettings
    step : int
        First step it answers for: event time // step_ms.

    Examples
    --------
    >>> TrackingFilter(TrackingSettings(memory_steps=24), step=0).current()
    Tracked(intercept=0.0, slope=1.0)
    """

    STATE = (
        "step",
        "_mean",
        "_covariance",
        "_transient",
        "_transient_variance",
        "_log_weight",
        "_served",
        "_slopes",
        "_transients",
    )

    def __init__(self, settings: TrackingSettings, step: int) -> None:
        self.settings = settings
        self.step = step
        experts = settings.experts
        size, width = len(experts), 2 + 2 * HARMONICS
        days = settings.step_ms / DAY_MS
        level, cycle = (np.array([getattr(e, name) for e in experts]) for name in ("level_sd", "cycle_sd"))
        self._at_rest = np.array([e.transient_sd for e in experts]) ** 2
        self._keep = np.array([0.5 ** (24.0 * days / e.transient_hours) for e in experts])
        self._fade = 0.5 ** (days / settings.loss_half_life_days)
        self._free = np.ones((size, width))
        self._free[:, 2:] = (cycle >= 0)[:, None]
        self._noise = np.empty((size, width))
        self._noise[:, 0] = level**2 * days
        self._noise[:, 1] = level**2 * days * SLOPE_SHARE
        self._noise[:, 2:] = (np.maximum(cycle, 0.0) ** 2 * days)[:, None]

        self._mean = np.zeros((size, width))
        self._mean[:, 1] = 1.0
        start = np.array([settings.intercept_sd, settings.slope_sd, *[CYCLE_START_SD] * (2 * HARMONICS)]) ** 2
        self._covariance = np.tile(np.diag(start), (size, 1, 1))
        self._transient = np.zeros(size)
        self._transient_variance = self._at_rest.copy()
        self._log_weight = np.zeros(size)
        self._served = np.zeros((settings.memory_steps, size))
        self._slopes = np.ones((settings.memory_steps, size))
        self._transients = np.zeros((settings.memory_steps, size))
        self._record()

    @property
    def weights(self) -> Floats:
        """Share of each expert in the map in force; float64[experts], sums to 1."""
        weight = np.exp(self._log_weight - self._log_weight.max())
        return np.asarray(weight / weight.sum())

    def current(self) -> Tracked:
        """The map in force at `step`; the caller judges whether its slope may be published."""
        slot, weights = self.step % self.settings.memory_steps, self.weights
        return Tracked(float(weights @ self._served[slot]), float(weights @ self._slopes[slot]))

    def update(self, step: int, cells: StepCells) -> None:
        """Learn what became known in `step`, and stand at the next.

        Parameters
        ----------
        step : int
            Not before the step it stands at; those between are passed as quiet.
        cells : StepCells
            All of the step's rows, predicted in it or before.

        Raises
        ------
        ValueError
            If the step is over already.
        """
        self.advance(step)
        if len(cells.predicted):
            self._learn(cells)
        self._pass_time(1)
        self._record()

    def advance(self, step: int) -> None:
        """Stand at `step`, nothing having become known in between.

        Raises
        ------
        ValueError
            If it stands at a later one.
        """
        if step < self.step:
            raise ValueError(f"the filter stands at step {self.step}; step {step} is over")
        unseen = step - self.step - self.settings.memory_steps
        if unseen > 0:
            self._pass_time(unseen)
        while self.step < step:
            self._pass_time(1)
            self._record()

    def state(self) -> dict[str, NDArray[np.float64] | Ints]:
        """All that moves, as arrays; `from_state` continues from it to the bit."""
        names = _MOVING
        arrays: dict[str, NDArray[np.float64] | Ints] = {name: getattr(self, f"_{name}").copy() for name in names}
        arrays["step"] = np.array([self.step], dtype=np.int64)
        return arrays

    @classmethod
    def from_state(cls, settings: TrackingSettings, state: Mapping[str, NDArray[np.float64] | Ints]) -> TrackingFilter:
        """The filter whose `state` this is.

        Raises
        ------
        ValueError
            If it was saved under other experts or another memory.
        """
        made = cls(settings, int(state["step"][0]))
        for name in _MOVING:
            held = getattr(made, f"_{name}")
            if state[name].shape != held.shape:
                raise ValueError(f"`{name}` has shape {state[name].shape}, these settings need {held.shape}")
            setattr(made, f"_{name}", np.array(state[name], dtype=np.float64))
        return made

    def _pass_time(self, steps: int) -> None:
        """Let `steps` quiet steps go by: walks widen, transients revert, losses fade."""
        kept = self._keep**steps
        self._transient = self._transient * kept
        self._transient_variance = self._at_rest + (self._transient_variance - self._at_rest) * kept**2
        diagonal = np.arange(self._mean.shape[1])
        self._covariance[:, diagonal, diagonal] += self._noise * steps
        self._log_weight = self._log_weight * self._fade**steps
        self.step += steps

    def _record(self) -> None:
        """Note what is in force at this step."""
        slot = self.step % self.settings.memory_steps
        cycle = self._mean[:, 2:] @ harmonics(np.array([self.step]), self.settings.step_ms)[0]
        self._served[slot] = self._mean[:, 0] + cycle + self._transient
        self._slopes[slot] = self._mean[:, 1]
        self._transients[slot] = self._transient

    def _learn(self, cells: StepCells) -> None:
        oldest = self.step - self.settings.memory_steps + 1
        slots = np.clip(cells.predicted, oldest, self.step) % self.settings.memory_steps
        rows = cells.rows
        self._log_weight = self._log_weight - rows.log_loss(self._served[slots].T + self._slopes[slots].T * rows.logit)
        self._log_weight -= self._log_weight.max()

        cycle = harmonics(cells.predicted, self.settings.step_ms)
        design = np.column_stack([np.ones_like(rows.logit), rows.logit, cycle])
        slow = laplace(rows, design, self._free, self._transients[slots].T, self._mean, self._covariance)
        self._mean, self._covariance = slow.mean, slow.covariance

        moving = self._at_rest > 0
        fast = laplace(
            rows,
            np.ones((len(rows.logit), 1)),
            np.ones((int(moving.sum()), 1)),
            self._mean[moving] @ design.T,
            self._transient[moving, None],
            self._transient_variance[moving, None, None],
        )
        self._transient[moving] = fast.mean[:, 0]
        self._transient_variance[moving] = fast.covariance[:, 0, 0]
