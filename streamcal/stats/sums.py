"""Per-bin sums over scores, put back together from centred fixed-point counts.

With c the bin's centre and dp = p - c, the identities used are exact algebra on the columns::

    sum w p          = c W + sum w dp
    sum w p (1 - p)  = c (1 - c) W + (1 - 2c) sum w dp - sum w dp^2
    sum w (p - y)^2  = sum w dp^2 + 2 (c sum w dp - sum w y dp) + c^2 W + (1 - 2c) sum w y

so no term is the small difference of two large ones. In an unweighted stream w = 1 throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.counts import PLAIN, SCALE, WEIGHTED, Column
from streamcal.stats.layout import CENTRES, N_BINS

__all__ = ["ScoreSums", "score_sums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOSS_POSITIVE: Final = -np.log(CENTRES)
_LOSS_NEGATIVE: Final = -np.log1p(-CENTRES)
_SPREAD: Final = CENTRES * (1.0 - CENTRES)
_TILT: Final = 1.0 - 2.0 * CENTRES

# One row's rounding in sum p(1-p): half a unit of `dp` (2^-38), or of `w2dp` (2^-30), and as much again to spare.
_RESOLUTION: Final = {PLAIN: 2.0**-38, WEIGHTED: 2.0**-30}


@dataclass(frozen=True, slots=True)
class ScoreSums:
    """Sums of each bin; every array is float64[S, 284] and zero in an empty bin.

    Attributes
    ----------
    rows, row_positives : rows and positive rows, unweighted.
    weight, positive : sum w and sum w y.
    score : sum w p.
    gap : sum w (y - p); positive where the scores are too low.
    squared_error : sum w (p - y)^2.
    log_loss : sum w times the log loss at the clipped score.
    square_weight : sum w^2.
    null_variance : sum w^2 p (1 - p), the variance of the summed gap if every score were right.
    resolution : rounding of `null_variance` per row; less than that is no variance.
    """

    rows: Floats
    row_positives: Floats
    weight: Floats
    positive: Floats
    score: Floats
    gap: Floats
    squared_error: Floats
    log_loss: Floats
    square_weight: Floats
    null_variance: Floats
    resolution: float


def score_sums(counts: Ints) -> ScoreSums:
    """Put the sums of every bin together.

    Parameters
    ----------
    counts : int64[S, 284, 9] or int64[S, 284, 23]

    Raises
    ------
    ValueError
        If `counts` has another shape.
    """
    width = counts.shape[-1]
    if counts.ndim != 3 or counts.shape[1] != N_BINS or width not in _RESOLUTION:
        raise ValueError(f"counts have shape {counts.shape}, not (series, {N_BINS}, {PLAIN} or {WEIGHTED})")
    columns: Floats = np.moveaxis(counts, -1, 0).astype(np.float64, order="C")
    columns /= SCALE[:width, None, None]
    plain, weighted = columns[:PLAIN], columns[Column.W : Column.W2]
    w, wy, dp, ydp, dp2, _, _, _, ll = plain if width == PLAIN else weighted
    score = CENTRES * w + dp
    variance = _spread(w, dp, dp2)
    if width == PLAIN:
        square_weight, null_variance = w, variance
    else:
        square_weight, v_dp, v_dp2 = columns[Column.W2 : Column.W2DX]
        null_variance = _spread(square_weight, plain[Column.DP] + v_dp, plain[Column.DP2] + v_dp2)
    return ScoreSums(
        rows=plain[Column.N],
        row_positives=plain[Column.Y],
        weight=w,
        positive=wy,
        score=score,
        gap=wy - score,
        squared_error=dp2 + 2.0 * (CENTRES * dp - ydp) + CENTRES * CENTRES * w + _TILT * wy,
        log_loss=ll + _LOSS_POSITIVE * wy + _LOSS_NEGATIVE * (w - wy),
        square_weight=square_weight,
        null_variance=null_variance,
        resolution=_RESOLUTION[width],
    )


def _spread(w: Floats, dp: Floats, dp2: Floats) -> Floats:
    """Weighted sum of p (1 - p); rounding of the counts can leave it a hair below 0."""
    spread = _SPREAD * w + _TILT * dp - dp2
    return np.maximum(spread, 0.0, out=spread)
