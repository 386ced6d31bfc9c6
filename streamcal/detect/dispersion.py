"""Over-dispersion phi: how much more the outcomes of one time vary together than independence allows.

Weather, a campaign, an outage move many outcomes at once; a detector that counts each as a witness of its own is
fooled. phi is the variance of summed residuals over its value under independence, and log e / phi the evidence
that is left. For phi >= 1 exp of that is an e-value whenever e is; that the right phi also restores the
false-alarm rate where outcomes do depend on each other is measured (`benchmarks/statistics/run.py`), not proven.

Theory of operation
-------------------
*Residuals.* A score that is off in level and slope is not over-dispersed, so residuals are taken about the intercept
and slope fitted to the past blocks themselves, never about the score. Each pane enters as the quadratic expansion
of its logistic likelihood, a score U and an information I, about the fit to it and the past (`fit_pane`). They are
kept as w = U + I d, d being that fit less the identity map. Sums of w and I are all a later fit needs, d' = I^-1 w,
and w - I d' is the residual of a pane or block about it.

*Blocks.* How long outcomes stay correlated is not known in advance, so blocks of several lengths are kept at once: 1,
2, 4, ... panes up to a day, each length dividing the next. Correlation shorter than a block shows in full. phi
is the largest value over the lengths that have 20 blocks (counted by information, so that a quiet night is not a
block), and grows as the stream shows longer correlation: nothing looks ahead. The largest, because the costs are
uneven: a phi too small by a fifth multiplies false alarms, one too large by a fifth delays alarms by a fifth
(independent outcomes: phi is 1.2 on average). What lasts longer than a day is not noise but a fault to be told.

*Value.* For one length: the squared residuals of its blocks, summed, over their variances under independence, less
what the fit took from them (the degrees of freedom). Once for the level and once for the slope about each block's
own pivot, since some bets gather residuals one way and some the other.

*Beginning.* With fewer than 20 blocks of any length phi is 1, which is not known but assumed. Until then the
threshold is raised by `caution`: what the blocks seen so far show, with four assumed ones of phi 6 that fade out
over the first ten. Without it shared shocks of a busy stream alarm in its first minutes (measured: 9 runs in 10); with
it a gross fault still alarms on its first pane. What correlation over many panes does before 20 blocks of its length
are known is not caught: a level that stays for 40 panes is a fault by all they show. Extrapolating the growth of phi
over block lengths, or counting lengths of fewer blocks, was tried: either halves those alarms at best, and delays
faults that come after a short calm by half as much again.

*Time.* Only closed blocks count, so a pane never weighs its own evidence. Sums fade by 1/e in 60 days of event time. A
new epoch (after an alarm, or a promoted map) starts a fresh fit; what earlier epochs showed about theirs stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamcal.detect.bets import PaneCells
from streamcal.detect.pane_fit import fit_pane, solve

__all__ = ["MEMORY_DAYS", "MIN_BLOCKS", "MOST_CAUTION", "Dispersion", "Phi", "block_lengths"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_BLOCKS: Final = 20.0
"""Below it phi is 1: with 20 blocks its standard error is still a third."""

MEMORY_DAYS: Final = 60.0
"""Long enough for 20 blocks of a day, short enough that the fit follows the seasons."""

_ASSUMED_BLOCKS: Final = 4.0
_UNTIL_BLOCKS: Final = 10.0
MOST_CAUTION: Final = 6.0
"""What is assumed beside the first blocks: as much as lets 20,000 rows of a score three times too high alarm in one
pane, whatever the chance (least evidence of 500 runs 112 nats, against 6 x 17.6). Shocks of sd .5 shared by panes of 50
expected positives alarm in 3 or 4 runs of 100 with it, in 5 or 6 with 4, in 90 without; a shift of .5 that 20 panes
show anyway is told no later."""

_BLOCK: Final = 5
"""Columns of a pane or block: w of intercept and slope, information (aa, ab, bb)."""

_SUMS: Final = 11
"""Columns of a length's sums over blocks. Level: w^2, aa w, ab w, aa^2, aa ab, ab^2, aa; slope, with its variance v
about the pivot: w^2, v w, v^2, v."""

_EARLIER: Final = 6
"""Columns of earlier epochs. Level: squared residuals, their variance less the fit's, aa, aa^2; slope: the first 2."""

_NO_BLOCK: Final = -1
"""A block number that no pane is in."""


