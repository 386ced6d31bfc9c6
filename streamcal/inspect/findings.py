"""What an inspection found wrong, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "counted", "listed", "percent", "printable", "problem", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to mend.

    Attributes
    ----------
    level : {"problem", "warning"}
        With a problem figures would be missing or wrong; a warning is a risk.
    what : str
        What was seen, in numbers.
    change : str
        What to set, grant or do.
    """

    level: Literal["problem", "warning"]
    what: str
    change: str


def problem(what: str, change: str) -> Finding:
    """Figures would be missing or wrong."""
    return Finding("problem", what, change)


def warning(what: str, change: str) -> Finding:
    """A risk."""
    return Finding("warning", what, change)


def percent(part: float, whole: float) -> str:
    """A share for people; small ones keep a digit that counts.

    Examples
    --------
    >>> percent(1, 3), percent(1, 4000), percent(1999, 2000), percent(5, 0)
    ('33.3 %', '0.025 %', '99.95 %', 'none')
    """
    if not whole:
        return "none"
    share = 100 * part / whole
    if share in {0.0, 100.0}:
        return f"{share:.0f} %"
    return f"{share:.{3 if share < 0.1 else 2 if share < 1 or share > 99 else 1}f} %"


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "record"), counted(2000, "record")
    ('1 record', '2,000 records')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def listed(items: Sequence[object], most: int = 6) -> str:
    """Items by commas, with how many more there are."""
    shown = ", ".join(str(item) for item in items[:most])
    return shown + (f" and {len(items) - most} more" if len(items) > most else "")


def printable(text: str) -> str:
    r"""Text without characters that a terminal or a file acts on; values of a stream may hold anything.

    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
