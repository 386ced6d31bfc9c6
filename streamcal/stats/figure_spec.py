"""The description of one figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["NO_ROWS", "FigureSpec"]

NO_ROWS: Final = "without rows."


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpec:
    """What a reader of a dashboard asks about a figure; texts are sentences in Markdown.

    Attributes
    ----------
    key : str
        Name in the report.
    metric : str
        Name of the gauge.
    says : str
        Meaning in one sentence, in plain text: it is the gauge's help too.
    formula : str
    source : str
        Where the formula comes from.
    absent : str
        When the figure is left out.
    reading : str
        What to do with it in an alert.
    """

    key: str
    metric: str
    says: str
    formula: str
    source: str
    absent: str
    reading: str