def block_lengths(panes_per_day: int) -> tuple[int, ...]:
    """Block lengths in panes: from 1 to a day, each dividing the next, small prime factors first.

    Examples
    --------
    >>> block_lengths(96)
    (1, 2, 4, 8, 16, 32, 96)
    """
    lengths, rest, factor = [1], panes_per_day, 2
    while rest > 1:
        if factor * factor > rest:
            factor = rest  # a prime
        elif rest % factor:
            factor += 1
            continue
        rest //= factor
        lengths.append(lengths[-1] * factor)
    return tuple(lengths)


class Phi(NamedTuple):
    """Over-dispersion of some series.

    Attributes
    ----------
    phi : float64[S]
        At least 1.
    lengths : int64[S]
        Block lengths known, that is with 20 blocks; phi is 1 where there is none.
    caution : float64[S]
        Factor, at least 1, on the threshold; 1 once a length is known.
    """

    phi: Floats
    lengths: Ints
    caution: Floats


class Dispersion:
    """phi of every series, from its past blocks. State is one row per series, about 2 kB at panes of a minute.

    Guarantee: what `close` returns for a pane depends on earlier panes alone.

    Parameters
    ----------
    panes_per_day : int
        Decides the block lengths; L of them.

    Attributes
    ----------
    epoch : float64[S, 5]
        Sum of the epoch's panes.
    block : float64[S, L, 5]
        Open block of each length, without what shorter lengths still hold open.
    last : int64[S]
        Pane that was taken in last; the open blocks are those it lies in.
    sums : float64[S, L, 11]
        Over the epoch's closed blocks.
    earlier : float64[S, L, 6]
        Over earlier epochs.
    day : int64[S]
        Day up to which the sums have faded.
    """

    ROWS: Final = ("epoch", "block", "last", "sums", "earlier", "day")
    """Names of the state arrays."""

    def __init__(self, panes_per_day: int) -> None:
        self.lengths = block_lengths(panes_per_day)
        levels = len(self.lengths)
        self._length = np.array(self.lengths, dtype=np.int64)
        self.epoch: Floats = np.zeros((0, _BLOCK))
        self.block: Floats = np.zeros((0, levels, _BLOCK))
        self.last: Ints = np.zeros(0, dtype=np.int64)
        self.sums: Floats = np.zeros((0, levels, _SUMS))
        self.earlier: Floats = np.zeros((0, levels, _EARLIER))
        self.day: Ints = np.zeros(0, dtype=np.int64)

    def reserve(self, size: int) -> None:
        """Make room for series below `size`; new ones are empty."""
        more = size - len(self.day)
        for name in self.ROWS:
            held = getattr(self, name)
            setattr(self, name, np.concatenate([held, np.zeros((more, *held.shape[1:]), dtype=held.dtype)]))

    def forget(self, series: Ints) -> None:
        """Empty some series."""
        for name in self.ROWS:
            getattr(self, name)[series] = 0

    def close(self, pane: int, series: Ints) -> Phi:
        """Close the blocks that end before `pane`; returns how `series` stand then."""
        self._fade(pane // self.lengths[-1], series)
        self._close_blocks(series, pane // self._length)
        return self.phi(series)

    def add(self, pane: int, series: Ints, cells: PaneCells) -> None:
        """Take in `pane`, whose earlier blocks are closed; `cells` are those of `series`, in order."""
        part = fit_pane(self.epoch[series], cells)
        self.epoch[series] += part
        self.block[series, 0] += part
        self.last[series] = pane

    def new_epoch(self, series: Ints) -> None:
        """Start a fresh fit of some series."""
        self._close_blocks(series, np.full(len(self.lengths), _NO_BLOCK))
        sums = self.sums[series]
        level, slope = _residuals(self.epoch[series], sums)
        gone = np.array([*level, sums[..., 6].T, sums[..., 3].T, *slope])
        self.earlier[series] += gone.T
        self.sums[series] = 0.0
        self.epoch[series] = 0.0

    def phi(self, series: Ints) -> Phi:
        """Over-dispersion by the blocks closed so far."""
        sums, earlier = self.sums[series], self.earlier[series].T
        level, slope = _residuals(self.epoch[series], sums)
        level = level[0] + earlier[0], level[1] + earlier[1]
        slope = slope[0] + earlier[4], slope[1] + earlier[5]
        total, total_square = sums[..., 6].T + earlier[2], sums[..., 3].T + earlier[3]
        # Blocks of equal information count one each.
        blocks = np.divide(total * total, total_square, out=np.zeros_like(total), where=total_square > 0)
        known = (blocks >= MIN_BLOCKS - 1e-6) & (level[1] > 0) & (slope[1] > 0)
        most = np.ones(len(series))
        for squares, variances in (level, slope):
            ratio = np.divide(squares, variances, out=np.ones_like(squares), where=known)
            most = np.maximum(most, ratio.max(axis=0))
        lengths, caution = known.sum(axis=0), np.ones(len(series))
        if (unknown := lengths == 0).any():
            shortest = level[0][0], level[1][0], total[0], blocks[0]
            caution[unknown] = _caution(*(column[unknown] for column in shortest))
        return Phi(most, lengths, caution)

    def _fade(self, day: int, series: Ints) -> None:
        past = day - self.day[series]
        if past.any():
            factor = np.exp(-past / MEMORY_DAYS)
            self.epoch[series] *= factor[:, None]
            self.sums[series] *= factor[:, None, None]
            self.earlier[series] *= factor[:, None, None]
            self.day[series] = day

    def _close_blocks(self, series: Ints, current: Ints) -> None:
        """Close, of each length, the open block that is not the `current` one (int64[L]), into the next length's."""
        over = self.last[series, None] // self._length != current
        ending = over.sum(axis=1)  # how many lengths: a longer block ends only where a shorter one does
        most = int(ending.max(initial=0))
        if not most:
            return
        whole = self.block[series, :most].cumsum(axis=1)
        at, level = np.nonzero(over[:, :most] & (whole[..., 2] > 0))
        self.sums[series[at], level] += _block_sums(whole[at, level])
        self.block[series[at], level] = 0.0
        into = np.flatnonzero((ending > 0) & (ending < len(self.lengths)))
        self.block[series[into], ending[into]] += whole[into, ending[into] - 1]


def _block_sums(block: Floats) -> Floats:
    """What blocks add to the sums: float64[n, 5] to float64[n, 11]."""
    w_a, w_b, aa, ab, bb = block.T
    pivot = ab / aa
    w, v = w_b - pivot * w_a, np.maximum(bb - pivot * ab, 0.0)
    sums = np.empty((len(block), _SUMS))
    # Level: w, aa, ab each times w; products of the information; aa. Slope: as `_SUMS` says.
    np.multiply(block[:, [0, 2, 3]], w_a[:, None], out=sums[:, :3])
    np.multiply(block[:, [2, 3]], aa[:, None], out=sums[:, 3:5])
    sums[:, 5], sums[:, 6] = ab * ab, aa
    sums[:, 7], sums[:, 8], sums[:, 9], sums[:, 10] = w * w, v * w, v * v, v
    return sums


def _caution(squares: Floats, variances: Floats, total: Floats, blocks: Floats) -> Floats:
    """What the shortest blocks show, with the assumed ones, of phi `MOST_CAUTION` and the others' mean information."""
    assumed = _ASSUMED_BLOCKS * np.maximum(1.0 - blocks / _UNTIL_BLOCKS, 0.0)
    size = assumed * np.divide(total, blocks, out=np.ones_like(total), where=blocks > 0)
    variances = np.maximum(variances, 0.0) + size
    shown = np.divide(squares + size * MOST_CAUTION, variances, out=np.ones_like(total), where=variances > 0)
    return np.asarray(np.maximum(shown, 1.0))


def _residuals(epoch: Floats, sums: Floats) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Squared residuals about the epoch's fit, and their variance under independence less the fit's share.

    Parameters
    ----------
    epoch : float64[S, 5]
    sums : float64[S, L, 11]

    Returns
    -------
    (float64[L, S], float64[L, S]) twice
        Squares and variance of the level, then of the slope.
    """
    (d_a, d_b), (c_aa, c_ab, c_bb) = solve(epoch)
    w2, aw, bw, a2, ab, b2, variance, s2, vs, v2, v = sums.T
    level = w2 - 2.0 * (d_a * aw + d_b * bw) + d_a * d_a * a2 + 2.0 * d_a * d_b * ab + d_b * d_b * b2
    slope = s2 - 2.0 * d_b * vs + d_b * d_b * v2
    taken = a2 * c_aa + 2.0 * ab * c_ab + b2 * c_bb
    return (np.maximum(level, 0.0), variance - taken), (np.maximum(slope, 0.0), v - v2 * c_bb)
