"""The immutable picture of the engine that every reader gets: exporter, terminal table, report.

Built in the one writer thread, never changed afterwards; figures are arrays over series in which NaN
stands for *absent* (readers leave it out, they never print it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.state.trees import recorded

__all__ = [
    "AlarmEntry",
    "AlarmState",
    "EarlyEstimate",
    "Figures",
    "LabelState",
    "MapEntry",
    "MapState",
    "MapsHeld",
    "ModelSnapshot",
    "ScoreShift",
    "Series",
    "Snapshot",
    "UnmatchedBand",
    "WindowFigures",
]

Figures = Mapping[str, NDArray[np.float64]]
"""Figure name (the report's key) to one value per series; NaN is absent."""


@recorded
@dataclass(frozen=True, slots=True, order=True)
class Series:
    """One segment of one cut, as labels: ``cut="country,device"``, ``segment="country=GB,device=ios"``.

    Both are ``all`` for the empty cut.
    """

    cut: str
    segment: str


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """Figures of one window for every series alive in it.

    `series[i]` belongs to entry i of each figure array. `raw_bins` and `served_bins` are the reliability
    table of the series ``all`` (report form, absent fields left out).
    """

    window: str
    series: Sequence[Series]
    raw: Figures
    served: Figures
    raw_bins: Sequence[Mapping[str, Any]]
    served_bins: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class MapState:
    """The champion map of a model."""

    version: int
    family: str
    promoted_ms: int


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One entry of a model's map history.

    Attributes
    ----------
    version : int or None
        None for what was refused.
    at_ms, until_ms : int
        Event time of the first and of the last attempt that share the entry.
    attempts : int
        Refusals in a row for the same reason share one entry.
    document : object or None
        The map's document, `streamcal.maps.document.MapDocument`.
    trigger : str
        What the attempt was made for: ``schedule``, ``alarm`` or ``manual``.
    who, why : str
        Of a request.
    """

    version: int | None
    family: str
    at_ms: int
    until_ms: int
    attempts: int
    promoted: bool
    reason: str
    document: Any = None
    trigger: str = "schedule"
    who: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class MapsHeld:
    """What a person may look at and put in force.

    Attributes
    ----------
    pinned : bool
        Whether nothing changes by itself.
    champion, candidate : object or None
        Document in force, and the one that would be were the loop not in shadow;
        `streamcal.maps.document.MapDocument`.
    fits : mapping
        Family to its newest fit, `streamcal.maps.families.Map`, or in a word why there is none.
    """

    pinned: bool = False
    champion: Any = None
    candidate: Any = None
    fits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlarmEntry:
    """One alarm of the past; `ended_ms` is None while it is in force."""

    at_ms: int
    ended_ms: int | None
    series: Series
    fault: str
    evidence: float
    phi: float


@dataclass(frozen=True, slots=True)
class AlarmState:
    """How one series stands with the detector.

    Attributes
    ----------
    evidence, threshold : float
        Natural logarithms; evidence is minus infinity before the first pane since a start.
    leading : str or None
        Fault that the leading bet names; None without evidence.
    active : str or None
        Fault of the alarm in force.
    phi : float
        Over-dispersion of its outcomes, at least 1.
    """

    evidence: float
    threshold: float
    leading: str | None
    active: str | None
    phi: float


@dataclass(frozen=True, slots=True)
class UnmatchedBand:
    """Share of the matured predictions scored in (lo, hi] (the first band: [0, hi]) to which no outcome came."""

    lo: float
    hi: float
    share: float


@dataclass(frozen=True, slots=True)
class LabelState:
    """How labels came to the newest matured predictions, those of a longest window.

    Attributes
    ----------
    coverage : float
        Share whose label is known; 1 where what has no outcome is a negative.
    delay_seconds : mapping
        Share of the labels to the delay they do not exceed; empty with too few.
    unmatched : sequence of UnmatchedBand
        Bands with predictions, ascending.
    """

    coverage: float
    delay_seconds: Mapping[float, float]
    unmatched: Sequence[UnmatchedBand]


@dataclass(frozen=True, slots=True)
class EarlyEstimate:
    """Predictions that have not matured against the positives seen of them; a warning, no figure.

    Attributes
    ----------
    predictions, positives : int
        Predictions old enough to be compared, and their positives within the delays compared.
    expected_positives : float
        What their scores say should be seen by now.
    ratio, ratio_se : float or None
        `expected_positives` over `positives`, and its standard error; None with too few.
    """

    predictions: int
    positives: int
    expected_positives: float
    ratio: float | None
    ratio_se: float | None


@dataclass(frozen=True, slots=True)
class ScoreShift:
    """Population stability index of a window against the longest window before it, and its mean without a shift."""

    index: float
    noise_floor: float


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """Everything published about one model.

    Attributes
    ----------
    counters : mapping
        `accepted_prediction, matched, expired, negative_at_maturity, duplicate_prediction,
        late_prediction, without_raw, extreme` of this model.
    labels : LabelState or None
        How labels came to matured predictions; None before the first.
    early : EarlyEstimate or None
        None while delays are unknown.
    score_shift : mapping
        (series, window) to the shift of its raw scores, where there are rows enough.
    refits : mapping
        (result, reason) to count; result is ``promoted`` or ``refused``, reason empty when promoted.
    last_outcome_ms : mapping
        Latest outcome time per series that has one.
    alarms : mapping
        How every series watched stands with the detector.
    ece_exceeded : mapping
        (series, window) to whether its served ECE is beyond ``alarms.ece``; empty where that is not set.
    changes : mapping
        Change trigger to how often it fired.
    sealed_until_ms : int or None
        Prediction time up to which everything is sealed by all sources.
    blocking_partition : int or None
        The source partition that sealing waits for.
    map_log : sequence of MapEntry
        The newest entries of the map history and the newest changes before them, oldest first.
    alarm_log : sequence of AlarmEntry
        The newest alarms raised, oldest first.
    maps : MapsHeld
    """

    name: str
    event_time_ms: int | None
    windows: Sequence[WindowFigures]
    counters: Mapping[str, int]
    pending: int
    champion: MapState | None
    refits: Mapping[tuple[str, str], int]
    last_outcome_ms: Mapping[Series, int]
    alarms: Mapping[Series, AlarmState] = field(default_factory=dict)
    ece_exceeded: Mapping[tuple[Series, str], bool] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    sealed_until_ms: int | None = None
    blocking_partition: int | None = None
    labels: LabelState | None = None
    early: EarlyEstimate | None = None
    score_shift: Mapping[tuple[Series, str], ScoreShift] = field(default_factory=dict)
    map_log: Sequence[MapEntry] = ()
    alarm_log: Sequence[AlarmEntry] = ()
    maps: MapsHeld = MapsHeld()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole engine at one moment.

    Attributes
    ----------
    sequence : int
        Grows by one per snapshot; a renderer caches its text by it.
    counters : mapping
        Every counter of the report summed over models and topics, `rejected` apart.
    rejected : mapping
        (topic, reason) to count.
    watermarks : mapping
        (topic, partition) to event time in ms; a partition that has seen nothing is left out.
    lag : mapping
        (topic, partition) to records not yet read; empty where the log cannot tell.
    incomplete : mapping
        (topic, partition) to records that were deleted unread and given up, as long as a window may lack them.
    """

    sequence: int
    event_time_ms: int | None
    models: Sequence[ModelSnapshot]
    counters: Mapping[str, int]
    rejected: Mapping[tuple[str, str], int]
    watermarks: Mapping[tuple[str, int], int]
    lag: Mapping[tuple[str, int], int]
    pending: int
    pending_bytes: int
    incomplete: Mapping[tuple[str, int], int] = field(default_factory=dict)
