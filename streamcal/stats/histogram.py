"""Scores of one series as a histogram on the logit scale, for people to look at."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.counts import Column
from streamcal.stats.layout import EDGES

__all__ = ["score_histogram"]

_LOGITS: Final = np.arange(-16, 17) / 2.0
"""Steps of a half from -8 to 8: one in 3,000 to as near to 1; what lies beyond shares the outer bins."""
_EDGE: Final = np.searchsorted(EDGES, (1.0 / (1.0 + np.exp(-_LOGITS))).astype(np.float32) * np.float32(1 - 1e-6))
"""Layout edge at each logit; the margin absorbs the rounding of the edges, a thousandth of their distance."""
_BOUNDS: Final = [0.0, *EDGES[_EDGE].astype(float).tolist(), 1.0]
_STARTS: Final = np.concatenate(([0], _EDGE + 1))


def score_histogram(counts: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Rows by score, from the first bin that has any to the last.

    Parameters
    ----------
    counts : int64[284, K]

    Returns
    -------
    list of dict
        ``lo, hi, n`` of bins (lo, hi] whose bounds have the logits ..., -0.5, 0, 0.5, ...

    Examples
    --------
    >>> from streamcal.stats.layout import bin_index
    >>> counts = np.zeros((284, 9), dtype=np.int64)
    >>> counts[bin_index([0.4]), 0] = 4  # a logit of -0.4
    >>> [(round(row["lo"], 4), row["hi"], row["n"]) for row in score_histogram(counts)]
    [(0.3775, 0.5, 4)]
    """
    rows = np.add.reduceat(counts[:, Column.N], _STARTS).tolist()
    full = [i for i, n in enumerate(rows) if n]
    if not full:
        return []
    return [{"lo": _BOUNDS[i], "hi": _BOUNDS[i + 1], "n": rows[i]} for i in range(full[0], full[-1] + 1)]
