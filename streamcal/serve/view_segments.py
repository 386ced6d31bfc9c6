"""The segments of a window, the worst first.

Worst is what an alarm is in force for; then what is off by more than chance explains; then where most evidence has
gathered. Chance is the noise floor of ECE and two of its standard deviations, both times the root of the
over-dispersion: outcomes that come in clumps are worth fewer rows. So neither a small segment with a large and
meaningless ECE comes first, nor a huge one that is certainly off by next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.maps.document import MapDocument
from streamcal.serve.api_tables import AskedSegments
from streamcal.serve.corrections import correction
from streamcal.serve.exposition import label_value
from streamcal.snapshot import Figures, ModelSnapshot, Series, WindowFigures

__all__ = ["SORTS", "segments_view"]

Floats = NDArray[np.float64]

_Z: Final = 1.959963984540054
"""Normal quantile of a two-sided 95 % interval."""
_WHOLE: Final = Series("all", "all")
_RULE_OF_FIVE: Final = 5.0
"""Expected or seen rows of the rarer class, in effect, below which the noise of ECE is not near normal."""
_SHOWN: Final = ("ece", "ece_noise_floor", "ece_z", "platt_slope", "platt_slope_se", "ratio", "mean_score")


def _worst(columns: Figures) -> Floats:
    # One number: an alarm outweighs any excess, which is below 1; where there is none, evidence decides.
    share = np.clip(np.nan_to_num(columns["evidence"] / columns["threshold"], nan=0.0, neginf=0.0), 0.0, 1.0)
    return 10.0 * columns["alarm"] + np.nan_to_num(columns["ece_excess"]) + 1e-9 * share


def _by(name: str, *, off: float = 0.0) -> Callable[[Figures], Floats]:
    """Largest first; with `off`, farthest from it first."""
    return lambda columns: np.nan_to_num(np.abs(columns[name] - off) if off else columns[name], nan=-np.inf)


SORTS: Final[dict[str, Callable[[Figures], Floats]]] = {
    "worst": _worst,
    "n": _by("n"),
    "ece": _by("ece"),
    "ece_z": _by("ece_z"),
    "slope": _by("platt_slope", off=1.0),
    "ratio": lambda columns: np.nan_to_num(np.abs(np.log(columns["ratio"])), nan=-np.inf, posinf=1e9),
    "evidence": _by("evidence"),
}
"""Order to what it sorts by, descending; ties by name."""


def segments_view(model: ModelSnapshot, window: WindowFigures, asked: AskedSegments) -> dict[str, Any]:
    """The rows asked for of the segments found, and how many there are."""
    columns = _columns(model, window, window.served if asked.score_kind == "served" else window.raw)
    segments = np.array([series.segment != _WHOLE.segment for series in window.series], dtype=bool)
    found = np.flatnonzero(segments)
    if asked.search or asked.cut is not None:
        found = np.array([i for i in found.tolist() if _wanted(window.series[i], asked)], dtype=np.intp)
    with np.errstate(divide="ignore"):
        order = found[np.argsort(-SORTS[asked.sort](columns)[found], kind="stable")]
    since = {entry.series: entry.at_ms for entry in model.alarm_log if entry.ended_ms is None}
    champion = model.maps.champion
    corrected = champion.segments if isinstance(champion, MapDocument) else {}
    rows = []
    for i in order[asked.offset : asked.offset + asked.limit].tolist():
        series = window.series[i]
        row: dict[str, Any] = {"cut": label_value(series.cut), "segment": label_value(series.segment)}
        row |= _row(columns, i)
        state = model.alarms.get(series)
        if state is not None and state.active is not None:
            row |= {"fault": state.active} | ({"since_ms": since[series]} if series in since else {})
        if series.segment in corrected:
            row |= {f"map_{name}": value for name, value in correction(corrected[series.segment]).items()}
        rows.append(row)
    return {"total": int(segments.sum()), "found": len(found), "segments": rows}


def _wanted(series: Series, asked: AskedSegments) -> bool:
    """Whether it is of the cut asked for and its name has what is searched."""
    inside = asked.cut is None or asked.cut == label_value(series.cut)
    return inside and asked.search.casefold() in label_value(series.segment).casefold()


def _row(columns: Figures, i: int) -> dict[str, Any]:
    row: dict[str, Any] = {"n": 0}
    for name, values in columns.items():
        value = float(values[i])
        if name != "alarm" and math.isfinite(value):
            row[name] = int(value) if name in {"n", "positives"} else value
    return row


def _columns(model: ModelSnapshot, window: WindowFigures, figures: Figures) -> dict[str, Floats]:
    """What rows show and orders use, per series; NaN is absent."""
    absent = np.full(len(window.series), np.nan)
    columns = {name: figures.get(name, absent) for name in ("n", "positives", *_SHOWN)}
    rate = figures.get("base_rate", absent)
    phi = np.nan_to_num(figures.get("phi", absent), nan=1.0)
    effective = figures.get("effective_n", columns["n"]) / phi
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = _wilson(rate, effective)
        columns |= {"observed_rate": rate, "observed_low": low, "observed_high": high}
        columns["ratio_low"] = columns["mean_score"] / high
        columns["ratio_high"] = np.where(low > 0, columns["mean_score"] / low, np.nan)
        columns["ece_excess"] = _excess(columns, phi, effective)
    states = [model.alarms.get(series) for series in window.series]
    columns["evidence"] = np.array([np.nan if state is None else state.evidence for state in states])
    columns["threshold"] = np.array([np.nan if state is None else state.threshold for state in states])
    columns["alarm"] = np.array([float(state is not None and state.active is not None) for state in states])
    return columns


def _excess(columns: Figures, phi: Floats, effective: Floats) -> Floats:
    """ECE beyond what chance explains, at least 0; absent with too few rows to say."""
    gap = columns["ece"] - columns["ece_noise_floor"]
    deviation = gap / columns["ece_z"]
    excess = columns["ece"] - np.sqrt(phi) * (columns["ece_noise_floor"] + 2.0 * deviation)
    rate, mean = columns["observed_rate"], columns["mean_score"]
    rarer = effective * np.minimum(np.maximum(rate, mean), 1.0 - np.minimum(rate, mean))
    known = ~np.isnan(gap) & (rarer >= _RULE_OF_FIVE)
    # Without a deviation chance explains nothing or everything; either way there is no excess to speak of.
    return np.where(known, np.maximum(np.nan_to_num(excess), 0.0), np.nan)


def _wilson(rate: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Wilson's score interval (Wilson 1927) of rates observed on `n` rows each."""
    z2 = _Z * _Z / n
    middle = (rate + z2 / 2.0) / (1.0 + z2)
    half = _Z / (1.0 + z2) * np.sqrt(rate * (1.0 - rate) / n + z2 / (4.0 * n))
    # At the ends the formula is exact, and its rounding is not.
    low, high = np.where(rate > 0, middle - half, 0.0), np.where(rate < 1, middle + half, 1.0)
    absent = np.isnan(rate)
    return np.where(absent, np.nan, np.maximum(low, 0.0)), np.where(absent, np.nan, np.minimum(high, 1.0))
