"""How maps, times and what others wrote are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["corrections_text", "number", "parameters", "plain", "time_text"]


def parameters(family: str, values: Mapping[str, float | Sequence[float]]) -> str:
    """A family and its parameters, knots as their number.

    >>> parameters("platt", {"slope": 0.5, "intercept": -0.25})
    'platt(intercept -0.25, slope 0.5)'
    """
    return f"{family}({', '.join(f'{name} {number(value)}' for name, value in sorted(values.items()))})"


def corrections_text(found: Mapping[str, Any] | None) -> str:
    """What a map adds for single segments, as `streamcal.serve.corrections` and the daemon tell it.

    >>> corrections_text({"segments": 1, "slopes": 0, "offset_low": 0.25, "offset_high": 0.25,
    ...     "largest": [{"segment": "country=GB", "offset": 0.25}]})
    '1 segment, offset +0.25 (logits); largest: country=GB +0.25'
    """
    if found is None:
        return "none"
    low, high = (f"{found[name]:+.3g}" for name in ("offset_low", "offset_high"))
    count = found["segments"]
    far = f"offset {low}" if count == 1 else f"offsets {low} to {high}"
    slopes = f", {found['slopes']:,} with a slope of their own" if found["slopes"] else ""
    largest = ", ".join(
        f"{plain(one['segment'])} {one['offset']:+.3g}" + (f" slope {one['slope']:.3g}" if one.get("slope") else "")
        for one in found["largest"]
    )
    return f"{count:,} {'segment' if count == 1 else 'segments'}, {far} (logits){slopes}; largest: {largest}"


def number(value: float | Sequence[float]) -> str:
    """A parameter."""
    return f"{value:.6g}" if isinstance(value, int | float) else f"{len(value)} knots"


def plain(text: object) -> str:
    r"""Text of somebody else, without what would steer a terminal.

    >>> plain("drift\x1b[2J since Monday")
    'drift?[2J since Monday'
    """
    return "".join(character if character.isprintable() else "?" for character in str(text))


def time_text(at_ms: int) -> str:
    """An event time, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
