"""The shape of every answer under ``/api/v1``, for the OpenAPI description.

Names are added to and never changed. A figure that cannot be known is left out; times are milliseconds since the
epoch, UTC, of event time unless said otherwise. Answers are written by `streamcal.serve.view`; a test holds every
one of them to these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from streamcal.serve.metrics import FIGURES
from streamcal.serve.requests import State, What
from streamcal.serve.verdict import Action

__all__ = [
    "AskedRequest",
    "AskedSegments",
    "Bin",
    "Figures",
    "HistoryAnswer",
    "MapsAnswer",
    "ModelAnswer",
    "Problem",
    "RequestAnswer",
    "SegmentsAnswer",
    "StatusAnswer",
]

Fault = Literal["scores_too_high", "scores_too_low", "over_confident", "under_confident"]
Line = list[float | None]


class Answer(BaseModel):
    """Base of all: nothing beyond the fields described."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


Figures: type[Answer] = create_model(
    "Figures",
    __base__=Answer,
    __doc__="Figures by report key; what cannot be known is left out.",
    **{
        name: (int | None if name in {"n", "positives"} else float | None, Field(None, description=named.says))
        for name, named in FIGURES.items()
    },
)  # type: ignore[call-overload]  # fields come from the catalogue


class Problem(BaseModel):
    """What was wrong with a request."""

    detail: Any


class Verdict(Answer):
    """Whether the scores can be trusted."""

    state: Literal["ok", "watch", "alarm", "unknown"]
    sentence: str
    done: str = Field(description="What the refit loop did about it.")
    since_ms: int | None = Field(description="Start of the oldest alarm in force.")


class Champion(Answer):
    """The map in force."""

    version: int
    family: str
    promoted_ms: int


class ModelSummary(Answer):
    """One model in the overview."""

    name: str
    verdict: Verdict
    event_time_ms: int | None
    pending: int
    alarms: int = Field(description="Segments with an alarm in force, the whole model among them.")
    champion: Champion | None


class Partition(Answer):
    """One partition of an input topic."""

    topic: str
    partition: int
    watermark_ms: int | None
    delay_ms: int | None = Field(description="Wall clock less watermark.")
    behind_ms: int | None = Field(description="How far the watermark is behind the most advanced one.")
    lag: int | None = Field(description="Records not yet read.")


class Counters(Answer):
    """Totals over models and topics by report key; they outlive the process where its state is durable."""

    model_config = ConfigDict(extra="allow")

    rejected: dict[str, dict[str, int]] = Field(description="By topic, then reason.")


class StatusAnswer(Answer):
    """The daemon at a glance."""

    version: str
    ready: bool
    not_ready_reason: str | None
    read_only: bool = Field(description="Whether requests to change anything are refused.")
    sequence: int = Field(description="Number of the snapshot shown; 0 before the first.")
    snapshot_age_s: float | None = Field(description="Wall clock since that snapshot was taken.")
    event_time_ms: int | None
    pending: int
    pending_bytes: int
    counters: Counters
    partitions: list[Partition]
    models: list[ModelSummary]


class Bin(Answer):
    """A bin (lo, hi] of the reliability table; rates and interval are left out where it is empty."""

    lo: float
    hi: float
    n: int
    positives: int
    mean_score: float | None = None
    observed_rate: float | None = None
    observed_low: float | None = None
    observed_high: float | None = None


class Window(Answer):
    """One window of the whole model."""

    window: str
    segments: int = Field(description="Segments alive in it, the whole model not counted.")
    raw: Figures  # type: ignore[valid-type]  # made from the catalogue
    served: Figures  # type: ignore[valid-type]  # likewise
    raw_bins: list[Bin]
    served_bins: list[Bin]


class Alarm(Answer):
    """An alarm of the present or the past; `ended_ms` is null while it is in force."""

    at_ms: int
    ended_ms: int | None
    cut: str
    segment: str
    fault: Fault
    evidence: float
    phi: float


class Standing(Answer):
    """How the whole model stands with the detector; natural logarithms."""

    evidence: float | None
    threshold: float
    leading: Fault | None
    active: Fault | None
    phi: float


class Delay(Answer):
    """A share of the labels came within so many seconds."""

    share: float
    seconds: float


class Band(Answer):
    """Share of matured predictions scored in (lo, hi] without any outcome."""

    lo: float
    hi: float
    share: float


class Labels(Answer):
    """How labels came to matured predictions."""

    coverage: float
    delays: list[Delay]
    unmatched: list[Band]


class Early(Answer):
    """Predictions not yet matured against the positives seen of them; a warning, no figure."""

    predictions: int
    positives: int
    expected_positives: float
    ratio: float | None
    ratio_se: float | None


class Shift(Answer):
    """Population stability index of raw scores of the whole model against the longest window before."""

    window: str
    index: float
    noise_floor: float


