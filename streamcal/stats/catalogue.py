"""What each figure means, how it is computed and how to read it: one table for the metrics' help and the docs.

`docs/figures.md` ends in what `markdown` returns; ``python -m streamcal.stats.catalogue`` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from streamcal.stats.catalogue_fits import FITS
from streamcal.stats.catalogue_gaps import GAPS
from streamcal.stats.catalogue_scores import SCORES
from streamcal.stats.figure_spec import FigureSpec

__all__ = ["CATALOGUE", "FigureSpec", "markdown"]

_GROUPS: Final = {
    "Gaps between scores and outcomes": GAPS,
    "Slope, intercept, ratio": FITS,
    "Size, proper scores, dispersion": SCORES,
}

_ORDER: Final = (
    *("n", "positives", "mean_score", "base_rate", "ece", "ece_noise_floor", "ece_z", "ece_equal_mass"),
    *("l2_debiased", "l2_debiased_signed", "smooth_ece", "ecce", "ecce_sigma", "ecce_p_value", "mce"),
    *("platt_slope", "platt_slope_se", "platt_intercept", "platt_intercept_se"),
    *("offset_intercept", "offset_intercept_se", "ratio", "brier", "brier_reliability", "brier_resolution"),
    *("brier_uncertainty", "log_loss", "normalized_entropy", "spiegelhalter_z", "effective_n", "phi"),
)

_BY_KEY: Final = {spec.key: spec for group in _GROUPS.values() for spec in group}

CATALOGUE: Final[dict[str, FigureSpec]] = {key: _BY_KEY[key] for key in _ORDER}
"""Report key to description, in the order of the report and of `/metrics`."""


def markdown() -> str:
    """The generated part of `docs/figures.md`."""
    return "\n".join(line for name, group in _GROUPS.items() for line in _section(name, group))


def _section(name: str, group: tuple[FigureSpec, ...]) -> Iterator[str]:
    yield f"## {name}\n"
    for spec in sorted(group, key=lambda one: _ORDER.index(one.key)):
        yield f"### `{spec.key}`\n"
        yield f"{spec.says}\n"
        yield f"- Metric: `{spec.metric}`"
        yield f"- Formula: {spec.formula}"
        yield f"- Source: {spec.source}"
        yield f"- Absent: {spec.absent}"
        yield f"- In an alert: {spec.reading}\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
