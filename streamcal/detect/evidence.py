"""The mixture Shiryaev-Roberts recursion: evidence that a fault began at some pane, whichever fault, whichever pane.

For each bet, M_t = e_t (M_(t-1) + 1): the sum over all possible onsets of the payoff since then. While scores are
calibrated E[e_t | past] <= 1, so M_t - t never rises on average, and neither does the mean of M_t - t over the bets.
Stopping when the mean first reaches A therefore takes at least A panes on average, and comes within n panes with
probability at most n / A (Doob), however often one looks. Shin, Ramdas and Rinaldo, "E-detectors" (2023).

Everything is kept as logarithms; minus infinity is no evidence yet.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["advance", "log_evidence", "log_threshold"]

Floats = NDArray[np.float64]


def advance(log_m: Floats, log_e: Floats) -> Floats:
    """Logarithm of e (M + 1).

    Parameters
    ----------
    log_m : float64[...]
        log M before the pane; minus infinity at the start.
    log_e : float64[...]
        log e of the pane.

    Examples
    --------
    >>> advance(np.array([-np.inf, 0.0]), np.array([0.5, 0.0])).round(4).tolist()
    [0.5, 0.6931]
    """
    return np.asarray(log_e + np.logaddexp(log_m, 0.0))


def log_evidence(log_m: Floats) -> Floats:
    """Logarithm of the mean of M over the bets (first axis), float64[...]; minus infinity before any pane.

    Examples
    --------
    >>> log_evidence(np.log([[1.0], [3.0]])).round(4).tolist()
    [0.6931]
    """
    return np.asarray(np.logaddexp.reduce(log_m, axis=0) - log(len(log_m)))


def log_threshold(panes_per_month: float, false_alarms_per_month: float, share: int) -> float:
    """Logarithm of A, the panes one series takes on average to a false alarm, at least.

    Parameters
    ----------
    panes_per_month : float
        Panes in 30 days of event time.
    false_alarms_per_month : float
        Tolerated for one model, all its series together.
    share : int
        Series the tolerance is shared by: each of them may alarm once in `share` times as many panes.

    Raises
    ------
    ValueError
        If an argument is not above 0.

    Examples
    --------
    One pane of 5 s after another, one false alarm in 30 days:

    >>> round(log_threshold(518_400, 1.0, 1), 2)
    13.16
    """
    if not (panes_per_month > 0 and false_alarms_per_month > 0 and share > 0):
        raise ValueError(f"not all above 0: {panes_per_month=}, {false_alarms_per_month=}, {share=}")
    return max(0.0, log(panes_per_month * share / false_alarms_per_month))
