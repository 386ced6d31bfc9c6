"""The names under which figures and counters are exported, and what each one says.

Tables only. Dashboards and alerts depend on these names, so they are added to and never changed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["BIN_FIGURES", "CORE", "FIGURES", "MODEL_COUNTERS", "TOTAL_COUNTERS", "ExportSettings", "Named"]


class Named(NamedTuple):
    """A metric name (counters without their ``_total``) and its help text."""

    metric: str
    says: str


_SLOPE: Final = "p = sigmoid(slope * logit(score) + intercept)"

FIGURES: Final[dict[str, Named]] = {
    "n": Named("streamcal_labelled_predictions", "Labelled predictions in the window."),
    "positives": Named("streamcal_positive_outcomes", "Labelled predictions with a positive outcome."),
    "mean_score": Named("streamcal_mean_score", "Mean score of the labelled predictions."),
    "base_rate": Named("streamcal_base_rate", "Share of positive outcomes."),
    "ece": Named("streamcal_ece", "Expected calibration error; scheme and bins in streamcal_ece_info."),
    "ece_noise_floor": Named("streamcal_ece_noise_floor", "ECE expected of a calibrated score at this sample size."),
    "ece_z": Named("streamcal_ece_z", "Standard deviations of the ECE above its noise floor."),
    "ece_equal_mass": Named("streamcal_ece_equal_mass", "Expected calibration error over bins of equal mass."),
    "l2_debiased": Named("streamcal_l2_debiased", "L2 calibration error, debiased for the sample size."),
    "ecce": Named("streamcal_ecce", "Range of the cumulative difference between outcomes and scores."),
    "ecce_sigma": Named("streamcal_ecce_sigma", "ECCE over its standard deviation under calibration."),
    "mce": Named("streamcal_mce", "Largest calibration error of a bin."),
    "platt_slope": Named("streamcal_platt_slope", f"Calibration slope, {_SLOPE}; below 1 is over-confident."),
    "platt_slope_se": Named("streamcal_platt_slope_stderr", "Standard error of the calibration slope."),
    "platt_intercept": Named("streamcal_platt_intercept", f"Calibration intercept, {_SLOPE}."),
    "platt_intercept_se": Named("streamcal_platt_intercept_stderr", "Standard error of the calibration intercept."),
    "offset_intercept": Named("streamcal_offset_intercept", "Calibration intercept with the slope held at 1."),
    "ratio": Named("streamcal_predicted_to_observed_ratio", "Sum of scores over sum of labels."),
    "brier": Named("streamcal_brier", "Mean squared difference between score and label."),
    "log_loss": Named("streamcal_log_loss", "Mean log loss in nats."),
    "normalized_entropy": Named("streamcal_normalized_entropy", "Log loss over that of the base rate."),
    "spiegelhalter_z": Named("streamcal_spiegelhalter_z", "Spiegelhalter's z of the Brier score."),
    "effective_n": Named("streamcal_effective_n", "Kish's effective number of labelled predictions."),
    "phi": Named("streamcal_phi", "Over-dispersion of the outcomes; errors are scaled by its root."),
}
"""Report key to metric, in the order exported."""

CORE: Final = ("n", "positives", "ece", "ece_z", "platt_slope", "platt_slope_se", "ratio", "log_loss")
"""What an alert or a first dashboard needs: size, error, direction, and for both errors how sure they are.

1,000 segments in two windows and over everything read are up to 48,000 series of these, under the default
`max_series`; all figures would be three times as many.
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
