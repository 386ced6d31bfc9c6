"""What the join tells of predictions and labels as they come, counted or not.

Row changes speak of labelled predictions as they are released; early signs need the predictions that have no label
yet, and with ``positives_only`` the positives that are held until maturity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Accepted", "Arrivals", "Columns", "LabelChanges", "concatenate", "taken"]

Columns = TypeVar("Columns", "Accepted", "LabelChanges")


@dataclass(frozen=True, slots=True)
class Accepted:
    """Predictions taken into the join; every column has shape (n,).

    Attributes
    ----------
    time_ms : int64
    score : float64
        Raw, or served where the raw one is unknown.
    served : float64
    model, profile : int32
    """

    time_ms: NDArray[np.int64]
    score: NDArray[np.float64]
    served: NDArray[np.float64]
    model: NDArray[np.int32]
    profile: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.time_ms)


@dataclass(frozen=True, slots=True)
class LabelChanges:
    """Labels given to predictions (+1) or taken back from them (-1), released or not; every column has shape (n,).

    Attributes
    ----------
    sign : int8
    label : int8
    prediction_ms : int64
        Time of the prediction.
    delay_ms : int64
        Outcome time less prediction time; negative for an outcome stamped earlier.
    served : float64
    model : int32
    """

    sign: NDArray[np.int8]
    label: NDArray[np.int8]
    prediction_ms: NDArray[np.int64]
    delay_ms: NDArray[np.int64]
    served: NDArray[np.float64]
    model: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.sign)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What came since it was last asked."""

    accepted: Sequence[Accepted]
    labels: Sequence[LabelChanges]


def concatenate(parts: Sequence[Columns]) -> Columns:
    """All rows of `parts` in order; `parts` is not empty."""
    if len(parts) == 1:
        return parts[0]
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(kind)))


def taken(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    """The rows at `rows`."""
    return type(columns)(*(getattr(columns, column.name)[rows] for column in fields(columns)))
