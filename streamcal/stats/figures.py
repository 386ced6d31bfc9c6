"""Calibration figures of many series from their counts.

Each figure is one function over the sums of a block of series, entered in `FIGURES` under its report key; a new
figure is one more entry, and one in `streamcal.stats.catalogue`, which says what each means. NaN means absent: the
figure cannot be known from these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from streamcal.stats.block import Block, quotient, total
from streamcal.stats.grouping import equal_mass_gap
from streamcal.stats.layout import coarse_starts
from streamcal.stats.walk import range_p_value

__all__ = ["FIGURES", "SCALED_BY_PHI", "Block", "figures"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK: Final = 64
"""Series worked on at once: their arrays fit the cache; 4,000 series in one go take three times as long."""


def _mce(block: Block) -> Floats:
    """Largest |observed - mean score| of an equal-width bin that holds rows."""
    gap = np.max(np.nan_to_num(quotient(block.coarse_gaps, block.coarse(block.sums.weight)), nan=0.0), axis=1)
    return np.where(block.weight > 0, gap, np.nan)


def _equal_mass(block: Block) -> Floats:
    """ECE over as many bins of equal weight as there are of equal width."""
    return quotient(equal_mass_gap(block.sums.weight, block.sums.gap, len(block.starts)), block.weight)


def _normalized_entropy(block: Block) -> Floats:
    """Log loss by that of the base rate as the only score; one class has none."""
    return quotient(block.log_loss, np.nan_to_num(entr(block.rate) + entr(1.0 - block.rate)))


FIGURES: Final[Mapping[str, Callable[[Block], Floats]]] = {
    "n": lambda block: total(block.sums.rows),
    "positives": lambda block: total(block.sums.row_positives),
    "mean_score": lambda block: block.mean(block.sums.score),
    "base_rate": lambda block: block.rate,
    "ece": lambda block: block.ece,
    "ece_noise_floor": lambda block: block.noise_floor,
    "ece_z": lambda block: (block.ece - block.noise_floor) / block.noise_sd,
    "ece_equal_mass": _equal_mass,
    "l2_debiased": lambda block: np.sqrt(np.maximum(block.square_error, 0.0)),
    "l2_debiased_signed": lambda block: block.square_error,
    "ecce": lambda block: block.ecce,
    "ecce_sigma": lambda block: block.ecce_sigma,
    "ecce_p_value": lambda block: range_p_value(block.ecce_sigma),
    "mce": _mce,
    "platt_slope": lambda block: block.where_fitted(block.platt.slope),
    "platt_slope_se": lambda block: block.where_fitted(block.platt.slope_se),
    "platt_intercept": lambda block: block.where_fitted(block.platt.intercept),
    "platt_intercept_se": lambda block: block.where_fitted(block.platt.intercept_se),
    "offset_intercept": lambda block: block.where_fitted(block.offset.intercept),
    "offset_intercept_se": lambda block: block.where_fitted(block.offset.intercept_se),
    "ratio": lambda block: quotient(total(block.sums.score), total(block.sums.positive)),
    "brier": lambda block: block.brier,
    "brier_reliability": lambda block: block.reliability,
    "brier_resolution": lambda block: block.reliability + block.rate * (1.0 - block.rate) - block.brier,
    "brier_uncertainty": lambda block: block.rate * (1.0 - block.rate),
    "log_loss": lambda block: block.log_loss,
    "normalized_entropy": _normalized_entropy,
    "spiegelhalter_z": lambda block: block.spiegelhalter_z,
    "effective_n": lambda block: quotient(block.weight**2, total(block.sums.square_weight)),
}
"""Report key to figure, in the report's order; `phi` follows them where it is given."""

SCALED_BY_PHI: Final = ("platt_slope_se", "platt_intercept_se", "offset_intercept_se")
"""Standard errors: the over-dispersion of the outcomes multiplies their squares."""


def figures(counts: Ints, *, ece_bins: int = 10, min_count: int = 20, phi: Floats | None = None) -> dict[str, Floats]:
    """Compute every figure of every series.

    Parameters
    ----------
    counts : int64[S, 284, 9] or int64[S, 284, 23]
        With weights, point figures are those of rows repeated that many times, noise and errors rest on sum w^2;
        `n` and `positives` count rows.
    ece_bins : int
        Equal-width bins of `ece` and what belongs to it, and groups of `ece_equal_mass`.
    min_count : int
        Rows of either class without which slopes and intercepts are absent.
    phi : float64[S], optional
        Over-dispersion of the outcomes: standard errors are multiplied by its root. NaN is unknown and scales
        nothing.

    Returns
    -------
    dict of float64[S]
        NaN is absent. A series' figures do not depend on the series beside it. `phi` is among them if given.

    Raises
    ------
    ValueError
        If `ece_bins` does not fit the layout, `counts` or `phi` has another shape, or `phi` is not positive.
    """
    starts = coarse_starts(ece_bins)
    result = {name: np.empty(len(counts)) for name in FIGURES}
    for first in range(0, len(counts), BLOCK):
        rows = slice(first, first + BLOCK)
        block = Block(counts[rows], starts, min_count)
        for name, figure in FIGURES.items():
            result[name][rows] = figure(block)
    return result if phi is None else _dispersed(result, phi)


def _dispersed(result: dict[str, Floats], phi: Floats) -> dict[str, Floats]:
    """Standard errors for outcomes that vary `phi` times as much as independent ones."""
    if phi.shape != result["n"].shape or bool(np.any(phi <= 0)):
        raise ValueError(f"phi of shape {phi.shape} must hold one positive number per series, {len(result['n'])}")
    root = np.sqrt(np.where(np.isnan(phi), 1.0, phi))
    return result | {name: result[name] * root for name in SCALED_BY_PHI} | {"phi": phi.astype(np.float64)}
