"""What the fits of map families read: the filled bins of one model's raw counts, as rates and moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.counts import PLAIN, SCALE, Column
from streamcal.stats.layout import CENTRES, LOGIT_CENTRES

__all__ = ["FitBins", "fit_bins"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FitBins:
    """Bins that hold rows, in the order of their scores; float64[M] unless said otherwise.

    In a weighted stream weights are scaled to sum to the effective number of rows, (sum w)^2 / sum w^2: doubling
    every weight is no new evidence against a prior.

    Attributes
    ----------
    index : intp[M]
        Which bin of the layout.
    rows : rows, whatever they weigh.
    weight, positive : sum w and sum w y.
    score, x : mean score and mean logit.
    v : variance of the logits within the bin.
    x_positive : sum w y (logit - x).
    scarcer : int
        Rows of the class that has fewer.
    """

    index: NDArray[np.intp]
    rows: Floats
    weight: Floats
    positive: Floats
    score: Floats
    x: Floats
    v: Floats
    x_positive: Floats
    scarcer: int


def fit_bins(counts: Ints) -> FitBins:
    """Read counts.

    Parameters
    ----------
    counts : int64[284, 9] or int64[284, 23]
    """
    weighted = counts.shape[-1] > PLAIN
    index = np.flatnonzero(counts[:, Column.W if weighted else Column.N] > 0)
    columns: Floats = counts[index].T.astype(np.float64)
    columns /= SCALE[: len(columns), None]
    w, wy, dp, _, _, dx, dx2, ydx = columns[Column.W : Column.W2 - 1] if weighted else columns[: Column.LL]
    away = dx / w
    n, y = int(counts[:, Column.N].sum()), int(counts[:, Column.Y].sum())
    scale = w.sum() / columns[Column.W2].sum() if weighted and len(index) else 1.0
    return FitBins(
        index=index,
        rows=columns[Column.N],
        weight=w * scale,
        positive=wy * scale,
        score=CENTRES[index] + dp / w,
        x=LOGIT_CENTRES[index] + away,
        v=np.maximum(dx2 / w - away * away, 0.0),
        x_positive=(ydx - wy * away) * scale,
        scarcer=min(y, n - y),
    )
