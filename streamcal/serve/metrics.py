"""The names under which figures and counters are exported, and what each one says.

Tables only. Dashboards and alerts depend on these names, so they are added to and never changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamcal.stats.catalogue import CATALOGUE

__all__ = ["BIN_FIGURES", "CORE", "FIGURES", "MODEL_COUNTERS", "TOTAL_COUNTERS", "ExportSettings", "Named"]


class Named(NamedTuple):
    """A metric name (counters without their ``_total``) and its help text."""

    metric: str
    says: str


FIGURES: Final[dict[str, Named]] = {key: Named(spec.metric, spec.says) for key, spec in CATALOGUE.items()}
"""Report key to metric, in the order exported."""

CORE: Final = ("n", "positives", "ece", "ece_z", "platt_slope", "platt_slope_se", "ratio", "log_loss")
"""What an alert or a first dashboard needs: size, error, direction, and for both errors how sure they are.

1,000 segments in two windows and over everything read are up to 48,000 series of these, under the default
`max_series`; all figures would be four times as many.
"""

BIN_FIGURES: Final[dict[str, Named]] = {
    "n": Named("streamcal_bin_labelled_predictions", "Labelled predictions of the bin."),
    "positives": Named("streamcal_bin_positive_outcomes", "Positive outcomes of the bin."),
    "mean_score": Named("streamcal_bin_mean_score", "Mean score of the bin."),
    "observed_rate": Named("streamcal_bin_observed_rate", "Share of positive outcomes of the bin."),
    "observed_low": Named("streamcal_bin_observed_low", "Lower end of the interval of the observed rate."),
    "observed_high": Named("streamcal_bin_observed_high", "Upper end of the interval of the observed rate."),
}
"""Field of a reliability bin to metric; exported for the series ``all`` only."""

MODEL_COUNTERS: Final[dict[str, Named]] = {
    "accepted_prediction": Named("streamcal_predictions_accepted", "Predictions taken into the join."),
    "matched": Named("streamcal_predictions_matched", "Predictions released with a label."),
    "expired": Named("streamcal_predictions_expired", "Predictions released without a label, uncounted."),
    "negative_at_maturity": Named(
        "streamcal_predictions_negative_at_maturity", "Predictions counted as negative when their horizon had passed."
    ),
    "duplicate_prediction": Named("streamcal_predictions_duplicate", "Predictions of an id already accepted."),
    "late_prediction": Named("streamcal_predictions_late", "Predictions behind their watermark."),
    "without_raw": Named("streamcal_predictions_without_raw", "Predictions that carry a served score only."),
    "extreme": Named("streamcal_scores_extreme", "Scores so near 0 or 1 that logits and log loss clip them."),
}
"""Counters kept per model."""

TOTAL_COUNTERS: Final[dict[str, Named]] = {
    "accepted_outcome": Named("streamcal_outcomes_accepted", "Outcomes taken into the join."),
    "duplicate_outcome": Named("streamcal_outcomes_duplicate", "Outcomes that changed no label."),
    "revised_outcome": Named("streamcal_outcomes_revised", "Outcomes that replaced another label."),
    "late_outcome": Named("streamcal_outcomes_late", "Outcomes that came after the horizon of their prediction."),
    "orphan_outcome": Named("streamcal_outcomes_orphan", "Outcomes that belong to no prediction."),
    "ignored": Named("streamcal_events_ignored", "Tombstones and events the filter leaves out."),
    "clipped": Named("streamcal_scores_clipped", "Scores a rounding error outside [0, 1], moved to the border."),
}
"""Counters over all models."""


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What `/metrics` contains.

    Attributes
    ----------
    export : str or collection of str
        ``core``, ``full``, or report keys of figures (``bins`` is the reliability table); a collection may mix them.
    max_series : int
        Cap on the series of figures; what exceeds it is dropped by segment, smallest first.
    ece_bins : int
    ece_scheme : str

    Raises
    ------
    ValueError
        `export` names a figure that does not exist, or `max_series` is below 1.
    """

    export: str | Collection[str] = "core"
    max_series: int = 50_000
    ece_bins: int = 10
    ece_scheme: str = "equal_width"

    def __post_init__(self) -> None:
        unknown = sorted(self._wanted - {"core", "full", "bins", *FIGURES})
        if unknown:
            raise ValueError(f"no figure is called {', '.join(unknown)}; known: core, full, bins, {', '.join(FIGURES)}")
        if self.max_series < 1:
            raise ValueError(f"max_series is {self.max_series}, must be at least 1")

    @property
    def _wanted(self) -> set[str]:
        return {self.export} if isinstance(self.export, str) else set(self.export)

    @property
    def figures(self) -> tuple[str, ...]:
        """Report keys of the figures exported, in the order of `FIGURES`.

        >>> ExportSettings(export=["ece", "n"]).figures
        ('n', 'ece')
        """
        wanted = self._wanted
        if "full" in wanted:
            return tuple(FIGURES)
        if "core" in wanted:
            wanted |= set(CORE)
        return tuple(name for name in FIGURES if name in wanted)

    @property
    def bins(self) -> bool:
        """Whether the reliability table is exported."""
        return not self._wanted.isdisjoint({"full", "bins"})
