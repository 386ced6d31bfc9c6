"""Whether a scheduled refit replaces the map in force.

Each attempt is judged on labels its candidate has not seen. Time orders the panes of the fit window; the newest,
as few whole panes as hold `HOLDOUT_FACTOR * min_count` rows of either class, are the hold-out (*newer*), the rest is
fitted (*older*)::

    |<------------------- fit window ------------------->|
    |  older: the candidate is fitted here   |   newer   |  event time ->

The candidate is promoted when its log loss on *newer* is below the champion's by at least `GAIN_BAR` nats. What goes
into force is then the same fit on *older* and *newer* together, so the freshest labels are not wasted.

The hold-out is sized by rows of the scarcer class and not by time, because evidence is: a day of clicks decides
easily, a day of frauds decides nothing. The bar is absolute: a calibrated champion loses ln 20 nats to a candidate
fixed beforehand with probability 1/20 at most (the likelihood ratio is then a test martingale). Without a bar (any
gain promotes) a calibrated stream of 900 rows a day gets a new map nearly three times a day and pays for the noise of
each; with it, none in six simulated years.

What this leaves out: attempts are judged one by one, so they neither share a level nor add up evidence, and a
champion may have been fitted on part of *newer*, which favours it. Both err towards keeping the champion, save that
many attempts of 1/20 each are more than one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.families import Map, Platt
from streamcal.stats.counts import Column
from streamcal.stats.platt import Prior, fit_platt
from streamcal.stats.sums import ScoreSums, score_sums

__all__ = [
    "GAIN_BAR",
    "HOLDOUT_FACTOR",
    "REFUSALS",
    "Decision",
    "RefitSettings",
    "attempt",
    "holdout_start",
    "log_loss",
]

Ints = NDArray[np.int64]

GAIN_BAR: Final = math.log(20.0)
"""Nats of log loss the candidate must be better by: odds of 20 to 1 against a calibrated champion."""

HOLDOUT_FACTOR: Final = 2
"""Hold-out rows of either class as a multiple of `min_count`. At the default, 100, an offset of .4 in the logit is
worth 6 to 8 nats, twice the bar, and one of .1 is found within days or weeks by chance; 50 rows miss that for most of
a year, 200 leave nothing to fit on where a 14-day window holds 150 positives."""

_PRIOR: Final = Prior(slope_mean=1.0, slope_sd=0.5, intercept_mean=0.0, intercept_sd=1.0)
"""Centred on the identity map and worth a few dozen positives: few labels change little, and the fit always exists."""

REFUSALS: Final = ("too_few_labels", "too_few_holdout", "slope_not_positive", "not_finite", "no_gain")


@dataclass(frozen=True, slots=True)
class RefitSettings:
    """What the policy takes from the configuration.

    Parameters
    ----------
    min_count : int
        Rows of either class without which nothing is fitted (`refit.min_count`).
    """

    min_count: int = 50


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one attempt.

    Attributes
    ----------
    promoted : bool
    reason : str
        One of `REFUSALS`; empty when promoted.
    map_ : Map or None
        The map to put in force; when refused, the candidate if there was one.
    evidence : mapping of str to float
        `holdout_n`, `holdout_positives`, and `gain` (nats over the champion) once a candidate was judged.
    n, positives : int
        Rows of *older* and *newer* together, on which a promoted map is fitted.
    """

    promoted: bool
    reason: str
    map_: Map | None
    evidence: Mapping[str, float]
    n: int
    positives: int


def holdout_start(n: Ints, positives: Ints, settings: RefitSettings) -> int:
    """Where the hold-out begins.

    Parameters
    ----------
    n, positives : int64[panes]
        Rows and positive rows of each pane of the fit window, oldest first.
    settings : RefitSettings

    Returns
    -------
    int
        Panes before it are *older*, it and those after it *newer*; 0 (all are *newer*) where even the whole window
        holds too few.

    Examples
    --------
    >>> n, positives = np.array([9, 9, 9, 9]), np.array([3, 1, 2, 2])
    >>> holdout_start(n, positives, RefitSettings(min_count=2))
    2
    """
    scarcer = np.minimum(np.cumsum(positives[::-1]), np.cumsum((n - positives)[::-1]))
    panes = int(np.searchsorted(scarcer, HOLDOUT_FACTOR * settings.min_count, side="left")) + 1
    return max(len(n) - panes, 0)


def attempt(older: Ints, newer: Ints, champion: Map, settings: RefitSettings) -> Decision:
    """Fit a candidate on `older`, judge it on `newer`, and refit it on both if it wins.

    Parameters
    ----------
    older, newer : int64[284, 9] or int64[284, 23]
        Counts of raw scores, split by `holdout_start`.
    champion : Map
        In force now; `Identity` where there is none.
    settings : RefitSettings

    Returns
    -------
    Decision
    """
    whole = older + newer
    held = score_sums(newer[None])
    evidence = {"holdout_n": float(held.rows.sum()), "holdout_positives": float(held.row_positives.sum())}

    def refuse(reason: str, candidate: Map | None = None) -> Decision:
        return Decision(False, reason, candidate, MappingProxyType(evidence), *_rows(whole))

    if _scarcer(whole) < settings.min_count:
        return refuse("too_few_labels")
    if _scarcer(newer) < HOLDOUT_FACTOR * settings.min_count:
        return refuse("too_few_holdout")
    if _scarcer(older) < settings.min_count:
        return refuse("too_few_labels")
    candidate = _fit(older)
    if isinstance(candidate, str):
        return refuse(candidate)
    gain = (log_loss(held, champion) - log_loss(held, candidate)) * _rows_per_weight(held)
    evidence["gain"] = gain
    if not gain >= GAIN_BAR:
        return refuse("no_gain", candidate)
    final = _fit(whole)
    if isinstance(final, str):
        return refuse(final, candidate)
    return Decision(True, "", final, MappingProxyType(evidence), *_rows(whole))


def log_loss(sums: ScoreSums, map_: Map) -> float:
    """Summed log loss, in nats, of what `map_` would have served.

    A bin's rows are judged at their mean score, which favours no map: within a bin a logit varies by an eighth.
    """
    filled = sums.weight > 0
    weight, positive = sums.weight[filled], sums.positive[filled]
    served = map_.apply(sums.score[filled] / weight)
    return float(-(positive * np.log(served) + (weight - positive) * np.log1p(-served)).sum())


def _fit(counts: Ints) -> Platt | str:
    """MAP-Platt on raw scores, or why there is none."""
    fit = fit_platt(counts[None], prior=_PRIOR)
    slope, intercept = float(fit.slope[0]), float(fit.intercept[0])
    if not (bool(fit.converged[0]) and math.isfinite(slope) and math.isfinite(intercept)):
        return "not_finite"
    if slope <= 0.0:
        return "slope_not_positive"
    return Platt(slope=slope, intercept=intercept)


def _rows(counts: Ints) -> tuple[int, int]:
    return int(counts[:, Column.N].sum()), int(counts[:, Column.Y].sum())


def _scarcer(counts: Ints) -> int:
    """Rows of the class that has fewer."""
    n, positives = _rows(counts)
    return min(positives, n - positives)


def _rows_per_weight(sums: ScoreSums) -> float:
    """Turns a weighted sum into one over the effective number of rows, (sum w)^2 / sum w^2; 1 without weights.

    Doubling every weight is no new evidence.
    """
    return float(sums.weight.sum() / sums.square_weight.sum())
