"""What one labelled prediction adds to its bin, in fixed point.

Every column is an int64 sum, so addition is exact and order-free: merge, eviction, replay and recount agree to
the bit, and an emptied window is exactly zero. Sums are centred on the bin's centre c, which keeps second
moments free of cancellation. Only IEEE basic operations are used, in the written order: no machine's `log`
decides a bit. Scales (`SCALE`) reach 1e-12 in the figures with room for 2e9 rows of weight 1 in a bin.

The columns are those of `docs/architecture.md`, "Counts, to the bit". The weighted second moments
(`W2DP`, `W2DP2`, `W2DX`, `W2DX2`) hold the excess over weight 1, that is w * w - 1 in place of w * w: rounding
sums is not the sum of roundings, so only columns that are zero at weight 1 can be promoted exactly.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StateLimitError
from streamcal.stats.layout import CENTRES, SCORE_CLIP, bin_index

__all__ = ["LIMIT", "PLAIN", "SCALE", "WEIGHTED", "Column", "check_range", "contributions", "promote"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Column(IntEnum):
    """Index of a column; the first nine exist always, the others in weighted streams only."""

    N = 0
    Y = 1
    DP = 2
    YDP = 3
    DP2 = 4
    DX = 5
    DX2 = 6
    YDX = 7
    LL = 8
    W = 9
    WY = 10
    WDP = 11
    WYDP = 12
    WDP2 = 13
    WDX = 14
    WDX2 = 15
    WYDX = 16
    WLL = 17
    W2 = 18
    W2DP = 19
    W2DP2 = 20
    W2DX = 21
    W2DX2 = 22


PLAIN: Final = 9
"""Columns of a stream in which every weight is 1."""

WEIGHTED: Final = 23
"""Columns of a weighted stream: the plain ones first."""

_BITS: Final = (0, 0, 38, 38, 44, 32, 31, 32, 36, 32, 32, 38, 38, 44, 32, 31, 32, 36, 24, 30, 36, 24, 24)

SCALE: Final[Floats] = np.ldexp(1.0, _BITS)
"""float64[23]: what one unit of the figure's sum is in each column; powers of two, so scaling is exact."""
SCALE.flags.writeable = False

LIMIT: Final = 2**62
"""Largest magnitude a sum may reach: two such sums still add without wrapping int64."""

_ATANH_TERMS: Final = (1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0)


def _atanh_series(z: Floats) -> Floats:
    """atanh(z) = z + z^3/3 + ... + z^15/15 in Horner order; |z| <= .09 here, so the cut is below 1e-18."""
    z2 = z * z
    total = z2 * (1 / 15)
    for term in _ATANH_TERMS:
        total += term
        total *= z2 if term != 1.0 else z
    return total


