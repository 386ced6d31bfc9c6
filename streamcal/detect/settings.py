"""How the scores of one model are watched, and the evidence that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streamcal.detect.evidence import log_threshold

__all__ = ["DAYS_PER_MONTH", "DetectorSettings"]

DAYS_PER_MONTH: Final = 30
"""A month of the false-alarm budget."""


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """How one model's scores are watched.

    Attributes
    ----------
    panes_per_day : int
    false_alarms_per_month : float
        Tolerated for the model in 30 days of event time, all its series together.
    share : int
        Series the tolerance is shared by, whether they exist yet or not.
    clear_after : int
        Calm panes in a row after which an alarm clears.
    tolerance : float
        Miscalibration in logits that is not worth an alarm.
    dispersion : float or None
        phi, at least 1; None: estimated.
    """

    panes_per_day: int
    false_alarms_per_month: float
    share: int
    clear_after: int
    tolerance: float = 0.1
    dispersion: float | None = None

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.panes_per_day < 1 or self.clear_after < 1:
            raise ValueError(f"below 1: {self.panes_per_day=}, {self.clear_after=}")
        if self.dispersion is not None and not self.dispersion >= 1:
            raise ValueError(f"a dispersion of {self.dispersion} would make more of the evidence than there is")

    @property
    def log_threshold(self) -> float:
        """Evidence at which an alarm is raised, in nats."""
        return log_threshold(self.panes_per_day * DAYS_PER_MONTH, self.false_alarms_per_month, self.share)
