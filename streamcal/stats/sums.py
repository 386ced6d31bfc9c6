"""Per-bin sums over scores, put back together from centred fixed-point counts.

With c the bin's centre and dp = p - c, the identities used are exact algebra on the columns::

    sum w p          = c W + sum w dp
    sum w p (1 - p)  = c (1 - c) W + (1 - 2c) sum w dp - sum w dp^2
    sum w (p - y)^2  = sum w dp^2 + 2 (c sum w dp - sum w y dp) + c^2 W + (1 - 2c) sum w y

so no term is the small difference of two large ones. In an unweighted stream w = 1 throughout. Two sums serve
Spiegelhalter's test: sum w (y - p) (1 - 2p) is as exact, and sum w^2 (1 - 2p)^2 p (1 - p), a polynomial of degree 4,
is expanded to second order about the bin's mean score, which leaves out only its third and fourth moment there (the
test errs by 3e-7 of itself on ordinary streams, and by 2e-5 if all scores lie in the one bin at .5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.counts import PLAIN, SCALE, WEIGHTED, Column
from streamcal.stats.layout import CENTRES, N_BINS

__all__ = ["MIN_VARIANCE", "ScoreSums", "score_sums"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOSS_POSITIVE: Final = -np.log(CENTRES)
_LOSS_NEGATIVE: Final = -np.log1p(-CENTRES)
_SPREAD: Final = CENTRES * (1.0 - CENTRES)
_TILT: Final = 1.0 - 2.0 * CENTRES

MIN_VARIANCE: Final = 1e-6
"""Logits with a standard deviation under .001 are one score value; their slope would need 1e6 positives."""

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
    square_score : sum w^2 p.
    null_variance : sum w^2 p (1 - p), the variance of the summed gap if every score were right.
    tilted_gap : sum w (y - p) (1 - 2p).
    tilted_variance : sum w^2 (1 - 2p)^2 p (1 - p), its variance if every score were right.
    gap_moment : sum w (y - p) (p - mean score of the bin).
    score_spread : sum w (p - mean score of the bin)^2.
    many_scores : bool[S, 284], whether the logits of the bin vary: it holds more than one score.
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
    square_score: Floats
    null_variance: Floats
    tilted_gap: Floats
    tilted_variance: Floats
    gap_moment: Floats
    score_spread: Floats
    many_scores: NDArray[np.bool_]
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
    w, wy, dp, ydp, dp2, dx, dx2, _, ll = plain if width == PLAIN else weighted
    # Scores and their squared errors lie in [0, 1]; the rounded sums of a tiny weight may not.
    score = np.clip(CENTRES * w + dp, 0.0, w)
    gap = wy - score
    if width == PLAIN:
        squares = w, dp, dp2
    else:
        square_weight, v_dp, v_dp2 = columns[Column.W2 : Column.W2DX]
        squares = square_weight, plain[Column.DP] + v_dp, plain[Column.DP2] + v_dp2
    away = dp / np.where(w > 0, w, 1.0)
    product = CENTRES * dp + dp2 - ydp  # sum w (p - y) (p - c)
    return ScoreSums(
        rows=plain[Column.N],
        row_positives=plain[Column.Y],
        weight=w,
        positive=wy,
        score=score,
        gap=gap,
        squared_error=np.clip(dp2 + 2.0 * (CENTRES * dp - ydp) + CENTRES * CENTRES * w + _TILT * wy, 0.0, w),
        log_loss=np.maximum(ll + _LOSS_POSITIVE * wy + _LOSS_NEGATIVE * (w - wy), 0.0),
        square_weight=squares[0],
        square_score=CENTRES * squares[0] + squares[1],
        null_variance=_spread(*squares),
        tilted_gap=_TILT * gap + 2.0 * product,
        tilted_variance=_tilted_spread(*squares),
        gap_moment=-product - gap * away,
        score_spread=np.maximum(dp2 - away * dp, 0.0),
        many_scores=dx2 * w - dx * dx > MIN_VARIANCE * w * w,
        resolution=_RESOLUTION[width],
    )


def _spread(w: Floats, dp: Floats, dp2: Floats) -> Floats:
    """Weighted sum of p (1 - p); rounding of the counts can leave it a hair below 0."""
    spread = _SPREAD * w + _TILT * dp - dp2
    return np.maximum(spread, 0.0, out=spread)


def _tilted_spread(w: Floats, dp: Floats, dp2: Floats) -> Floats:
    """Weighted sum of f(p) = (1 - 2p)^2 p (1 - p), as W f + sum (p - mean)^2 f'' / 2 at the bin's mean."""
    away = dp / np.where(w > 0, w, 1.0)
    mean = CENTRES + away
    spread = mean * (1.0 - mean)
    around = np.maximum(dp2 - away * dp, 0.0)
    return np.maximum(w * spread * (1.0 - 4.0 * spread) + around * (24.0 * spread - 5.0), 0.0)
