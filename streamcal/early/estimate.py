"""Scores against outcomes before the outcomes are complete: a warning, never a figure.

Theory of operation
-------------------
A positive that comes within the horizon comes within age a with probability F(a), F the distribution of the delays of
positives in matured cohorts (those that are not matured would bias it short). So of predictions that are all at least
`a` old, sum p F(a) positives are to be expected with a delay up to a; scores are corrected, not outcomes, which has the
lower variance and does not blow up where F is small.

A cohort is compared up to the longest bucket edge that *all* of it has reached: its youngest prediction decides, by the
lowest outcome watermark. Later positives are left aside, so nothing is assumed about when inside the cohort the
predictions were made; what is given up is the last eighth of an octave of each age.

Where labels may be missing for good, scores are multiplied by the label coverage of their score band.

The limit: delays that stretch and a base rate that falls look the same, and so do labels that come faster and one that
rises. (Exponential delays a third longer than F says read as a fall of 14 %.) Hence warning only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamcal.early.cohorts import CohortCounts
from streamcal.snapshot import EarlyEstimate

__all__ = ["early_estimate"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def early_estimate(
    matured: CohortCounts,
    fresh: CohortCounts,
    ages_ms: Ints,
    edges_ms: Ints,
    *,
    min_count: int,
    complete: bool,
    phi: float = 1.0,
) -> EarlyEstimate | None:
    """Estimate from cohorts that have not matured.

    Parameters
    ----------
    matured : CohortCounts
        Total of matured cohorts.
    fresh : CohortCounts
        One row per cohort.
    ages_ms : int64[C]
        Age of the youngest prediction of each cohort.
    edges_ms : int64[J]
        Of the delay buckets.
    min_count : int
        Matured positives without which F is unknown, and positives expected or seen without which there is no ratio.
    complete : bool
        Whether every prediction gets a label (positives only).
    phi : float
        Over-dispersion of the outcomes.

    Returns
    -------
    EarlyEstimate or None
        None while F is unknown or no cohort is old enough.
    """
    known = int(matured.positives.sum())
    reach = np.searchsorted(edges_ms, ages_ms, side="right") - 1
    used = reach >= 0
    if known < min_count or not used.any():
        return None
    distribution = np.cumsum(matured.positives) / known
    cover = np.ones(matured.accepted.shape) if complete else _coverage(matured)
    reach, score, square = reach[used], fresh.score[used] @ cover, fresh.square[used] @ cover**2
    seen = np.cumsum(fresh.positives[used], axis=1)
    positives = int(seen[np.arange(len(reach)), reach].sum())
    within = distribution[reach]
    expected = float(score @ within)
    ratio, error = math.nan, math.nan
    if positives and max(positives, expected) >= min_count:
        ratio = expected / positives
        scatter = phi * (expected - float(square @ within**2)) * positives / expected if expected else 0.0
        unsure = _variance_by_delays(matured.positives, score, reach)
        error = math.sqrt(max(scatter, 0.0) * ratio**2 + unsure) / positives
    return EarlyEstimate(
        predictions=int(fresh.accepted[used].sum()),
        positives=positives,
        expected_positives=expected,
        ratio=None if math.isnan(ratio) else ratio,
        ratio_se=None if math.isnan(error) else error,
    )


def _coverage(matured: CohortCounts) -> Floats:
    """Share of matured predictions with a label by band; that of all bands where a band has none."""
    whole = matured.labelled.sum() / max(int(matured.accepted.sum()), 1)
    share: Floats = np.divide(
        matured.labelled, matured.accepted, out=np.full(matured.accepted.shape, whole), where=matured.accepted > 0
    )
    return share


def _variance_by_delays(positives: Ints, score: Floats, reach: Ints) -> float:
    """Variance of sum s F(a) that comes from F being an average over the matured positives.

    A positive in bucket b adds G(b), the sum of s over the cohorts that reach b, divided by the number of positives. So
    it is the variance of G among them by that number.
    """
    known = int(positives.sum())
    reached = np.cumsum(np.bincount(reach, score, len(positives))[::-1])[::-1]
    mean = float(positives @ reached) / known
    return max(float(positives @ reached**2) / known - mean**2, 0.0) / known
