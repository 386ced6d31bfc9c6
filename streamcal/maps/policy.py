"""Which challenger replaces the map in force, if any, and why not.

At every attempt, in this order:

1. Challengers are judged on the rows that have become known since the last one, each by what it said when the row was
   predicted (`judged`), and their gains over the map in force added up (`evidence`).
2. A family *suffices* when its gain since the last change is at least ``ln(20 x families)`` nats and its gain over the
   newest blocks is above one standard error.
3. Of those that suffice the cheapest is chosen; a dearer one takes its place where it is better by more than ln 20
   nats and one standard error over the same blocks. A shift of the level is tried before a line, a line before a
   curve.
4. What would go into force is the chosen family's fit to all labels of the window. Guards look at it (`guards`); where
   they object, the next family that suffices is tried, and the first objection is the reason of the refusal. Where
   none suffices but a fit has failed, its reason is given: it tells more than that nothing was gained.

5. Where none suffices, the family in force may be *refreshed*: by its own newest fit, once that rests on twice the
   labels and has gained anything on what was judged since. A map that was promoted early is noisy still, and the nats
   it costs by that are too few to reach the bar for weeks. Raw scores and configured maps are never refreshed.

ln 20 comes from a wager: who bets on the challenger against a calibrated map has twenty times the stake with
probability 1/20 at most, whenever he looks. Any number of looks is covered, so attempts may be hourly. What is not
covered: outcomes that depend on each other given the scores. That is what the standard error over blocks is for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from streamcal.maps.challengers import Challengers
from streamcal.maps.evidence import Evidence, surpasses
from streamcal.maps.families import Intercept, Map, Tracking
from streamcal.maps.guards import LARGEST_STEP, largest_step, mean_is_off, scarcer
from streamcal.stats.fit_panes import FitPanes

__all__ = [
    "HOLDOUT_SHARE",
    "REFUSALS",
    "WAGER",
    "Decision",
    "decide",
    "gain_bar",
    "objection",
    "preferred",
]


WAGER: Final = math.log(20.0)
"""Nats: odds of 20 to 1 against a calibrated map in force."""

REFRESH: Final = 2
"""Labels of a refresh as a multiple of those fitted before: the standard error falls by three tenths, and from 50
labels to 3,000 there are six of them."""

HOLDOUT_SHARE: Final = 0.4
"""Judged rows of either class as a share of `min_count`: 20 at the default, where the standard error of a level is .22,
a step that is worth correcting."""

REFUSALS: Final = (
    "too_few_labels",
    "too_few_holdout",
    "slope_not_positive",
    "not_finite",
    "step_too_large",
    "mean_off",
    "no_gain",
    "cooling_down",
    "pinned",
)
"""Reasons of refusals; a roll-back has the reason ``worse_than_parent``."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one attempt.

    Attributes
    ----------
    reason : str
        One of `REFUSALS`; empty when promoted.
    family : str
        Chosen, or the one that gained most.
    map_ : Map or None
        To be put in force; None when refused.
    evidence : mapping of str to float
        `gain` since the last change (at most twice the `bar`), `recent_gain` over the newest blocks and its standard
        error `recent_gain_se`; rows judged `holdout_n`, `holdout_positives`; `gain_<family>` of each challenger.
    """

    reason: str
    family: str
    map_: Map | None
    evidence: Mapping[str, float]

    @property
    def promoted(self) -> bool:
        """Whether `map_` is to be put in force."""
        return self.map_ is not None


def gain_bar(families: int) -> float:
    """Nats a challenger must gain, of so many.

    >>> round(gain_bar(3), 3)
    4.094
    """
    return WAGER + math.log(max(families, 1))


def preferred(evidence: Evidence) -> list[str]:
    """Families that suffice, the chosen one first, then from the cheapest on; `evidence.families` is in that order."""
    sufficient = [family for family in evidence.families if evidence.suffices(family)]
    chosen = ""
    for family in sufficient:
        if not chosen or surpasses(*evidence.recent(family, over=chosen), WAGER):
            chosen = family
    return sorted(sufficient, key=lambda family: family != chosen)


def decide(
    evidence: Evidence,
    challengers: Challengers,
    fits: FitPanes,
    in_force: Map,
    min_count: int,
    *,
    fitted_on: int = 0,
) -> Decision:
    """Choose, and let the guards look.

    Parameters
    ----------
    evidence : Evidence
        Up to this moment.
    challengers : Challengers
        Fitted up to this moment.
    fits : FitPanes
        The fit window.
    in_force : Map
    min_count : int
    fitted_on : int
        Rows of the scarcer class that the map in force was fitted to; 0 where it was not fitted.
    """
    best = max(evidence.families, key=evidence.gain_of)

    def refuse(reason: str, family: str = best) -> Decision:
        return Decision(reason, family, None, _told(evidence, family))

    if scarcer(fits.whole()) < min_count:
        return refuse("too_few_labels")
    if min(evidence.positives, evidence.n - evidence.positives) < HOLDOUT_SHARE * min_count:
        return refuse("too_few_holdout")
    refusal = None
    for family in preferred(evidence) or _refreshed(evidence, fits, in_force, fitted_on):
        map_ = challengers.newest(family)
        reason = map_ if isinstance(map_, str) else objection(fits, in_force, map_, min_count)
        if not reason and not isinstance(map_, str):
            return Decision("", family, map_, _told(evidence, family))
        refusal = refusal or refuse(reason, family)
    return refusal or next((refuse(reason, family) for family, reason in challengers.failed()), refuse("no_gain"))


def objection(fits: FitPanes, in_force: Map, map_: Map, min_count: int) -> str:
    """Why the guards keep `map_` from traffic; empty where they do not."""
    # A shift of the level cannot bend anything: however far, it is what the labels say.
    if map_.family != Intercept.family and largest_step(fits.whole(), in_force, map_) > LARGEST_STEP:
        return "step_too_large"
    return "mean_off" if mean_is_off(fits, map_, min_count) else ""


def _refreshed(evidence: Evidence, fits: FitPanes, in_force: Map, fitted_on: int) -> list[str]:
    """The family in force, where a fit of its own on many more labels is to take its place."""
    family = in_force.family
    if family not in evidence.families or family == Tracking.family or fitted_on < 1:
        return []
    grown = scarcer(fits.whole()) >= REFRESH * fitted_on
    return [family] if grown and evidence.gain_of(family) > 0.0 else []


def _told(evidence: Evidence, family: str) -> Mapping[str, float]:
    recent, error = evidence.recent(family)
    told = {"gain": evidence.gain_of(family), "bar": evidence.bar, "recent_gain": recent}
    if math.isfinite(error):
        told["recent_gain_se"] = error
    told |= {"holdout_n": float(evidence.n), "holdout_positives": float(evidence.positives)}
    told |= {f"gain_{each}": evidence.gain_of(each) for each in evidence.families}
    return MappingProxyType(told)
