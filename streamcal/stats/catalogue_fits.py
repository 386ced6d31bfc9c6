"""Descriptions of the figures that say in which direction scores are off."""

from __future__ import annotations

from typing import Final

from streamcal.stats.figure_spec import FigureSpec

__all__ = ["FITS"]

_MODEL: Final = "p = sigmoid(slope * logit(score) + intercept)"
_COX: Final = "Cox, Biometrika 45, 1958; Platt 1999. Bins expanded to second order about their mean logit."
_NO_SLOPE: Final = (
    "below `min_count` rows of either class, where the classes do not overlap in score, and where all "
    "scores are one value."
)
_ERROR: Final = (
    "root of the diagonal of the inverse information, with weights of the sandwich with `sum w^2`; times "
    "`sqrt(phi)` where phi is known."
)
_LIKELIHOOD: Final = "inverse Fisher information at the maximum of the likelihood."

FITS: Final = (
    FigureSpec(
        key="platt_slope",
        metric="streamcal_platt_slope",
        says=f"Calibration slope, {_MODEL}; below 1 is over-confident.",
        formula="maximum likelihood of `logit P(y=1) = slope * logit(p) + intercept`, scores clipped to [1e-7, 1 - "
        "1e-7].",
        source=_COX,
        absent=_NO_SLOPE,
        reading="with its error: `|slope - 1| / stderr`. It is the figure that still sees over-confidence at 1e-5 "
        "base rates.",
    ),
    FigureSpec(
        key="platt_slope_se",
        metric="streamcal_platt_slope_stderr",
        says="Standard error of the calibration slope.",
        formula=_ERROR,
        source=_LIKELIHOOD,
        absent=_NO_SLOPE,
        reading="about `1 / (sqrt(positives) * 1.5)` for rare events: .1 needs some 50 positives, .05 some 200.",
    ),
    FigureSpec(
        key="platt_intercept",
        metric="streamcal_platt_intercept",
        says=f"Calibration intercept, {_MODEL}.",
        formula="fitted together with the slope.",
        source=_COX,
        absent=_NO_SLOPE,
        reading="only together with the slope: it is the shift at a score of .5, which rare events never see. For the"
        " level read `offset_intercept`.",
    ),
    FigureSpec(
        key="platt_intercept_se",
        metric="streamcal_platt_intercept_stderr",
        says="Standard error of the calibration intercept.",
        formula=_ERROR,
        source=_LIKELIHOOD,
        absent=_NO_SLOPE,
        reading="large for rare events, where the intercept is an extrapolation.",
    ),
    FigureSpec(
        key="offset_intercept",
        metric="streamcal_offset_intercept",
        says="Calibration intercept with the slope held at 1.",
        formula="the b with `sum sigmoid(logit(p) + b) = sum y`.",
        source="calibration in the large: Cox, Biometrika 45, 1958.",
        absent="below `min_count` rows of either class.",
        reading="above 0 the scores are too low, below 0 too high; .1 is about 10 % of the odds.",
    ),
    FigureSpec(
        key="offset_intercept_se",
        metric="streamcal_offset_intercept_stderr",
        says="Standard error of the intercept with the slope held at 1.",
        formula=_ERROR,
        source=_LIKELIHOOD,
        absent="as `offset_intercept`.",
        reading="about `1 / sqrt(positives)` for rare events.",
    ),
    FigureSpec(
        key="ratio",
        metric="streamcal_predicted_to_observed_ratio",
        says="Sum of scores over sum of labels.",
        formula="`sum w p / sum w y`.",
        source="expected to observed events, E/O.",
        absent="without positives.",
        reading="above 1 the scores are too high. Its relative error is about `1 / sqrt(positives)`, so gate it by "
        "`positives`. It does not see errors that cancel.",
    ),
)
