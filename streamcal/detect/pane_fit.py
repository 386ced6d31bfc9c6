"""Intercept and slope of a series, fitted pane by pane: what of a pane later fits need, in five numbers.

A pane's logistic likelihood is replaced by its quadratic expansion about the fit to the pane and all before it (a
Laplace filter without forgetting): score U and information I there, kept as w = U + I d with d the fit less the
identity map (intercept 0, slope 1). Sums of w and I over panes give any later fit as d = (I + prior)^-1 w.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from streamcal.detect.bets import PaneCells

__all__ = ["fit_pane", "solve"]

Floats = NDArray[np.float64]

_PRIOR_A: Final = 1.0
_PRIOR_B: Final = 4.0
"""Precision of intercept and slope about the identity: worth a handful of positives, as in the maps."""

_SETTLED: Final = 0.1
"""A move of all logits by less leaves an expansion good to a tenth of a percent of the residual's variance."""

_MOST_STEPS: Final = 12
"""Steps of at most 1 logit each; scores wrong by more than 12 are beyond any refit."""


def solve(sums: Floats) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats, Floats]]:
    """Fit less the identity map, and its covariance.

    Parameters
    ----------
    sums : float64[S, 5]
        w of intercept and slope, information (aa, ab, bb).

    Returns
    -------
    (float64[S], float64[S])
        Intercept, and slope less 1.
    (float64[S], float64[S], float64[S])
        Inverse of the information with the prior's: (aa, ab, bb).
    """
    w_a, w_b, aa, ab, bb = sums.T
    aa, bb = aa + _PRIOR_A, bb + _PRIOR_B
    scale = 1.0 / (aa * bb - ab * ab)
    return ((bb * w_a - ab * w_b) * scale, (aa * w_b - ab * w_a) * scale), (bb * scale, -ab * scale, aa * scale)


def fit_pane(past: Floats, cells: PaneCells) -> Floats:
    """Expand a pane about the fit to it and its past.

    Parameters
    ----------
    past : float64[S, 5]
        Sum of the expansions of earlier panes.
    cells : PaneCells

    Returns
    -------
    float64[S, 5]
        The pane's expansion: w of intercept and slope, information (aa, ab, bb).
    """
    (d_a, d_b), _ = solve(past)
    lowest, highest = cells.x[cells.starts], cells.x[cells.starts + cells.sizes - 1]
    part = _expand(cells, d_a, d_b)
    for _ in range(_MOST_STEPS):
        (to_a, to_b), _ = solve(past + part)
        step_a, step_b = to_a - d_a, to_b - d_b
        move = np.maximum(np.abs(step_a + step_b * lowest), np.abs(step_a + step_b * highest))
        far = move > _SETTLED
        if not far.any():
            break
        share = 1.0 / np.maximum(move[far], 1.0)  # within 1 logit a Newton step ascends, see `streamcal.stats.platt`
        d_a[far] += share * step_a[far]
        d_b[far] += share * step_b[far]
        part[far] = _expand(cells.take(far), d_a[far], d_b[far])
    return part


def _expand(cells: PaneCells, d_a: Floats, d_b: Floats) -> Floats:
    """Expansion of each series' pane about intercept d_a and slope 1 + d_b."""
    x, n = cells.x, cells.n
    rate = expit(cells.spread(d_a) + cells.spread(1.0 + d_b) * x)
    terms = np.empty((5, len(n)))
    expected = n * rate
    np.subtract(cells.y, expected, out=terms[0])
    np.multiply(terms[0], x, out=terms[1])
    np.multiply(expected, 1.0 - rate, out=terms[2])
    np.multiply(terms[2], x, out=terms[3])
    np.multiply(terms[3], x, out=terms[4])
    part = cells.total(terms)
    _, _, aa, ab, bb = part
    part[0] += aa * d_a + ab * d_b
    part[1] += ab * d_a + bb * d_b
    return np.ascontiguousarray(part.T)
