"""The counts of an independent recount: layout from its definition, one row at a time, in plain Python.

Nothing of the product is imported. Edges and centres come out of 60-digit decimal arithmetic, so they are the
correctly rounded values of what `docs/architecture.md` defines; the columns of a row are its formulas, in its order
of operations.
"""

from __future__ import annotations

import struct
import unicodedata
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

CLIP = 1e-7
PLAIN_COLUMNS = ("n", "y", "dp", "ydp", "dp2", "dx", "dx2", "ydx", "ll")
WEIGHTED_COLUMNS = (
    *("w", "wy", "wdp", "wydp", "wdp2", "wdx", "wdx2", "wydx", "wll"),
    *("w2", "w2dp", "w2dp2", "w2dx", "w2dx2"),
)


def to_float32(value: float) -> float:
    """The nearest float32 (ties to even), as a Python float."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def exact_to_float32(value: Fraction) -> float:
    """The float32 nearest to an exact number in (0, 1), ties to even, in one rounding."""
    exponent = 0
    while value < Fraction(1, 2 ** (exponent + 1)):
        exponent += 1
    step = Fraction(1, 2 ** (exponent + 24))  # 24 significant bits; every edge here is a normal number
    return float(round(value / step) * step)


def sigmoid(logit: Decimal) -> Decimal:
    return 1 / (1 + (-logit).exp())


def exact_logit(p: Fraction) -> Decimal:
    odds = p / (1 - p)
    return Decimal(odds.numerator).ln() - Decimal(odds.denominator).ln()


def layout() -> tuple[list[float], list[float]]:
    """The 283 inner edges (float32 values) and the 284 bin centres (float64)."""
    with localcontext(Context(prec=60)):
        probabilities = {Fraction(k, 20) for k in range(1, 20)} | {Fraction(k, 15) for k in range(1, 15)}
        by_logit: dict[Decimal, Fraction] = {}
        for k in range(-127, 128):
            logit = Decimal(k) / 8
            by_logit[logit] = Fraction(sigmoid(logit))
        for p in probabilities - {Fraction(1, 2)}:  # one half is the logit 0, there already
            by_logit[exact_logit(p)] = p
        logits = sorted(by_logit)
        edges = [exact_to_float32(by_logit[logit]) for logit in logits]
        shipped = [Fraction(edge) for edge in edges]  # a bin's edges are the float32 numbers, not what they round
        ends = [Decimal(-16), *(exact_logit(edge) for edge in shipped), Decimal(16)]
        centres = [float(sigmoid((low + high) / 2)) for low, high in pairwise(ends)]
    return edges, centres


EDGES, CENTRES = layout()


def bin_of(score: float) -> int:
    """Intervals are (lo, hi]: the first edge that is not below the score."""
    return bisect_left(EDGES, to_float32(score))


def atanh_series(z: float) -> float:
    z2 = z * z
    # fmt: off
    return z * (1 + z2 * (1/3 + z2 * (1/5 + z2 * (1/7 + z2 * (1/9 + z2 * (1/11 + z2 * (1/13 + z2 * (1/15))))))))
    # fmt: on


def clipped(score: float) -> float:
    return min(max(score, CLIP), 1 - CLIP)


def is_extreme(score: float) -> bool:
    return clipped(score) != score


def excess_logit(q: float, c: float) -> float:
    return 2 * atanh_series((q - c) / (q + c - 2 * q * c))


def excess_loss(q: float, c: float, y: int) -> float:
    if y == 1:
        return -2 * atanh_series((q - c) / (q + c))
    return -2 * atanh_series((c - q) / ((1 - q) + (1 - c)))


def plain_columns(p: float, y: int) -> list[int]:
    """The nine columns of one row."""
    c = CENTRES[bin_of(p)]
    q = clipped(p)
    h = excess_logit(q, c)
    dp = round((p - c) * 2.0**38)
    dx = round(h * 2.0**32)
    return [
        1,
        y,
        dp,
        y * dp,
        round((p - c) * (p - c) * 2.0**44),
        dx,
        round(h * h * 2.0**31),
        y * dx,
        round(excess_loss(q, c, y) * 2.0**36),
    ]


def weighted_columns(p: float, y: int, w: float) -> list[int]:
    """The fourteen further columns of one row of a weighted stream.

    The last four hold the excess of w * w over 1: what a weight of 1 adds to a weighted stream must follow from the
    plain columns alone, or counts would depend on when the first other weight came.
    """
    c = CENTRES[bin_of(p)]
    q = clipped(p)
    h = excess_logit(q, c)
    e = excess_loss(q, c, y)
    w_int = round(w * 2.0**32)
    wdp = round(w * (p - c) * 2.0**38)
    wdx = round(w * h * 2.0**32)
    return [
        w_int,
        y * w_int,
        wdp,
        y * wdp,
        round(w * ((p - c) * (p - c)) * 2.0**44),
        wdx,
        round(w * (h * h) * 2.0**31),
        y * wdx,
        round(w * e * 2.0**36),
        round(w * w * 2.0**24),
        round((w * w - 1) * (p - c) * 2.0**30),
        round((w * w - 1) * ((p - c) * (p - c)) * 2.0**36),
        round((w * w - 1) * h * 2.0**24),
        round((w * w - 1) * (h * h) * 2.0**24),
    ]


def row_columns(p: float, y: int, w: float, *, weighted: bool) -> list[int]:
    return plain_columns(p, y) + (weighted_columns(p, y, w) if weighted else [])


def add_into(bins: dict[int, list[int]], index: int, columns: Sequence[int]) -> None:
    total = bins.setdefault(index, [0] * len(columns))
    for i, value in enumerate(columns):
        total[i] += value


def all_cuts(cuts: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [(), *(cut for cut in cuts if cut)]


def cut_label(cut: tuple[str, ...]) -> str:
    return ",".join(escaped(name) for name in cut) or "all"


def segment_key(cut: tuple[str, ...], segments: Mapping[str, Any]) -> str:
    return ",".join(f"{escaped(name)}={escaped(segment_value(segments.get(name)))}" for name in cut) or "all"


def segment_value(value: Any) -> str:
    text = "" if value is None else unicodedata.normalize("NFC", str(value)).strip()[:64].rstrip()
    return text or "__missing__"


def escaped(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")
