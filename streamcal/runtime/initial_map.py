"""An initial map from labelled rows, and what it would have done on rows it had not seen.

The map written is fitted on every row. How good it is, is told by another: fitted on the older rows, judged on the
newest ones, since a map is always applied to what comes later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StreamcalError
from streamcal.maps.compiled import CompiledMap, SegmentTable
from streamcal.maps.document import Counts, FitWindow, MapDocument, new_document
from streamcal.maps.experts import TrackingSettings
from streamcal.maps.families import Identity, Map, Prior, Tracking
from streamcal.maps.fit import FITS
from streamcal.maps.tracking import TrackingFilter, step_cells
from streamcal.runtime.initial_segments import segment_table
from streamcal.runtime.labelled_rows import Dimension, LabelledRows
from streamcal.stats.counts import PLAIN, WEIGHTED, check_range, contributions
from streamcal.stats.figures import figures
from streamcal.stats.layout import N_BINS

__all__ = ["FAMILIES", "FitOptions", "InitialMap", "Judged", "fit_initial"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAMILIES: Final = (*FITS, "prior", "tracking")
"""Every family; `prior` takes its parameter from the options and `tracking` needs times."""

SHOWN: Final = ("n", "positives", "mean_score", "base_rate", "ece", "platt_slope", "ratio", "log_loss")
_BLOCK: Final = 65_536

_HINTS: Final = {
    "too_few_labels": "give more rows of both classes, or a simpler family (intercept, platt)",
    "slope_not_positive": "labels do not rise with scores: check that label and score are the right columns",
    "not_finite": "the fit does not settle: try platt or intercept",
}


@dataclass(frozen=True, slots=True)
class FitOptions:
    """What is fitted.

    Attributes
    ----------
    holdout : float
        Share of the newest rows that judge, above 0 and below 1.
    min_count : int
        Rows of either class below which nothing is fitted.
    negative_sampling_rate, positive_weight : float or None
        Parameter of the family ``prior``: exactly one, and only there.
    """

    model: str = "default"
    version: int = 1
    family: str = "platt"
    holdout: float = 0.2
    min_count: int = 50
    negative_sampling_rate: float | None = None
    positive_weight: float | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """Figures of the same rows before and after a map; NaN is absent."""

    before: Mapping[str, float]
    after: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class InitialMap:
    """A map and what is known of it.

    Attributes
    ----------
    document : MapDocument
    held_out : Judged or str
        The newest rows through a map of the older ones; in words why there is none.
    whole : Judged
        Every row through the map itself, which has seen them.
    """

    document: MapDocument
    held_out: Judged | str
    whole: Judged


def fit_initial(rows: LabelledRows, options: FitOptions) -> InitialMap:
    """Fit a map to all rows, and judge its like on the newest.

    Raises
    ------
    StreamcalError
        If there is no such map, and why.
    """
    compiled, table = _fitted(rows, options)
    held_out = _held_out(rows, options)
    evidence = {}
    if isinstance(held_out, Judged):
        n = held_out.before["n"]
        evidence = {"holdout_n": n, "holdout_positives": held_out.before["positives"]}
        if rows.weight is None:
            evidence["gain"] = n * (held_out.before["log_loss"] - held_out.after["log_loss"])
    document = new_document(
        options.model,
        options.version,
        compiled.map_,
        at_ms=0 if rows.time_ms is None else int(rows.time_ms[-1]),
        fit_window=_window(rows, options),
        counts=Counts(len(rows.label), int(rows.label.sum())) if options.family != "prior" else None,
        evidence=evidence,
        segments=table,
    )
    return InitialMap(document, held_out, _judged(rows, compiled))


def _window(rows: LabelledRows, options: FitOptions) -> FitWindow | None:
    if rows.time_ms is None or options.family == "prior":
        return None
    return FitWindow(int(rows.time_ms[0]), int(rows.time_ms[-1]) + 1)


def _held_out(rows: LabelledRows, options: FitOptions) -> Judged | str:
    cut = len(rows.label) - int(len(rows.label) * options.holdout)
    if rows.time_ms is not None and 0 < cut < len(rows.label):
        cut = int(np.searchsorted(rows.time_ms, rows.time_ms[cut], side="left"))  # rows of one moment stay together
    older, newer = _part(rows, slice(0, cut)), _part(rows, slice(cut, None))
    if min(len(older.label), len(newer.label)) == 0:
        return "too few rows to hold any out"
    try:
        compiled, _ = _fitted(older, options)
    except StreamcalError as error:
        return f"on the older rows there is none: {error.what}"
    return _judged(newer, compiled)


def _part(rows: LabelledRows, which: slice) -> LabelledRows:
    return replace(
        rows,
        score=rows.score[which],
        label=rows.label[which],
        time_ms=None if rows.time_ms is None else rows.time_ms[which],
        weight=None if rows.weight is None else rows.weight[which],
        segments={name: Dimension(held.values, held.codes[which]) for name, held in rows.segments.items()},
    )


def _fitted(rows: LabelledRows, options: FitOptions) -> tuple[CompiledMap, SegmentTable]:
    map_ = _family(rows, options)
    table = segment_table(rows, map_)
    return CompiledMap(map_, table), table


def _family(rows: LabelledRows, options: FitOptions) -> Map:
    if options.family == "prior":
        return _prior(options)
    counted = rows.label if rows.weight is None else rows.label[rows.weight > 0.0]
    n, positives = len(counted), int(counted.sum())
    if options.family != "identity" and min(positives, n - positives) < options.min_count:
        weighed = "" if rows.weight is None else " of a weight above 0"
        what = (
            f"{n} rows{weighed} with {positives} positives are too few: {options.min_count} of either class are needed"
        )
        raise StreamcalError(what, hint="give more rows, or lower --min-count")
    map_ = _tracking(rows) if options.family == "tracking" else _from_counts(rows, options.family)
    if isinstance(map_, str):
        raise StreamcalError(f"there is no {options.family} map of these rows: {map_}", hint=_HINTS.get(map_, ""))
    return map_


def _prior(options: FitOptions) -> Prior:
    try:
        return Prior(options.negative_sampling_rate, options.positive_weight)
    except ValueError as cause:
        raise StreamcalError(str(cause), hint="give --negative-sampling-rate or --positive-weight") from cause


def _from_counts(rows: LabelledRows, family: str) -> Map | str:
    counts = _counts(rows.score, rows)
    # Curves are drawn towards a simpler map where labels are few, as in the refit loop.
    platt = FITS["platt"](counts, Identity())
    return FITS[family](counts, Identity() if isinstance(platt, str) else platt)


def _tracking(rows: LabelledRows) -> Map | str:
    """The tracking filter over all rows, each known as soon as it was predicted, as it stands after the last."""
    if rows.time_ms is None:
        raise StreamcalError("a tracking map follows time, and the rows have none", hint="name their time with --time")
    settings = TrackingSettings(memory_steps=1)
    steps = rows.time_ms // settings.step_ms
    follower = TrackingFilter(settings, int(steps[0]))
    bounds = [*np.flatnonzero(np.diff(steps, prepend=steps[0] - 1)).tolist(), len(steps)]
    for start, stop in pairwise(bounds):
        part = _part(rows, slice(start, stop))
        bins, values, _ = contributions(part.score, part.label, part.weight)
        filled, where = np.unique(bins, return_inverse=True)
        merged = np.zeros((len(filled), values.shape[1]), dtype=np.int64)
        np.add.at(merged, where, values)
        follower.update(int(steps[start]), step_cells(np.full(len(filled), steps[start]), filled, merged))
    intercept, slope = follower.current()
    return "slope_not_positive" if slope <= 0.0 else Tracking(slope, intercept)


def _judged(rows: LabelledRows, compiled: CompiledMap) -> Judged:
    columns = {name: [held.values[code] for code in held.codes.tolist()] for name, held in rows.segments.items()}
    served = compiled.apply(rows.score, columns or None)
    return Judged(_figures(rows.score, rows), _figures(served, rows))


def _figures(score: Floats, rows: LabelledRows) -> dict[str, float]:
    found = figures(_counts(score, rows)[None])
    return {name: float(found[name][0]) for name in SHOWN}


def _counts(score: Floats, rows: LabelledRows) -> Ints:
    counts = np.zeros((N_BINS, PLAIN if rows.weight is None else WEIGHTED), dtype=np.int64)
    for start in range(0, len(score), _BLOCK):
        part = slice(start, start + _BLOCK)
        heavy = None if rows.weight is None else rows.weight[part]
        bins, values, _ = contributions(score[part], rows.label[part], heavy)
        np.add.at(counts, bins, values)
        check_range(counts)
    return counts
