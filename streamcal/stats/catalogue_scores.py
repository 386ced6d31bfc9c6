"""Descriptions of sizes, proper scores and dispersion."""

from __future__ import annotations

from typing import Final

from streamcal.stats.figure_spec import NO_ROWS, FigureSpec

__all__ = ["SCORES"]

_CORP: Final = (
    "CORP: Dimitriadis, Gneiting, Jordan, PNAS 118, 2021, on bins; within-bin terms: Stephenson, Coelho, "
    "Jolliffe, 2008."
)

SCORES: Final = (
    FigureSpec(
        key="n",
        metric="streamcal_labelled_predictions",
        says="Labelled predictions in the window.",
        formula="`sum 1`; weights do not enter.",
        source="a count.",
        absent="never.",
        reading="as a gate of every other figure.",
    ),
    FigureSpec(
        key="positives",
        metric="streamcal_positive_outcomes",
        says="Labelled predictions with a positive outcome.",
        formula="`sum y`; weights do not enter.",
        source="a count.",
        absent="never.",
        reading="for rare events this, and not `n`, says how much can be known.",
    ),
    FigureSpec(
        key="mean_score",
        metric="streamcal_mean_score",
        says="Mean score of the labelled predictions.",
        formula="`sum w p / sum w`.",
        source="a mean.",
        absent=NO_ROWS,
        reading="a jump without one of `base_rate` is a change of the model or of its inputs.",
    ),
    FigureSpec(
        key="base_rate",
        metric="streamcal_base_rate",
        says="Share of positive outcomes.",
        formula="`sum w y / sum w`.",
        source="a mean.",
        absent=NO_ROWS,
        reading="a jump without one of `mean_score` is a change of the world, or of how outcomes are recorded.",
    ),
    FigureSpec(
        key="brier",
        metric="streamcal_brier",
        says="Mean squared difference between score and label.",
        formula="`sum w (p - y)^2 / sum w`, exact from the counts.",
        source="Brier, Monthly Weather Review 78, 1950.",
        absent=NO_ROWS,
        reading="to compare models on the same rows; it moves with the base rate, so not against a fixed level.",
    ),
    FigureSpec(
        key="brier_reliability",
        metric="streamcal_brier_reliability",
        says="Part of the Brier score that a monotone recalibration would remove.",
        formula="`B - B_iso`: Brier score of the bin means less that of isotonic regression over the 284 bins.",
        source=_CORP,
        absent=NO_ROWS,
        reading="what a refit could gain, with what isotonic regression overfits on top: not 0 for a calibrated score.",
    ),
    FigureSpec(
        key="brier_resolution",
        metric="streamcal_brier_resolution",
        says="Part of the Brier score that telling rows apart saves.",
        formula="`brier_reliability + brier_uncertainty - brier`; it holds what scores tell apart inside a bin, too.",
        source=_CORP,
        absent=NO_ROWS,
        reading="a fall is a worse model, which no calibration map repairs.",
    ),
    FigureSpec(
        key="brier_uncertainty",
        metric="streamcal_brier_uncertainty",
        says="Brier score of the base rate as the only score.",
        formula="`r (1 - r)`, r the base rate.",
        source="Murphy, J. Applied Meteorology 12, 1973.",
        absent=NO_ROWS,
        reading="as the scale of the other two parts.",
    ),
    FigureSpec(
        key="log_loss",
        metric="streamcal_log_loss",
        says="Mean log loss in nats.",
        formula="`-sum w [y ln q + (1-y) ln(1-q)] / sum w`, q the score clipped to [1e-7, 1 - 1e-7].",
        source="Good, J. Royal Stat. Soc. B 14, 1952.",
        absent=NO_ROWS,
        reading="raw against served: the difference is what the map is worth, in nats per prediction.",
    ),
    FigureSpec(
        key="normalized_entropy",
        metric="streamcal_normalized_entropy",
        says="Log loss over that of the base rate.",
        formula="`log_loss / -(r ln r + (1-r) ln(1-r))`, r the base rate.",
        source="He et al., ADKDD 2014.",
        absent="without rows, and with one class only.",
        reading="above 1 the base rate alone would be the better score.",
    ),
    FigureSpec(
        key="spiegelhalter_z",
        metric="streamcal_spiegelhalter_z",
        says="Spiegelhalter's z of the Brier score.",
        formula="`sum w (y-p)(1-2p) / sqrt(sum w^2 (1-2p)^2 p(1-p))`.",
        source="Spiegelhalter, Statistics in Medicine 5, 1986.",
        absent="without rows, and where every score is 0, .5 or 1.",
        reading="above 0 the Brier score is worse than the scores promise. Standard normal for one look at a "
        "calibrated window; blind to errors that leave the Brier score as promised.",
    ),
    FigureSpec(
        key="effective_n",
        metric="streamcal_effective_n",
        says="Kish's effective number of labelled predictions.",
        formula="`(sum w)^2 / sum w^2`.",
        source="Kish, Survey Sampling, 1965.",
        absent=NO_ROWS,
        reading="use it for `n` in weighted streams.",
    ),
    FigureSpec(
        key="phi",
        metric="streamcal_phi",
        says="Over-dispersion of the outcomes; errors are scaled by its root.",
        formula="mean over past blocks of (sum of residuals)^2 by its variance, about the fitted slope and intercept;"
        " at least 1.",
        source="quasi-likelihood: Wedderburn, Biometrika 61, 1974.",
        absent="where alarms do not run.",
        reading="above about 2 outcomes share causes (weather, an outage, a campaign): windows say less than their n.",
    ),
)
