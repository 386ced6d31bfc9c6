"""What the independent recount works on: the rules, well-formed events, and counted rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Labels = Literal["both", "positives_only"]
Log = tuple[str, int]
Event = tuple[str, int, Mapping[str, Any], int | None]
"""Topic ("p" or "o"), partition, value, the record's own timestamp in ms or None.

A value ``{"advance": ms}`` is no record but a recorded advance: it lifts the log's watermark to at least ms.
"""


@dataclass(frozen=True)
class Rules:
    horizon_ms: int
    skew_ms: int = 0
    out_of_order_ms: int = 0
    labels: Labels = "both"
    pane_ms: int = 60_000
    models: Mapping[str, tuple[Labels, int]] = field(default_factory=dict)
    max_future_ms: int | None = None

    def labels_of(self, model: str) -> Labels:
        return self.models[model][0] if model in self.models else self.labels

    def horizon_of(self, model: str) -> int:
        return self.models[model][1] if model in self.models else self.horizon_ms


@dataclass(frozen=True)
class Prediction:
    id: str
    model: str
    partition: int
    t_p: int
    raw: float | None
    served: float
    weight: float
    segments: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    id: str
    model: str | tuple[str, ...] | None
    """None: any."""
    place: tuple[int, int]
    """Partition and a running number."""
    label: int
    t_o: int
    watermark: float
    """The outcome log's watermark just before this record."""


@dataclass(frozen=True)
class Row:
    id: str
    model: str
    partition: int
    raw: float | None
    served: float
    label: int
    t_p: int
    t_o: int
    """Effective outcome time: the winner's, or the horizon with ``positives_only``."""
    weight: float
    segments: Mapping[str, Any]


def read_prediction(value: Mapping[str, Any], partition: int) -> Prediction:
    score = float(value["score"])
    raw = value.get("raw_score")
    if raw is None and value.get("map_version") is None:
        raw = score
    weight = value.get("weight")
    return Prediction(
        id=str(value["id"]),
        model=value.get("model") or "default",
        partition=partition,
        t_p=value["ts"],
        raw=None if raw is None else float(raw),
        served=score,
        weight=1.0 if weight is None else float(weight),
        segments=value.get("segments") or {},
    )


def read_outcome(value: Mapping[str, Any], place: tuple[int, int], watermark: float, labels: Labels) -> Outcome:
    label = value.get("label")
    if label is None and labels == "positives_only":
        label = 1
    assert label in (0, 1), label
    return Outcome(str(value["id"]), value.get("model"), place, int(label), value["ts"], watermark)


def is_future(t: int, kafka_timestamp: int | None, rules: Rules) -> bool:
    """Whether a record claims a time too far after its own timestamp; without one (files) nothing is checked."""
    if rules.max_future_ms is None or kafka_timestamp is None:
        return False
    return t > kafka_timestamp + rules.max_future_ms
