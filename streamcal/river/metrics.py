"""Metrics of calibration with river's interface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from river.metrics.base import BinaryMetric

from streamcal.river.counts import CalibrationCounts
from streamcal.stats.figures import FIGURES, Block
from streamcal.stats.layout import coarse_starts

__all__ = ["ECE", "PlattSlope", "PredictedToObservedRatio"]


class _CalibrationMetric(BinaryMetric):
    """One figure over counts; computed when asked for, not at every row."""

    _fmt = ".6f"
    _figure: ClassVar[str]
    _best: ClassVar[float]

    def __init__(self, counts: CalibrationCounts | None, pos_val: Any, ece_bins: int, min_count: int) -> None:
        super().__init__(pos_val=pos_val)  # type: ignore[no-untyped-call]  # river is typed in part
        self.counts = CalibrationCounts() if counts is None else counts
        self._starts = coarse_starts(ece_bins)
        self._min_count = min_count
        self._known: tuple[int, float] = (-1, math.nan)

    @property
    def requires_labels(self) -> bool:
        """False: probabilities are what is measured."""
        return False

    @property
    def bigger_is_better(self) -> bool:
        """False; two metrics are compared by their distance from the best value, see `is_better_than`."""
        return False

    def is_better_than(self, other: Any) -> bool:
        """Whether this one is closer to the value of a calibrated model."""
        return bool(self._distance() < other._distance())  # noqa: SLF001 -- of the same class

    def update(self, y_true: Any, y_pred: float | Mapping[Any, float], w: float = 1.0) -> None:
        """Count one row.

        Parameters
        ----------
        y_true : label
            Positive where it equals `pos_val`.
        y_pred : float or dict
            Probability of the positive class, or what ``predict_proba_one`` gives.
        w : float
            Weight, from 0 to 1000.

        Raises
        ------
        ValueError
            If the score is no probability or the weight out of range.
        """
        self.counts.add(self._score(y_pred), y_true == self.pos_val, w)

    def revert(self, y_true: Any, y_pred: float | Mapping[Any, float], w: float = 1.0) -> None:
        """Take one row back that was counted with the same values; exact."""
        self.counts.add(self._score(y_pred), y_true == self.pos_val, w, sign=-1)

    def get(self) -> float:
        """The figure; NaN while it cannot be known from the rows counted."""
        sequence, value = self._known
        if sequence != self.counts.sequence:
            # Rows that are missing make figures absent, which is no reason for a warning.
            with np.errstate(divide="ignore", invalid="ignore"):
                value = float(FIGURES[self._figure](Block(self.counts.values[None], self._starts, self._min_count))[0])
            self._known = (self.counts.sequence, value)
        return value

    def _score(self, y_pred: float | Mapping[Any, float]) -> float:
        """A model that has not met the class yet leaves it out: 0, as river's own metrics take it."""
        return float(y_pred.get(self.pos_val, 0.0) if isinstance(y_pred, Mapping) else y_pred)

    def _distance(self) -> float:
        return abs(self.get() - self._best)


class ECE(_CalibrationMetric):
    """Expected calibration error over equal-width bins (lo, hi].

    A calibrated model has one above 0, the more so the fewer rows: compare it with `ece_noise_floor` of the live
    figures, or over as many rows.

    Parameters
    ----------
    counts : CalibrationCounts, optional
        Shared with other metrics, of which then only one is updated. None: its own.
    pos_val : label
        Which label is positive.
    ece_bins : int
        1, 2, 3, 4, 5, 10, 15 or 20.

    Raises
    ------
    ValueError
        If `ece_bins` is another number.

    Examples
    --------
    >>> metric = ECE()
    >>> for y_true, y_pred in [(True, 0.75), (True, 0.75), (True, 0.75), (False, 0.75), (True, 0.25)]:
    ...     metric.update(y_true, y_pred)
    >>> metric
    ECE: 0.15
    """

    _figure = "ece"
    _best = 0.0

    def __init__(self, counts: CalibrationCounts | None = None, pos_val: Any = True, ece_bins: int = 10) -> None:
        super().__init__(counts, pos_val, ece_bins, min_count=1)
        self.ece_bins = ece_bins


class PlattSlope(_CalibrationMetric):
    """Slope of the outcomes' logit in that of the scores; below 1 the model is over-confident.

    Parameters
    ----------
    counts, pos_val
        See `ECE`.
    min_count : int
        Rows of either class below which it is NaN.

    Examples
    --------
    >>> metric = PlattSlope(min_count=1)
    >>> for score, positives in [(0.1, 2), (0.9, 8)]:
    ...     for row in range(10):
    ...         metric.update(row < positives, score)
    >>> round(metric.get(), 4)  # ln(.8 / .2) by ln(.9 / .1)
    0.6309
    """

    _figure = "platt_slope"
    _best = 1.0

    def __init__(self, counts: CalibrationCounts | None = None, pos_val: Any = True, min_count: int = 20) -> None:
        super().__init__(counts, pos_val, 1, min_count)
        self.min_count = min_count


class PredictedToObservedRatio(_CalibrationMetric):
    """Sum of the scores by sum of the labels; above 1 the scores are too high.

    Parameters
    ----------
    counts, pos_val
        See `ECE`.

    Examples
    --------
    >>> metric = PredictedToObservedRatio()
    >>> metric.update(True, 0.75)
    >>> metric.update(False, 0.5)
    >>> round(metric.get(), 9)
    1.25
    """

    _figure = "ratio"
    _best = 1.0

    def __init__(self, counts: CalibrationCounts | None = None, pos_val: Any = True) -> None:
        super().__init__(counts, pos_val, 1, min_count=1)

    def _distance(self) -> float:
        """In the logarithm: twice too high is as bad as twice too low."""
        ratio = self.get()
        return abs(math.log(ratio)) if ratio > 0.0 else math.nan
