"""Smooth ECE: the calibration error under a kernel instead of bins (Blasiok and Nakkiran, arXiv 2309.12236).

The gaps y - p are smoothed over the score by a Gaussian of width s, reflected at 0 and 1, and smECE(s) is the integral
of the absolute value of the result. The figure is the s at which smECE(s) = s, so no bin edge and no width is chosen.
Reflection makes the smoothed gap a cosine series: a Gaussian multiplies term k by exp(-(pi k s)^2 / 2), so one set of
coefficients serves every width. A bin enters as normal scores with its own mean and variance, over which its gap
changes linearly: both are known from its moments. With a gap g and a moment m of the gaps about the mean, its term is
exp(-(pi k)^2 variance / 2) (g cos(pi k mean) - pi k m sin(pi k mean)). Against the rows that errs by .05 to .3 % where
the error is real and by 1 to 4 % on calibrated streams, a third to a tenth of what bins at their mean alone do.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.fft import idct

from streamcal.stats.sums import ScoreSums, score_sums

__all__ = ["MIN_WIDTH", "smooth_ece"]

Floats = NDArray[np.float64]

MIN_WIDTH: Final = 0.001
"""Narrowest kernel, as in the authors' code. Below a base rate of about .001 it rules the result: read ECCE there."""

_TERMS: Final = 4096
"""At `MIN_WIDTH` the last term is down by exp(-83); the integral runs over as many points."""

_HALVINGS: Final = 14
"""Bisection steps: the width is found to 6e-5; the figure is the error there, which moves thirty times less."""


def smooth_ece(counts: NDArray[np.int64], *, width: float | None = None) -> float | None:
    """Smooth calibration error of one series.

    Parameters
    ----------
    counts : int64[284, 9] or int64[284, 23]
    width : float, optional
        Kernel width; by default the one equal to the error.

    Returns
    -------
    float or None
        None without rows.

    Raises
    ------
    ValueError
        If `counts` has another shape.

    Examples
    --------
    >>> from streamcal.stats.counts import contributions
    >>> bins, values, _ = contributions(np.full(10, 0.4), np.arange(10) < 6)
    >>> counts = np.zeros((284, 9), dtype=np.int64)
    >>> np.add.at(counts, bins, values)
    >>> round(smooth_ece(counts), 9)
    0.2

    All gaps have one sign, so no kernel cancels any.
    """
    series = _cosines(score_sums(counts[None]))
    if series is None:
        return None
    if width is not None:
        return _smoothed(series, width)
    low, high = MIN_WIDTH, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _smoothed(series, middle) > middle else (low, middle)
    return _smoothed(series, high)


def _cosines(sums: ScoreSums) -> Floats | None:
    """Cosine coefficients of the gaps; None without rows."""
    held = sums.weight[0] > 0
    if not held.any():
        return None
    weight, score, gap = sums.weight[0, held], sums.score[0, held], sums.gap[0, held]
    k = np.pi * np.arange(_TERMS)[:, None]
    angle = k * (score / weight)
    damping = np.exp(-0.5 * k * k * (sums.score_spread[0, held] / weight))
    waves = np.cos(angle) * damping @ gap - np.sin(angle) * damping * k @ sums.gap_moment[0, held]
    return np.asarray(waves / weight.sum())


def _smoothed(series: Floats, width: float) -> float:
    """Integral over [0, 1] of the absolute smoothed gap."""
    damped = series * np.exp(-0.5 * (np.pi * width * np.arange(_TERMS)) ** 2)
    # idct of type 2, unnormalised by its 1 / (2 n): a_0 + 2 sum a_k cos(pi k (j + 1/2) / n)
    return float(np.abs(idct(damped, type=2, norm="backward") * 2 * _TERMS).mean())
