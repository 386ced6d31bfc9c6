"""Tables and text of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["escaped", "joined", "table"]


def escaped(text: str) -> str:
    """Text for a table's cell: bars and angle brackets outside of code are no markup."""
    parts = re.split(r"(`[^`]*`)", text)
    plain = [part if part.startswith("`") else part.replace("<", "&lt;") for part in parts]
    return "".join(plain).replace("|", "\\|")


def joined(text: str) -> str:
    """Lines of a paragraph as one."""
    return " ".join(text.split())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
