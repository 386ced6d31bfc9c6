"""How maps, times and what others wrote are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

__all__ = ["number", "parameters", "plain", "time_text"]


def parameters(family: str, values: Mapping[str, float | Sequence[float]]) -> str:
    """A family and its parameters, knots as their number.

    >>> parameters("platt", {"slope": 0.5, "intercept": -0.25})
    'platt(intercept -0.25, slope 0.5)'
    """
    return f"{family}({', '.join(f'{name} {number(value)}' for name, value in sorted(values.items()))})"


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
