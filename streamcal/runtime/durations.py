"""Durations as an operator writes them: ``500ms``, ``90s``, ``15m``, ``24h``, ``14d``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DAY_MS", "Duration", "parse_duration"]

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DAY_MS: Final = _UNIT_MS["d"]

# 100 years: every time the product accepts lies within one century, so a longer span is a slip of the pen.
_LONGEST_MS: Final = 36_525 * DAY_MS

_WRITTEN: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time with the words it was written in.

    Attributes
    ----------
    text : str
        As in the configuration; a window is named by it (``24h`` stays ``24h``, never ``1d``).
    ms : int
        Milliseconds, >= 0.
    """

    text: str
    ms: int

    def __str__(self) -> str:
        return self.text


def parse_duration(text: str) -> Duration:
    """Read a whole number followed by one unit.

    Raises
    ------
    ValueError
        `text` is not of that form, or longer than 100 years.

    Examples
    --------
    >>> parse_duration("15m").ms
    900000
    >>> parse_duration("24h")
    Duration(text='24h', ms=86400000)
    """
    written = _WRITTEN.fullmatch(text.strip())
    if written is None:
        raise ValueError("must be a duration like 500ms, 90s, 15m, 24h or 14d")
    number, unit = written.groups()
    ms = int(number) * _UNIT_MS[unit]
    if ms > _LONGEST_MS:
        raise ValueError("is longer than 100 years")
    return Duration(written.group(), ms)
