"""The shape of every answer under ``/api/v1``, for the OpenAPI description.

Names are added to and never changed. A figure that cannot be known is left out; times are milliseconds since the
epoch, UTC, of event time unless said otherwise. Answers are written by `streamcal.serve.view`; a test holds every
one of them to these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from streamcal.serve.metrics import FIGURES

__all__ = ["Answer", "Bin", "Champion", "Fault", "Figures", "ModelAnswer", "Problem", "StatusAnswer"]

Fault = Literal["scores_too_high", "scores_too_low", "over_confident", "under_confident"]


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
    pinned: bool = Field(description="Whether a person has stopped automatic changes of its map.")


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
