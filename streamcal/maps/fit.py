"""Fit a map of any family to the counts of raw scores.

All fits have one signature, ``fit(counts, prior_map) -> Map | reason``, so that a policy can go through the families
it is configured with; `FITS` lists them, the simplest first. Reasons are those a refusal is counted under.

Priors of the parametric families stand on the identity map and are worth a few dozen positives: with few labels
little changes, the fit always exists, and from 300 positives on it is the maximum-likelihood fit in all but name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Beta, Identity, Intercept, Map, Platt, Temperature
from streamcal.maps.fit_bins import FitBins, fit_bins
from streamcal.maps.fit_girb import fit_girb
from streamcal.maps.fit_isotonic import fit_cir, fit_isotonic
from streamcal.maps.fit_logistic import Normal, constant, fit_logistic, line, log_rest, log_score
from streamcal.stats.platt import SLOPE_LIMIT
from streamcal.stats.platt import Prior as PlattPrior
from streamcal.stats.platt import fit_platt as fit_platt_counts

__all__ = [
    "FITS",
    "Fit",
    "fit_beta",
    "fit_cir",
    "fit_girb",
    "fit_identity",
    "fit_intercept",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
]

Ints = NDArray[np.int64]
Fit = Callable[[Ints, Map], Map | str]

_INTERCEPT: Final = Normal(0.0, 1.0)
_SLOPE: Final = Normal(1.0, 0.5)
_HELD_SLOPE: Final = Normal(1.0, 0.0)
_LEFT_OUT: Final = Normal(0.0, 0.0)


def fit_identity(counts: Ints, prior_map: Map) -> Identity:  # noqa: ARG001 -- one signature for all families
    """No map at all: the yardstick of the others."""
    return Identity()


def fit_intercept(counts: Ints, prior_map: Map) -> Intercept | str:  # noqa: ARG001 -- as above
    """Level alone, slope 1; prior N(0, 1) on the intercept.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores.
    prior_map : Map
        Not used.

    Returns
    -------
    Intercept or str
        ``not_finite`` where the iteration does not settle.
    """
    fit = fit_logistic(fit_bins(counts), [(constant, _INTERCEPT), (line, _HELD_SLOPE)])
    return "not_finite" if fit is None else Intercept(float(fit[0]))


def fit_temperature(counts: Ints, prior_map: Map) -> Temperature | str:  # noqa: ARG001 -- as above
    """Spread alone, intercept 0; prior N(1, .5^2) on 1 / temperature.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores.
    prior_map : Map
        Not used.

    Returns
    -------
    Temperature or str
        ``slope_not_positive`` where labels fall as scores rise, ``not_finite`` where the iteration does not settle.

    References
    ----------
    Guo et al., "On calibration of modern neural networks", ICML 2017.
    """
    fit = fit_logistic(fit_bins(counts), [(line, _SLOPE)])
    if fit is None or fit[0] > SLOPE_LIMIT:
        return "not_finite"
    return "slope_not_positive" if fit[0] <= 0.0 else Temperature(float(1.0 / fit[0]))


def fit_platt(counts: Ints, prior_map: Map) -> Platt | str:  # noqa: ARG001 -- as above
    """Level and spread; priors N(0, 1) on the intercept and N(1, .5^2) on the slope.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores.
    prior_map : Map
        Not used.

    Returns
    -------
    Platt or str
        ``slope_not_positive`` where labels fall as scores rise, ``not_finite`` where the iteration does not settle.

    References
    ----------
    Platt, "Probabilistic outputs for support vector machines", 1999; Cox 1958 for the model on logits.
    """
    fit = fit_platt_counts(counts[None], prior=PlattPrior())
    if not fit.converged[0]:
        return "not_finite"
    slope = float(fit.slope[0])
    return "slope_not_positive" if slope <= 0.0 else Platt(slope, float(fit.intercept[0]))


def fit_beta(counts: Ints, prior_map: Map) -> Beta | str:  # noqa: ARG001 -- as above
    """A slope at either end; priors N(1, .5^2) on a and b, N(0, 1) on c.

    Where a or b would be negative it is left out (0) and the rest fitted again, as the authors' own package does.

    Parameters
    ----------
    counts : int64[284, K]
        Raw scores.
    prior_map : Map
        Not used.

    Returns
    -------
    Beta or str
        ``slope_not_positive`` where labels fall as scores rise, ``not_finite`` where the iteration does not settle.

    References
    ----------
    Kull, Silva Filho and Flach, "Beta calibration", AISTATS 2017.
    """
    bins = fit_bins(counts)
    fit = _beta(bins, _SLOPE, _SLOPE)
    if not isinstance(fit, str) and min(fit[:2]) < 0.0:
        fit = _beta(bins, _LEFT_OUT if fit[0] < 0.0 else _SLOPE, _LEFT_OUT if fit[1] < 0.0 else _SLOPE)
    if isinstance(fit, str):
        return fit
    a, b, c = fit
    return "slope_not_positive" if min(a, b) < 0.0 or max(a, b) <= 0.0 else Beta(a, b, c)


def _beta(bins: FitBins, prior_a: Normal, prior_b: Normal) -> tuple[float, float, float] | str:
    fit = fit_logistic(bins, [(log_score, prior_a), (log_rest, prior_b), (constant, _INTERCEPT)])
    if fit is None or max(fit[:2]) > SLOPE_LIMIT:
        return "not_finite"
    a, b, c = fit.tolist()
    return a, b, c


FITS: Final[Mapping[str, Fit]] = MappingProxyType(
    {
        "identity": fit_identity,
        "intercept": fit_intercept,
        "temperature": fit_temperature,
        "platt": fit_platt,
        "beta": fit_beta,
        "girb": fit_girb,
        "cir": fit_cir,
        "isotonic": fit_isotonic,
    }
)
"""Family to its fit, fewest degrees of freedom first. Not here: `prior` (configured) and `tracking` (a filter)."""
