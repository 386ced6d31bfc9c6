"""The reliability table of one series: what was predicted and what happened, per equal-width bin."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.layout import coarse_starts
from streamcal.stats.sums import score_sums

__all__ = ["reliability"]

_Z: Final = 1.959963984540054
"""Normal quantile of a two-sided 95 % interval."""


def reliability(counts: NDArray[np.int64], *, ece_bins: int = 10, phi: float = 1.0) -> list[dict[str, Any]]:
    """Tabulate mean score and observed rate of each bin (lo, hi].

    Parameters
    ----------
    counts : int64[284, 9] or int64[284, 23]
    ece_bins : int
        Number of equal-width bins.
    phi : float
        Over-dispersion of the outcomes; an interval widens as if the bin held n / phi rows.

    Returns
    -------
    list of dict
        `lo, hi, n, positives`, and in a bin that holds weight `mean_score, observed_rate, observed_low,
        observed_high`: Wilson's 95 % interval (Wilson 1927), which unlike the textbook one stays within [0, 1]
        and is honest for few rows. `n` and `positives` count rows; rates are weighted, and the interval of a
        weighted bin rests on its effective n, (sum w)^2 / sum w^2.

    Raises
    ------
    ValueError
        If `ece_bins` does not fit the layout, `counts` has another shape, or `phi` is not positive.

    Examples
    --------
    >>> from streamcal.stats.counts import contributions
    >>> bins, values, _ = contributions(np.full(4, 0.3), np.array([1, 0, 0, 0]))
    >>> counts = np.zeros((284, 9), dtype=np.int64)
    >>> np.add.at(counts, bins, values)
    >>> row = reliability(counts, ece_bins=2)[0]
    >>> row["n"], row["positives"], round(row["mean_score"], 9), row["observed_rate"]
    (4, 1, 0.3, 0.25)
    """
    if not phi > 0:
        raise ValueError(f"phi is {phi}, must be positive")
    starts = coarse_starts(ece_bins)
    sums = score_sums(counts[None])
    columns = (sums.rows, sums.row_positives, sums.weight, sums.positive, sums.score, sums.square_weight)
    grouped = zip(*(np.add.reduceat(column[0], starts).tolist() for column in columns), strict=True)
    return [
        {"lo": j / ece_bins, "hi": (j + 1) / ece_bins, "n": int(rows), "positives": int(positives)}
        | _rates(phi, rows, *rest)
        for j, (rows, positives, *rest) in enumerate(grouped)
    ]


def _rates(phi: float, rows: float, weight: float, positive: float, score: float, square: float) -> dict[str, float]:
    """Mean score, observed rate and its interval; nothing without weight."""
    if not weight > 0:
        return {}
    rate = positive / weight
    # The squares of tiny weights can round to nothing; they are then worth no more than their rows.
    effective = weight * weight / square if square > 0 else rows
    low, high = _wilson(rate, effective / phi)
    return {"mean_score": score / weight, "observed_rate": rate, "observed_low": low, "observed_high": high}


def _wilson(rate: float, n: float) -> tuple[float, float]:
    """Wilson's score interval for a rate observed on `n` rows."""
    z2 = _Z * _Z / n
    middle = (rate + z2 / 2.0) / (1.0 + z2)
    half = _Z / (1.0 + z2) * ((rate * (1.0 - rate) / n + z2 / (4.0 * n)) ** 0.5)
    return max(middle - half, 0.0), min(middle + half, 1.0)
