"""Rows that maps are judged on, and maps that follow each other in time.

A map is judged by what it said when the prediction was made. Judged when the label comes, whatever forgets fastest is
praised for what it learned meanwhile: on flights a mixture judged so picks rates that are too fast (log loss .52295
in place of .52155). So every challenger is a sequence of maps, each in force from its moment on, and a row
is judged by the one in force at the start of its step of prediction.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Map
from streamcal.state.trees import recorded
from streamcal.stats.cells import reduce_cells
from streamcal.stats.counts import PLAIN, SCALE, Column
from streamcal.stats.fit_panes import Entered
from streamcal.stats.layout import CENTRES, N_BINS

__all__ = ["GENERATIONS", "Generations", "JudgedRows", "judged_rows", "log_loss", "spacing_ms", "weighed", "weighs"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TINIEST: Final = 1e-300

GENERATIONS: Final = 96
"""Of what is fitted within the horizon: one an hour for horizons up to four days. A fit to fourteen days of labels
changes little in a hundredth of its horizon."""


def spacing_ms(memory_ms: int, every_ms: int) -> int:
    """Time between generations, whole attempts, so that at most `GENERATIONS` are remembered for `memory_ms`.

    >>> spacing_ms(86_400_000, 3_600_000), spacing_ms(8 * 86_400_000, 3_600_000)
    (3600000, 7200000)
    """
    return max(-(-memory_ms // (GENERATIONS * every_ms)), 1) * every_ms


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Labelled rows merged by step of prediction and bin, ascending; arrays of shape (M,).

    Attributes
    ----------
    predicted_ms : int64
        Start of the step.
    score : float64
        Mean raw score.
    weight, positive : float64
        Weights, all and of positive rows, scaled to the effective number of rows: doubling every weight is no new
        evidence.
    n, positives : int64
        Rows, whatever they weigh.
    """

    predicted_ms: Ints
    score: Floats
    weight: Floats
    positive: Floats
    n: Ints
    positives: Ints

    def __len__(self) -> int:
        return len(self.n)

    def since(self, moment_ms: int) -> JudgedRows:
        """Rows of the steps that begin at `moment_ms` or later."""
        first = int(np.searchsorted(self.predicted_ms, moment_ms))
        if first == 0:
            return self
        return JudgedRows(
            self.predicted_ms[first:],
            self.score[first:],
            self.weight[first:],
            self.positive[first:],
            self.n[first:],
            self.positives[first:],
        )


def judged_rows(entered: Entered, step_ms: int) -> JudgedRows:
    """Rows of `entered`, whatever pane they are in."""
    cells = reduce_cells(entered.step * N_BINS + entered.bins, entered.values)
    held = weighs(cells.values)
    code = cells.code[held]
    return weighed(code // N_BINS * step_ms, code % N_BINS, cells.values[held])


def weighs(values: Ints) -> NDArray[np.bool_]:
    """Whether cells hold rows that weigh anything, of counts of shape (M, K)."""
    return np.asarray(values[:, Column.W if values.shape[1] > PLAIN else Column.N] > 0)


def weighed(predicted_ms: Ints, bins: Ints, values: Ints, group: Ints | None = None) -> JudgedRows:
    """Rows of cells that weigh something, shape (M,), (M,) and (M, K); `predicted_ms` ascends.

    Weights are scaled to effective rows within each group, int64 (M,); None: over all of them.
    """
    weighted = values.shape[1] > PLAIN
    first = Column.W if weighted else Column.N
    columns: Floats = values.T / SCALE[: values.shape[1], None]
    weight, positive = columns[first], columns[first + 1]
    score = CENTRES[bins] + columns[Column.WDP if weighted else Column.DP] / weight
    scale: Floats = np.ones(1)
    if weighted and len(bins):
        group = np.zeros_like(bins) if group is None else group
        scale = (np.bincount(group, weight) / np.maximum(np.bincount(group, columns[Column.W2]), TINIEST))[group]
    n, positives = values[:, Column.N], values[:, Column.Y]
    return JudgedRows(predicted_ms, score, weight * scale, positive * scale, n, positives)


def log_loss(rows: JudgedRows, served: Floats) -> Floats:
    """Log loss of each entry of `rows`, summed over its rows, in nats.

    The rows of a bin are judged at their mean score, which favours no map: within a bin a logit varies by an eighth.
    """
    return np.asarray(-(rows.positive * np.log(served) + (rows.weight - rows.positive) * np.log1p(-served)))


@recorded
@dataclass(slots=True)
class Generations:
    """Maps that follow each other: `maps[i]` is in force from `from_ms[i]` on, ascending."""

    from_ms: list[int] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)

    @property
    def newest(self) -> Map | None:
        """The last one."""
        return self.maps[-1] if self.maps else None

    def put(self, moment_ms: int, map_: Map) -> None:
        """Let `map_` be in force from `moment_ms` on, which is no earlier than those before."""
        if self.from_ms and self.from_ms[-1] == moment_ms:
            self.maps[-1] = map_
            return
        self.from_ms.append(moment_ms)
        self.maps.append(map_)

    def forget_before(self, moment_ms: int) -> None:
        """Let go what was replaced by `moment_ms`; what was in force then stays."""
        gone = max(bisect_right(self.from_ms, moment_ms) - 1, 0)
        del self.from_ms[:gone], self.maps[:gone]

    def served(self, rows: JudgedRows) -> Floats:
        """What was in force at each row's prediction says of it; NaN where nothing was."""
        served = np.full(len(rows), np.nan)
        index = np.searchsorted(np.array(self.from_ms, dtype=np.int64), rows.predicted_ms, side="right") - 1
        starts = np.flatnonzero(np.diff(index, prepend=-2)).tolist()
        for start, stop in pairwise([*starts, len(rows)]):
            if (number := int(index[start])) >= 0:
                served[start:stop] = self.maps[number].apply(rows.score[start:stop])
        return served

    def log_loss(self, rows: JudgedRows) -> Floats:
        """`log_loss` of what was in force at each row's prediction; NaN where nothing was."""
        return log_loss(rows, self.served(rows))
