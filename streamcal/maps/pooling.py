"""Estimates that borrow strength: each is shrunk to its parent by as much as its noise deserves, level by level.

Segments form a chain of nested cuts, say all -> carrier -> carrier,origin: each row is in one segment of each. Only the
finest level is counted; what a coarser one knows is what its children say. With b the estimate of a segment and 1/I
its variance, a level is taken as drawn about its parents with variance tau^2, which the data tell (DerSimonian and
Laird 1986, within each parent: Q = sum I (b - mean)^2 less its expectation without differences)::

    upward      w = 1 / (tau^2 + 1/I),  b_parent = sum w b / sum w,  I_parent = sum w
    downward    offset = parent + (b - parent) * tau^2 / (tau^2 + 1/I)

which is the posterior mean of the normal hierarchy. A segment without rows is its parent; where segments differ by no
more than their noise, tau is 0 and so are their offsets. What b and I are made of: `streamcal.maps.segments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pooled", "level_sizes", "pool"]

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

TELLING: Final = 1.0
"""Information from which a segment counts towards tau^2. Below it one positive is worth as much as all others: with
.01 positives expected the chi-square of a segment has a variance of 102 in place of 2."""


class Pooled(NamedTuple):
    """What became of the estimates.

    Attributes
    ----------
    offsets : tuple of float64 arrays
        One per level, coarsest first: the root has one entry.
    tau : tuple of float
        Standard deviation of each level about its parents, coarsest first; the root has none.
    """

    offsets: tuple[Floats, ...]
    tau: tuple[float, ...]


def level_sizes(parents: Sequence[Indices]) -> list[int]:
    """Segments of each level, finest first, the root last."""
    return [*map(len, parents), 1]


def pool(estimate: Floats, information: Floats, parents: Sequence[Indices], *, root_variance: float = np.inf) -> Pooled:
    """Shrink estimates towards their parents.

    Parameters
    ----------
    estimate, information : float64[S]
        Of the finest level; where the information is 0 the estimate is not looked at.
    parents : sequence of intp arrays
        Finest level first: the index, in the next coarser level, of each segment's parent. The last one is all zeros,
        since there is one root.
    root_variance : float
        Prior variance of the root about 0. Infinite: the root is what the segments have in common; 0: it stays at 0.

    Returns
    -------
    Pooled

    Examples
    --------
    Two segments known to 1/4 each and 2 apart: tau^2 = (8 - 1) / 4, so 7/8 of each half of the gap stays.

    >>> pooled = pool(np.array([-1.0, 1.0]), np.array([4.0, 4.0]), [np.array([0, 0])])
    >>> pooled.offsets[1].tolist(), round(pooled.tau[0] ** 2, 12)
    ([-0.875, 0.875], 1.75)
    """
    known = information > 0
    level = np.where(known, estimate, 0.0), np.where(known, information, 0.0)
    levels, variances = [level], []
    for parent, size in zip(parents, level_sizes(parents)[1:], strict=True):
        variances.append(_variance_between(*level, parent, size))
        level = _of_parents(*level, parent, size, variances[-1])
        levels.append(level)
    root, weight = levels.pop()
    offsets = [root * _kept(root_variance, weight)]
    for (b, w), parent, variance in zip(reversed(levels), reversed(parents), reversed(variances), strict=True):
        above = offsets[-1][parent]
        offsets.append(above + (b - above) * _kept(variance, w))
    return Pooled(tuple(offsets), tuple(float(np.sqrt(v)) for v in reversed(variances)))


def _kept(variance: float, information: Floats) -> Floats:
    """Share of an estimate's gap to its parent that stays: variance / (variance + 1 / information)."""
    if np.isinf(variance):
        return np.where(information > 0, 1.0, 0.0)
    return np.asarray(variance * information / (variance * information + 1.0))


def _variance_between(b: Floats, w: Floats, parent: Indices, size: int) -> float:
    """DerSimonian and Laird's tau^2 within parents; 0 where none has two children that tell."""
    telling = w >= TELLING
    b, w, parent = b[telling], w[telling], parent[telling]
    total, squares = np.bincount(parent, w, size), np.bincount(parent, w * w, size)
    held = total > 0
    safe = np.where(held, total, 1.0)
    mean = np.bincount(parent, w * b, size) / safe
    spread = float((w * (b - mean[parent]) ** 2).sum())
    freedom = len(b) - int(held.sum())
    scale = float((total - squares / safe).sum())
    return max(spread - freedom, 0.0) / scale if freedom > 0 and scale > 0 else 0.0


def _of_parents(b: Floats, w: Floats, parent: Indices, size: int, variance: float) -> tuple[Floats, Floats]:
    """Estimate and information of the parents."""
    weight = w / (variance * w + 1.0)
    total: Floats = np.bincount(parent, weight, size).astype(np.float64)
    return np.bincount(parent, weight * b, size) / np.where(total > 0, total, 1.0), total
