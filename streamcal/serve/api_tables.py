"""The shape of the long answers of ``/api/v1``: segments, history, maps, and requests.

The rules of `streamcal.serve.api_models` hold.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamcal.serve.api_models import Answer, Champion, Fault
from streamcal.serve.requests import State, What
from streamcal.serve.verdict import Action

__all__ = [
    "AskedRequest",
    "AskedSegments",
    "HistoryAnswer",
    "MapsAnswer",
    "RequestAnswer",
    "SegmentsAnswer",
]

Line = list[float | None]


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
    map_offset: float | None = Field(
        None, description="Correction of this very segment by the map in force; a finer one of a row goes before."
    )
    map_slope: float | None = None


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


class Correction(Answer):
    """What a map does to one segment: logit of the score served times ``slope`` (1 where left out), plus ``offset``."""

    segment: str
    offset: float
    slope: float | None = None


class Corrections(Answer):
    """What a map adds for single segments, in short."""

    segments: int
    slopes: int = Field(description="Those of them that turn the slope too.")
    offset_low: float
    offset_high: float
    largest: list[Correction] = Field(description="The largest by their offset.")


class FittedMap(Answer):
    """What a map document says of its map."""

    parent: int | None = None
    fit_from_ms: int | None = None
    fit_to_ms: int | None = None
    n: int | None = None
    positives: int | None = None
    segments: int | None = Field(None, description="Segments with a correction of their own.")
    corrections: Corrections | None = Field(None, description="Null where no segment has one.")
    parameters: dict[str, Any] | None = None
    evidence: dict[str, Any] | None = None
    served: list[float] | None = Field(
        None, description="Served score at each point of `raw` of the answer, without corrections."
    )


class MapAttempt(FittedMap):
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


class MapHeld(FittedMap):
    """A map document."""

    version: int
    family: str
    at_ms: int


class FamilyFit(Answer):
    """The newest fit of a family."""

    family: str
    reason: str = Field(description="Why there is none; empty where there is one.")
    parameters: dict[str, Any] | None = None


class MapsAnswer(Answer):
    """The map history of a model, newest first."""

    sequence: int
    model: str
    champion: Champion | None
    pinned: bool = Field(description="Whether nothing changes by itself.")
    current: MapHeld | None = Field(description="The document in force.")
    candidate: MapHeld | None = Field(description="What would be in force, were the loop not in shadow.")
    fits: list[FamilyFit] = Field(description="What a promotion of a family would put in force.")
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
