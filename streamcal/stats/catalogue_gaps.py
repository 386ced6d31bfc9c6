"""Descriptions of the figures that sum or rank gaps between scores and outcomes."""

from __future__ import annotations

from typing import Final

from streamcal.stats.figure_spec import NO_ROWS, FigureSpec

__all__ = ["GAPS"]

_TYGERT: Final = "Tygert, JMLR 23(351), 2022 (Kuiper form)."

GAPS: Final = (
    FigureSpec(
        key="ece",
        metric="streamcal_ece",
        says="Expected calibration error; scheme and bins in streamcal_ece_info.",
        formula="`sum_b |P_b - S_b| / N` over equal-width bins `(lo, hi]`, P the sum of outcomes, S the sum of scores.",
        source="Naeini, Cooper, Hauskrecht, AAAI 2015.",
        absent=NO_ROWS,
        reading="never alone: a perfectly calibrated score has an ECE too, the noise floor. Gate it by `n` and "
        "`ece_z`. It is nearly blind to rare events: at a base rate of 1 % a score three times too high reads"
        " .02.",
    ),
    FigureSpec(
        key="ece_noise_floor",
        metric="streamcal_ece_noise_floor",
        says="ECE expected of a calibrated score at this sample size.",
        formula="`sum_b E|K_b - S_b| / N`, K_b binomial with the mean `sum p` and the variance `sum p(1-p)` of the "
        "bin, by De Moivre's closed form; the normal form from a variance of 10,000. With weights in units of"
        " `sum w^2 p / sum w p`.",
        source="De Moivre's mean deviation: Diaconis and Zabell, Statistical Science 6, 1991.",
        absent="without rows.",
        reading="draw it under `ece`. Do not subtract it: where the error is real the difference reads far too low.",
    ),
    FigureSpec(
        key="ece_z",
        metric="streamcal_ece_z",
        says="Standard deviations of the ECE above its noise floor.",
        formula="`(ece - ece_noise_floor) / sd`, `sd^2 = sum_b (sum p(1-p) - E|K_b - S_b|^2) / N^2`.",
        source="second moment less squared mean of the same binomial.",
        absent="without rows, and where the ECE cannot vary (scores of 0 and 1, one row of .5).",
        reading="as a gate beside an ECE threshold, above 4: it is skewed to the right for rare events. For outcomes "
        "that are not independent divide it by the root of `phi`.",
    ),
    FigureSpec(
        key="ece_equal_mass",
        metric="streamcal_ece_equal_mass",
        says="Expected calibration error over bins of equal mass.",
        formula="`sum_g |P_g - S_g| / N` over as many groups of equal weight as `ece` has bins; a group ends at the "
        "layout bin end nearest to its share, so tied scores stay together.",
        source="Nguyen and O'Connor, EMNLP 2015; ties as in uncertainty-calibration.",
        absent=NO_ROWS,
        reading="where scores crowd near 0: it looks inside the one equal-width bin they share. It has a noise floor "
        "too.",
    ),
    FigureSpec(
        key="l2_debiased",
        metric="streamcal_l2_debiased",
        says="L2 calibration error, debiased for the sample size.",
        formula="`sqrt(max(l2_debiased_signed, 0))`.",
        source="Kumar, Liang, Ma, NeurIPS 2019.",
        absent=NO_ROWS,
        reading="a size of error that does not grow as windows shrink; 0 means none is visible.",
    ),
    FigureSpec(
        key="l2_debiased_signed",
        metric="streamcal_l2_debiased_signed",
        says="Squared L2 calibration error, unbiased and so sometimes negative.",
        formula="`sum_b (n_b/N) [(P_b/n_b - S_b/n_b)^2 - r_b(1-r_b)/(n_b-1)]`, `r = P/n`, over equal-width bins; with"
        " weights the n of the correction is `(sum w)^2 / sum w^2`. Bins of one row add nothing.",
        source="Kumar, Liang, Ma, NeurIPS 2019; the reliability term of Ferro and Fricker, 2012.",
        absent=NO_ROWS,
        reading="average this one over time or segments and take the root last; the mean of the clipped roots is too "
        "high.",
    ),
    FigureSpec(
        key="smooth_ece",
        metric="streamcal_smooth_ece",
        says="Calibration error under a kernel as wide as the error, for the whole stream on demand.",
        formula="the s with `integral |r_s(t)| dt = s`, r_s the gaps `(y - p) / N` under a Gaussian of width s, "
        "reflected at 0 and 1; s is at least .001.",
        source="Blasiok and Nakkiran, arXiv 2309.12236.",
        absent="without rows, and for every series but `all`.",
        reading="as a check on `ece`: no bin edge decides it. At base rates of .001 and below read `ecce_sigma`.",
    ),
    FigureSpec(
        key="ecce",
        metric="streamcal_ecce",
        says="Range of the cumulative difference between outcomes and scores.",
        formula="`max_j C_j - min_j C_j`, `C_j = sum of w(y - p) over the j lowest layout bins / sum w`, `C_0 = 0`.",
        source=_TYGERT,
        absent=NO_ROWS,
        reading="the mean error of the worst stretch of scores times its share of the rows. Seen at the ends of 284 "
        "bins it is a lower bound, up to 4 % low.",
    ),
    FigureSpec(
        key="ecce_sigma",
        metric="streamcal_ecce_sigma",
        says="ECCE over its standard deviation under calibration.",
        formula="`(ecce + expected excess inside bins) / sd`, `sd = sqrt(sum w^2 p(1-p)) / sum w`. Inside a bin the "
        "walk is taken as a Brownian bridge between the bin's ends.",
        source=f"{_TYGERT} Barrier of a discrete walk: Broadie, Glasserman, Kou, Math. Finance 7, 1997.",
        absent="without rows, and where every score is 0 or 1.",
        reading="the best single test of a window, rare events included: 1.6 on average when calibrated, above 2.5 in"
        " 5 % and above 3.7 in .1 % of windows. Looked at every few seconds it passes any level some time: "
        "use the alarm for that.",
    ),
    FigureSpec(
        key="ecce_p_value",
        metric="streamcal_ecce_p_value",
        says="Probability of an ECCE this large if the score were calibrated.",
        formula="`8 sum_k (-1)^(k-1) k Phi(-k r)`, `r = ecce_sigma`: the range of a Brownian motion.",
        source="Feller, Ann. Math. Stat. 22, 1951.",
        absent="as `ecce_sigma`.",
        reading="for one look at one window. It is neither corrected for many segments nor for repeated looks.",
    ),
    FigureSpec(
        key="mce",
        metric="streamcal_mce",
        says="Largest calibration error of a bin.",
        formula="`max_b |P_b/n_b - S_b/n_b|` over equal-width bins that hold rows.",
        source="Naeini, Cooper, Hauskrecht, AAAI 2015.",
        absent=NO_ROWS,
        reading="not at all: its worst bin is mostly the one with the fewest rows. Read the bins with their intervals.",
    ),
)