class Refits(Answer):
    """How often a refit ended so."""

    result: str
    reason: str
    count: int


class ModelAnswer(Answer):
    """One model, its segments, history and maps apart."""

    sequence: int
    name: str
    verdict: Verdict
    event_time_ms: int | None
    windows: list[Window]
    standing: Standing | None
    alarms: list[Alarm] = Field(description="The newest alarms raised, newest first.")
    labels: Labels | None
    early: Early | None
    score_shift: list[Shift]
    champion: Champion | None
    refits: list[Refits]
    changes: dict[str, int] = Field(description="Change trigger to how often it fired.")
    sealed_until_ms: int | None
    blocking_partition: int | None
    last_outcome_ms: int | None
    counters: dict[str, int]
    pending: int


class Segment(Answer):
    """One segment in one window, for one kind of score."""

    cut: str
    segment: str
    n: int
    positives: int | None = None
    mean_score: float | None = None
    observed_rate: float | None = None
    observed_low: float | None = Field(None, description="Wilson's 95 % interval, for over-dispersed outcomes.")
    observed_high: float | None = None
    ece: float | None = None
    ece_noise_floor: float | None = None
    ece_z: float | None = None
    ece_excess: float | None = Field(
        None, description="ECE beyond its noise floor, less two standard deviations of chance, at least 0."
    )
    platt_slope: float | None = None
    platt_slope_se: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    evidence: float | None = None
    threshold: float | None = None
    fault: Fault | None = Field(None, description="Fault of the alarm in force.")
    since_ms: int | None = None


class SegmentsAnswer(Answer):
    """Segments of one window, sorted and cut out."""

    sequence: int
    model: str
    window: str
    score_kind: Literal["raw", "served"]
    total: int = Field(description="Segments alive in the window.")
    found: int = Field(description="Those of them that were searched for.")
    offset: int
    segments: list[Segment]


class TracedFigures(Answer):
    """Figures over time, one value per point; null is absent."""

    n: Line
    ece: Line
    ece_noise_floor: Line
    platt_slope: Line
    platt_slope_se: Line
    ratio: Line


class HistoryAnswer(Answer):
    """What the figures of the whole model were, as far back as this process remembers."""

    sequence: int
    model: str
    window: str
    step_ms: int = Field(description="Each run of event time of this length has one point; 0: every snapshot has one.")
    capacity: int = Field(description="Most points kept; beyond that, they become sparser.")
    at_ms: list[int]
    raw: TracedFigures
    served: TracedFigures
    evidence: Line
    threshold: Line


class MapAttempt(Answer):
    """One entry of the map history."""

    version: int | None = Field(description="Null for what was refused.")
    family: str
    action: Action
    reason: str
    trigger: str = Field(description="schedule, alarm or manual.")
    who: str
    why: str
    at_ms: int
    until_ms: int = Field(description="Last of the attempts that share the entry.")
    attempts: int
    promoted: bool
    in_force: bool
    parent: int | None = None
    fit_from_ms: int | None = None
    fit_to_ms: int | None = None
    n: int | None = None
    positives: int | None = None
    segments: int | None = Field(None, description="Segments with a correction of their own.")
    parameters: dict[str, Any] | None = None
    evidence: dict[str, Any] | None = None
    served: list[float] | None = Field(None, description="Served score at each point of `raw` of the answer.")


class MapsAnswer(Answer):
    """The map history of a model, newest first."""

    sequence: int
    model: str
    champion: Champion | None
    raw: list[float] = Field(description="Raw scores at which the maps are drawn.")
    maps: list[MapAttempt]


class AskedSegments(BaseModel):
    """Which segments are asked for."""

    model: str = Field(min_length=1, max_length=1000, description="Name of the model.")
    window: str | None = Field(None, max_length=100, description="Name of the window; left out, the model's first.")
    score_kind: Literal["raw", "served"] = "served"
    search: str = Field("", max_length=200, description="Part of the name, in either case.")
    cut: str | None = Field(None, max_length=1000, description="Only segments of this cut.")
    sort: Literal["worst", "n", "ece", "ece_z", "slope", "ratio", "evidence"] = "worst"
    limit: int = Field(50, ge=1, le=500)
    offset: int = Field(0, ge=0, le=1_000_000)


class AskedRequest(BaseModel):
    """A request to change the maps of a model."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    what: What
    model: str = Field(min_length=1, max_length=1000)
    version: int | None = Field(None, ge=1, le=2**53, strict=True, description="To promote, or to go back to.")
    family: str | None = Field(None, min_length=1, max_length=50, description="To promote: its newest fit.")
    who: str = Field("api", min_length=1, max_length=100, description="Kept in the map history.")
    why: str = Field("", max_length=500, description="Kept in the map history.")


class RequestAnswer(Answer):
    """A request and what came of it."""

    number: int
    what: What
    model: str
    version: int | None
    family: str | None
    who: str
    why: str
    state: State
    detail: str
