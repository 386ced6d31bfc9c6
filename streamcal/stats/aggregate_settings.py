"""What is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcal.stats.periods import Period

__all__ = ["AggregateSettings", "WindowSpec"]


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window: its name as configured and its length in panes."""

    name: str
    panes: int


@dataclass(frozen=True, slots=True)
class AggregateSettings:
    """What is counted.

    Attributes
    ----------
    by_outcome_time : bool
        Whether window panes go by outcome time (else by prediction time).
    keep_everything : bool
        Keep the window of everything for each segment (bounded input) or for the whole model only.
    period : {"day", "month"} or None
        Also total by UTC calendar period of the prediction's time (bounded input).
    """

    pane_ms: int
    windows: Sequence[WindowSpec]
    by_outcome_time: bool
    keep_everything: bool = False
    period: Period | None = None

    @property
    def bounded(self) -> bool:
        """Whether the input ends, so that what left the windows may still be told apart by segment."""
        return self.keep_everything or self.period is not None

    @property
    def longest(self) -> WindowSpec:
        """The window with most panes."""
        return max(self.windows, key=lambda spec: spec.panes)
