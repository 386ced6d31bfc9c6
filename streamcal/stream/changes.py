"""What the join tells the counts: rows that entered and rows that left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowChanges"]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Labelled predictions added to (+1) or taken out of (-1) the counts; every column has shape (n,).

    Attributes
    ----------
    sign : int8
    raw, served : float64
        Scores; `raw` is NaN where unknown.
    weight : float64 or None
        None when all are 1.
    label : int8
    prediction_ms, outcome_ms : int64
        Event times; with ``positives_only`` the outcome time is the end of the horizon for either label.
    model, profile : int32
    frozen : bool
        Whether the change belongs to the frozen part of its pane too (what fits read).
    """

    sign: NDArray[np.int8]
    raw: NDArray[np.float64]
    served: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    label: NDArray[np.int8]
    prediction_ms: NDArray[np.int64]
    outcome_ms: NDArray[np.int64]
    model: NDArray[np.int32]
    profile: NDArray[np.int32]
    frozen: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.sign)

    def take(self, rows: NDArray[np.int64]) -> RowChanges:
        """The changes at `rows`."""
        return RowChanges(
            sign=self.sign[rows],
            raw=self.raw[rows],
            served=self.served[rows],
            weight=None if self.weight is None else self.weight[rows],
            label=self.label[rows],
            prediction_ms=self.prediction_ms[rows],
            outcome_ms=self.outcome_ms[rows],
            model=self.model[rows],
            profile=self.profile[rows],
            frozen=self.frozen[rows],
        )

    @staticmethod
    def concatenate(parts: Sequence[RowChanges]) -> RowChanges:
        """All rows of `parts` in order; `parts` is not empty."""
        if len(parts) == 1:
            return parts[0]
        weights = None
        if any(part.weight is not None for part in parts):
            weights = np.concatenate([np.ones(len(p)) if p.weight is None else p.weight for p in parts])
        return RowChanges(
            sign=np.concatenate([p.sign for p in parts]),
            raw=np.concatenate([p.raw for p in parts]),
            served=np.concatenate([p.served for p in parts]),
            weight=weights,
            label=np.concatenate([p.label for p in parts]),
            prediction_ms=np.concatenate([p.prediction_ms for p in parts]),
            outcome_ms=np.concatenate([p.outcome_ms for p in parts]),
            model=np.concatenate([p.model for p in parts]),
            profile=np.concatenate([p.profile for p in parts]),
            frozen=np.concatenate([p.frozen for p in parts]),
        )