def _excesses(q: Floats, c: Floats, y: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Logit of q less logit of c, and log loss at q less log loss at c."""
    z = np.empty((2, len(q)))
    gap = q - c
    np.divide(gap, q + c - 2.0 * q * c, out=z[0])
    np.divide(np.where(y, gap, -gap), np.where(y, q + c, (1.0 - q) + (1.0 - c)), out=z[1])
    series = _atanh_series(z)
    series[0] *= 2.0
    series[1] *= -2.0
    return series[0], series[1]


def contributions(
    p: Floats, y: NDArray[np.integer | np.bool_], weight: Floats | None = None
) -> tuple[NDArray[np.intp], Ints, NDArray[np.bool_]]:
    """Bin and column values of each row.

    Parameters
    ----------
    p : float64[n]
        Scores in [0, 1], not NaN.
    y : integer or bool [n]
        Labels, 0 or 1.
    weight : float64[n], optional
        Weights, at least 0; None when the stream is unweighted so far.

    Returns
    -------
    bins : intp[n]
    values : int64[n, 9] or int64[n, 23]
        Add them to count the row, subtract them to take it back.
    extreme : bool[n]
        Rows whose score the clip moved for logit and log loss.

    Examples
    --------
    >>> bins, values, extreme = contributions(np.array([0.3]), np.array([1]))
    >>> values[0, :2].tolist(), bool(extreme[0])
    ([1, 1], False)
    """
    positive = np.asarray(y, dtype=np.bool_)
    bins = bin_index(p)
    c = CENTRES[bins]
    q = np.clip(p, SCORE_CLIP, 1.0 - SCORE_CLIP)
    dp = p - c
    dx, ll = _excesses(q, c, positive)
    moments = (dp, dp * dp, dx, dx * dx)

    values = np.empty((len(p), PLAIN if weight is None else WEIGHTED), dtype=np.int64)
    values[:, Column.N] = 1
    values[:, Column.Y] = positive
    _fill(values, Column.DP, positive, (*moments, ll))
    if weight is not None:
        _fill_weighted(values, weight, positive, moments, ll)
    return bins, values, q != p


def _fixed(value: Floats, column: int) -> Floats:
    """`value` in units of `column`, rounded half to even."""
    scaled: Floats = value * SCALE[column]
    return np.rint(scaled, out=scaled)


def _fill(
    values: Ints, first: int, positive: NDArray[np.bool_], terms: tuple[Floats, Floats, Floats, Floats, Floats]
) -> None:
    """The seven columns from `first` on: dp, ydp, dp2, dx, dx2, ydx, ll."""
    dp, dp2, dx, dx2, ll = terms
    for offset, term in ((0, dp), (2, dp2), (3, dx), (4, dx2), (6, ll)):
        values[:, first + offset] = _fixed(term, first + offset)
    np.multiply(values[:, first], positive, out=values[:, first + 1])
    np.multiply(values[:, first + 3], positive, out=values[:, first + 5])


def _fill_weighted(
    values: Ints,
    w: Floats,
    positive: NDArray[np.bool_],
    moments: tuple[Floats, Floats, Floats, Floats],
    ll: Floats,
) -> None:
    """The fourteen columns of weighted streams."""
    dp, dp2, dx, dx2 = moments
    values[:, Column.W] = _fixed(w, Column.W)
    np.multiply(values[:, Column.W], positive, out=values[:, Column.WY])
    _fill(values, Column.WDP, positive, (w * dp, w * dp2, w * dx, w * dx2, w * ll))
    square = w * w
    values[:, Column.W2] = _fixed(square, Column.W2)
    square -= 1.0
    for column, moment in zip(range(Column.W2DP, WEIGHTED), moments, strict=True):
        values[:, column] = _fixed(square * moment, column)


def promote(values: Ints) -> Ints:
    """Plain columns with the weighted ones beside them, as if every row had carried weight 1; exact.

    Parameters
    ----------
    values : int64[..., 9]
        Rows or sums of rows.

    Returns
    -------
    int64[..., 23]

    Examples
    --------
    >>> _, plain, _ = contributions(np.array([0.3]), np.array([1]))
    >>> _, weighted, _ = contributions(np.array([0.3]), np.array([1]), np.array([1.0]))
    >>> bool((promote(plain) == weighted).all())
    True
    """
    result = np.zeros((*values.shape[:-1], WEIGHTED), dtype=np.int64)
    result[..., :PLAIN] = values
    result[..., Column.W : Column.W2] = values
    for column, source in ((Column.W, Column.N), (Column.WY, Column.Y), (Column.W2, Column.N)):
        result[..., column] = values[..., source] << _BITS[column]
    return result


def check_range(values: Ints) -> None:
    """Refuse sums that have come too close to the end of int64.

    Parameters
    ----------
    values : int64[..., K]
        Sums after a fold; each addend must have been within `LIMIT` itself.

    Raises
    ------
    StateLimitError
        If a magnitude is above `LIMIT`.
    """
    if values.size == 0 or (int(values.max()) <= LIMIT and int(values.min()) >= -LIMIT):
        return
    place = np.argwhere((values > LIMIT) | (values < -LIMIT))[0]
    column = Column(int(place[-1])).name.lower()
    raise StateLimitError(
        f"the count `{column}` would reach {int(values[tuple(place)])}, beyond 2^62",
        hint="shorten windows.lengths or lower events.max_weight, then rebuild the state",
    )
