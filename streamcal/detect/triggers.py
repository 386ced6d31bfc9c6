"""River's ADWIN and Page-Hinkley beside the detector: they tell of a change, and promise nothing.

Both are fed the signed residual, label less score, of sealed prediction-time panes: never its magnitude and never
an error rate, which follow the base rate. ADWIN takes it row by row, Page-Hinkley as one number per pane, z =
(positives - sum of scores) / sqrt(sum of p (1 - p)). Neither has a false-alarm guarantee, and a score that was wrong
from the first day never changes: both stay silent on it, which is why they are no alarms here.

The counts of a pane know its rows' residuals (to the width of a bin) but not their order, so ADWIN gets them in a
drawn order; the draws begin with the first pane, so a recount gets the same. More than `MOST_VALUES` rows are averaged
in groups.

River is loaded when the first trigger is made, and costs about a microsecond per value: this is for whole models,
not for a thousand segments. Its state lives in its own objects and begins afresh with the process.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from streamcal.stats.counts import SCALE, Column
from streamcal.stats.layout import CENTRES, SCORE_CLIP

__all__ = ["ADWIN", "PAGE_HINKLEY", "ChangeTriggers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Integers = NDArray[np.integer]

ADWIN: Final = "adwin"
PAGE_HINKLEY: Final = "page_hinkley"

MOST_VALUES: Final = 1_000
"""Values ADWIN takes of one pane: a millisecond or so."""

# On z: changes below .1 standard deviations are let pass, and one of half a standard deviation is told in some 40
# panes; without forgetting. River's defaults are meant for values in [0, 1] and miss such changes.
_DELTA: Final = 0.1
_THRESHOLD: Final = 15.0
_ALPHA: Final = 1.0


class _River(Protocol):
    """What is used of a river drift detector."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last value set it off."""

    def update(self, x: float) -> object:
        """Take in a value."""


class ChangeTriggers:
    """One ADWIN and one Page-Hinkley for one series."""

    def __init__(self) -> None:
        self._state: tuple[_River, _River, np.random.Generator] | None = None

    def update(self, bins: Integers, values: Ints) -> list[str]:
        """Feed one sealed pane, panes in order; returns which triggers it set off.

        Parameters
        ----------
        bins : integer[M]
            Layout bins that hold rows.
        values : int64[M, K]
            Their counts of served scores.
        """
        if not len(bins):
            return []
        if self._state is None:
            self._state = (*_make(), np.random.default_rng(0))
        adwin, page_hinkley, draw = self._state
        n, y = values[:, Column.N], values[:, Column.Y]
        p = np.clip(CENTRES[bins] + values[:, Column.DP] / (SCALE[Column.DP] * n), SCORE_CLIP, 1.0 - SCORE_CLIP)
        z = float((y - n * p).sum() / np.sqrt((n * p * (1.0 - p)).sum()))
        set_off = {ADWIN: _feed(adwin, _residuals(n, y, p, draw).tolist()), PAGE_HINKLEY: _feed(page_hinkley, [z])}
        return [trigger for trigger, fired in set_off.items() if fired]

    def restart(self) -> None:
        """Forget everything: after a promoted map the residual is meant to change."""
        self._state = None


def _make() -> tuple[_River, _River]:
    from river import drift  # noqa: PLC0415 - heavy, and most never use it

    adwin = drift.ADWIN()  # type: ignore[no-untyped-call]  # river leaves it without types
    return adwin, drift.PageHinkley(delta=_DELTA, threshold=_THRESHOLD, alpha=_ALPHA)


def _feed(trigger: _River, values: list[float]) -> bool:
    """Whether any of `values` set `trigger` off."""
    fired = False
    for value in values:
        trigger.update(value)
        fired = fired or trigger.drift_detected
    return fired


def _residuals(n: Ints, y: Ints, p: Floats, draw: np.random.Generator) -> Floats:
    """Residuals of the rows in drawn order; means of groups where they are many."""
    values = np.concatenate([np.repeat(1.0 - p, y), np.repeat(-p, n - y)])
    draw.shuffle(values)
    if len(values) <= MOST_VALUES:
        return values
    return np.array([group.mean() for group in np.array_split(values, MOST_VALUES)])
