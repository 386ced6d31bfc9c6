"""Coordinates of the two diagrams of the report page; the template only writes them out as SVG.

A diagram is `WIDTH` by `HEIGHT` (or square) in its own units, origin at the top left, with a margin for labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["BinMark", "Chart", "Tick", "error_over_time", "moment", "reliability"]

SIDE: Final = 420
WIDTH: Final = 900
HEIGHT: Final = 260
LEFT: Final = 48
BOTTOM: Final = 34
TOP: Final = 12
RIGHT: Final = 12
_MOST_COLUMNS: Final = 2000  # twice the pixels of a wide screen; beyond that more points only make the file larger
_MANY_MONTHS_MS: Final = 62 * 86_400_000
_CEILINGS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line at `at` (x or y in diagram units) and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class BinMark:
    """One reliability bin: its point, radius by share of mass, interval (None where absent) and words."""

    x: float
    y: float
    radius: float
    low: float | None
    high: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time: SVG path data by score kind, and the grid."""

    lines: Mapping[str, str]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    window: str


def moment(time_ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    """`time_ms` as UTC text.

    >>> moment(1_361_000_000_123)
    '2013-02-16 07:33'
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)


def _across(share: float, size: float) -> float:
    return round(LEFT + share * (size - LEFT - RIGHT), 1)


def _up(share: float, size: float) -> float:
    return round(size - BOTTOM - share * (size - BOTTOM - TOP), 1)


def reliability(bins: Sequence[Mapping[str, Any]]) -> list[BinMark]:
    """Marks of the bins that hold anything: mean score across, observed rate up, both from 0 to 1."""
    full = [entry for entry in bins if "mean_score" in entry and "observed_rate" in entry]
    most = max((entry["n"] for entry in full), default=1)
    return [_mark(entry, most) for entry in full]


def _mark(entry: Mapping[str, Any], most: int) -> BinMark:
    low, high = entry.get("observed_low"), entry.get("observed_high")
    words = f"n {entry['n']:,}, mean score {entry['mean_score']:.4f}, observed {entry['observed_rate']:.4f}"
    if low is not None and high is not None:
        words += f" ({low:.4f} to {high:.4f})"
    return BinMark(
        x=_across(entry["mean_score"], SIDE),
        y=_up(entry["observed_rate"], SIDE),
        radius=round(2.5 + 4.5 * (entry["n"] / most) ** 0.5, 1),  # area by mass, yet never invisible
        low=None if low is None else _up(low, SIDE),
        high=None if high is None else _up(high, SIDE),
        words=words,
    )


def unit_ticks(up: bool) -> list[Tick]:
    """Grid of the reliability diagram from 0 to 1."""
    place = _up if up else _across
    return [Tick(place(tenth / 10, SIDE), f"{tenth / 10:.1f}") for tenth in range(0, 11, 2)]


def error_over_time(history: Sequence[Mapping[str, Any]]) -> Chart | None:
    """ECE of raw and served scores over event time; None with fewer than two moments.

    Only the window of the first entry is drawn. A moment without an ECE breaks the line.
    """
    window = history[0]["window"] if history else ""
    entries = [entry for entry in history if entry["window"] == window]
    if len(entries) < 2 or entries[0]["at_ms"] == entries[-1]["at_ms"]:
        return None
    start, end = entries[0]["at_ms"], entries[-1]["at_ms"]
    values = {kind: [entry[kind].get("ece") for entry in entries] for kind in ("raw", "served")}
    highest = max((value for line in values.values() for value in line if value is not None), default=0.0)
    ceiling = next((limit for limit in _CEILINGS if highest <= limit), 1.0)
    shares = [(entry["at_ms"] - start) / (end - start) for entry in entries]
    return Chart(
        lines={kind: _path(shares, line, ceiling) for kind, line in values.items()},
        x_ticks=[Tick(_across((at - start) / (end - start), WIDTH), label) for at, label in _dates(start, end)],
        y_ticks=[Tick(_up(part / 4, HEIGHT), f"{ceiling * part / 4:.4g}") for part in range(5)],
        window=window,
    )


def _path(shares: Sequence[float], values: Sequence[float | None], ceiling: float) -> str:
    """SVG path; of many moments in one column the highest value stays, so that no peak is hidden."""
    step = -(-len(values) // _MOST_COLUMNS)
    parts, pen_up = [], True
    for first in range(0, len(values), step):
        known = [value for value in values[first : first + step] if value is not None]
        if known:
            x, y = _across(shares[first], WIDTH), _up(max(known) / ceiling, HEIGHT)
            parts.append(f"{'M' if pen_up else 'L'}{x} {y}")
        pen_up = not known
    return "".join(parts)


def _dates(start: int, end: int) -> list[tuple[int, str]]:
    if end - start < _MANY_MONTHS_MS:
        return [(at, moment(at, "%m-%d %H:%M")) for at in range(start, end + 1, max(1, (end - start) // 6))]
    first = datetime.fromtimestamp(start / 1000, UTC)
    months = range(first.year * 12 + first.month, first.year * 12 + first.month + (end - start) // 86_400_000 // 28 + 1)
    starts = [datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in months]
    inside = [at for at in starts if at.timestamp() * 1000 <= end]
    return [(int(at.timestamp() * 1000), f"{at:%Y-%m}") for at in inside[:: -(-len(inside) // 12)]]
