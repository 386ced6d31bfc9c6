"""The bin layout: 284 intervals (lo, hi] over [0, 1], the same for every count that is ever merged.

The inner edges are the probabilities with logits -15.875, -15.75, ..., 15.875 and every k/20 and k/15, equal
ones once. Logit steps of 1/8 keep the slope of rare events exact to 1e-6; the fractions make the usual
equal-width groupings exact unions of bins. Scores are compared as float32 with float32 edges, so producers of
either width agree on the bin. Near 1 float32 is coarser than the logit grid: five edges coincide there and the
bins between them stay empty on purpose.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamcal.stats.layout_table import CENTRES_HEX, EDGES_HEX

__all__ = [
    "CENTRES",
    "COARSE_COUNTS",
    "EDGES",
    "LAYOUT_ID",
    "LOGIT_CENTRES",
    "N_BINS",
    "SCORE_CLIP",
    "bin_index",
    "coarse_starts",
]


EDGES: Final[NDArray[np.float32]] = np.frombuffer(bytes.fromhex(EDGES_HEX), dtype=">f4").astype(np.float32)
"""float32[283], ascending: EDGES[b] closes bin b on the right."""

CENTRES: Final[NDArray[np.float64]] = np.frombuffer(bytes.fromhex(CENTRES_HEX), dtype=">f8").astype(np.float64)
"""float64[284]: the points c that sums are centred on."""

N_BINS: Final = 284

LOGIT_CENTRES: Final[NDArray[np.float64]] = np.log(CENTRES) - np.log1p(-CENTRES)
"""float64[284]: logit of `CENTRES`. Only figures use it; no count depends on it."""

for _array in (EDGES, CENTRES, LOGIT_CENTRES):
    _array.flags.writeable = False

LAYOUT_ID: Final = sha256(EDGES.astype("<f4").tobytes() + CENTRES.astype("<f8").tobytes()).hexdigest()[:16]
"""First 16 hex digits of SHA-256 over the little-endian edges, then centres. Counts of two ids never merge."""

SCORE_CLIP: Final = 1e-7
"""Logits and log loss see a score no closer than this to 0 or 1; a 1e-6 clip would bend the slope at base rate 1e-5."""

COARSE_COUNTS: Final = (1, 2, 3, 4, 5, 10, 15, 20)
"""Numbers of equal-width bins that are unions of layout bins: the divisors of 20 and of 15."""


def bin_index(p: ArrayLike) -> NDArray[np.intp]:
    """Bin of each score.

    Parameters
    ----------
    p : float[n]
        Scores in [0, 1], not NaN. 0 lies in bin 0 and 1 in bin 283.

    Returns
    -------
    intp[n]

    Examples
    --------
    >>> bool(bin_index([0.3])[0] == bin_index(np.float32([0.3]))[0])
    True
    """
    return np.searchsorted(EDGES, np.asarray(p).astype(np.float32), side="left")


def coarse_starts(k: int) -> NDArray[np.intp]:
    """First layout bin of each of `k` equal-width bins, for ``np.add.reduceat``.

    Returns
    -------
    intp[k]

    Raises
    ------
    ValueError
        If the edges j/k are not all edges of the layout, that is, unless k divides 20 or 15.

    Examples
    --------
    >>> coarse_starts(2).tolist()
    [0, 142]
    """
    if k not in COARSE_COUNTS:
        allowed = ", ".join(map(str, COARSE_COUNTS))
        raise ValueError(f"{k} equal-width bins do not fit the layout; allowed: {allowed}")
    # An edge closes the bin before it, so the next coarse bin starts one further.
    inner = bin_index(np.arange(1, k) / k) + 1
    return np.concatenate([np.zeros(1, dtype=np.intp), inner])
