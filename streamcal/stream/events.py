"""What the codec hands to the join: columns of decoded events, and the words for what was not taken.

An event lives as one row of these columns, never as a Python object. Rows keep the order of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MISSING",
    "NO_MODEL",
    "NO_VERSION",
    "OTHER",
    "REJECTIONS",
    "TOPICS",
    "Names",
    "OutcomeBatch",
    "PredictionBatch",
    "Record",
    "Rejected",
    "RejectedRecord",
    "Rejection",
]

TOPICS: Final = ("predictions", "outcomes")

REJECTIONS: Final = (
    "malformed",
    "missing_id",
    "bad_score",
    "bad_label",
    "bad_time",
    "future",
    "bad_weight",
    "too_large",
)
"""Reasons an event is set aside, in the order they are tested."""

MISSING: Final = "__missing__"
OTHER: Final = "__other__"
NO_MODEL: Final = -1
"""In an outcome: it names no model and so serves every model that scored the id."""
NO_VERSION: Final = -1
"""In a prediction: it carries no map version."""


class Record(Protocol):
    """One log record; kafka-python's ``ConsumerRecord`` fits as it is."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...
    @property
    def timestamp(self) -> int | None:
        """Milliseconds since the epoch; None (or negative) where the log has none, as files do."""
        ...

    @property
    def offset(self) -> int: ...


MAX_MODELS: Final = 1000
MODEL_CHARACTERS: Final = 200
"""A name stands on every line of the metrics and in addresses of the API."""
MAX_PROFILES: Final = 200_000
"""A profile costs about 300 bytes; 200,000 of them 60 MB."""


class Names:
    """Interns model names and segment profiles; indices are dense, stable and never reused.

    A *profile* is the tuple of one event's values over all configured dimensions (`dimensions` order),
    already normalised. Guarantees ``index of name`` and ``name of index`` are inverse. Names beyond
    `MAX_MODELS` or longer than `MODEL_CHARACTERS`, and profiles beyond `MAX_PROFILES`, share ``__other__``, so that
    hostile or runaway values cannot fill the memory.
    """

    __slots__ = ("_models", "_profiles", "dimensions", "models", "profiles")
    STATE = ("models", "profiles")

    def __init__(self, dimensions: Sequence[str]) -> None:
        self.dimensions: tuple[str, ...] = tuple(dimensions)
        self.models: list[str] = []
        self.profiles: list[tuple[str, ...]] = []
        self._models: dict[str, int] = {}
        self._profiles: dict[tuple[str, ...], int] = {}

    def state_loaded(self) -> None:
        """Find what was loaded by name again."""
        self._models = {name: index for index, name in enumerate(self.models)}
        self._profiles = {values: index for index, values in enumerate(self.profiles)}

    def model(self, name: str) -> int:
        """Index of `name`, allotted on first sight."""
        index = self._models.get(name)
        if index is None:
            if (len(self.models) >= MAX_MODELS or len(name) > MODEL_CHARACTERS) and name != OTHER:
                return self.model(OTHER)
            index = self._models[name] = len(self.models)
            self.models.append(name)
        return index

    def profile(self, values: tuple[str, ...]) -> int:
        """Index of the profile `values` (one per dimension), allotted on first sight."""
        index = self._profiles.get(values)
        if index is None:
            others = tuple(OTHER for _ in values)
            if len(self.profiles) >= MAX_PROFILES and values != others:
                return self.profile(others)
            index = self._profiles[values] = len(self.profiles)
            self.profiles.append(values)
        return index


@dataclass(frozen=True, slots=True)
class Rejection:
    """One event set aside: its place in the decoded slice and the reason."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """Where in the logs an event that was set aside is, and why it was."""

    topic: str
    partition: int
    offset: int
    reason: str


class RejectedRecord(NamedTuple):
    """A record that was set aside, as it came."""

    topic: str
    partition: int
    record: Record
    reason: str


@dataclass(frozen=True, slots=True)
class PredictionBatch:
    """Predictions decoded from one slice of one partition.

    All columns have one entry per *accepted* event, in log order; `row` is its index in the slice.

    Attributes
    ----------
    row : int64
    id_hi, id_lo : uint64
        128-bit hash of the id.
    time_ms : int64
    raw : float64
        Score from the model in [0, 1]; NaN where only a served score is known.
    served : float64
        Score after the map, in [0, 1]; equal to `raw` where no map was applied.
    map_version : int64
        `NO_VERSION` where absent.
    model, profile : int32
        Indices into `Names`.
    weight : float64 or None
        None when every weight is 1.
    clock_row, clock_ms : int64
        Every event that moves the watermark (accepted or ignored), in log order.
    rejected : sequence of Rejection
    ignored : int
        Tombstones and filtered events.
    clipped : int
        Scores out of [0, 1] by at most 1e-6, moved to the border.
    """

    row: NDArray[np.int64]
    id_hi: NDArray[np.uint64]
    id_lo: NDArray[np.uint64]
    time_ms: NDArray[np.int64]
    raw: NDArray[np.float64]
    served: NDArray[np.float64]
    map_version: NDArray[np.int64]
    model: NDArray[np.int32]
    profile: NDArray[np.int32]
    weight: NDArray[np.float64] | None
    clock_row: NDArray[np.int64]
    clock_ms: NDArray[np.int64]
    rejected: Sequence[Rejection]
    ignored: int
    clipped: int

    def with_served(self, served: NDArray[np.float64], map_version: NDArray[np.int64]) -> PredictionBatch:
        """The same predictions with other served scores, of these map versions; shape (n,) each."""
        return replace(self, served=served, map_version=map_version)

    def span(self, start: int, stop: int) -> PredictionBatch:
        """The accepted rows start <= i < stop, without the clock and the counts."""
        part = slice(start, stop)
        return PredictionBatch(
            row=self.row[part],
            id_hi=self.id_hi[part],
            id_lo=self.id_lo[part],
            time_ms=self.time_ms[part],
            raw=self.raw[part],
            served=self.served[part],
            map_version=self.map_version[part],
            model=self.model[part],
            profile=self.profile[part],
            weight=None if self.weight is None else self.weight[part],
            clock_row=self.clock_row[:0],
            clock_ms=self.clock_ms[:0],
            rejected=(),
            ignored=0,
            clipped=0,
        )


@dataclass(frozen=True, slots=True)
class OutcomeBatch:
    """Outcomes decoded from one slice of one partition; see `PredictionBatch`.

    Attributes
    ----------
    label : int8
        0 or 1.
    model : int32
        Index into `Names`, or `NO_MODEL`.
    """

    row: NDArray[np.int64]
    id_hi: NDArray[np.uint64]
    id_lo: NDArray[np.uint64]
    time_ms: NDArray[np.int64]
    label: NDArray[np.int8]
    model: NDArray[np.int32]
    clock_row: NDArray[np.int64]
    clock_ms: NDArray[np.int64]
    rejected: Sequence[Rejection]
    ignored: int

    def span(self, start: int, stop: int) -> OutcomeBatch:
        """The accepted rows start <= i < stop, without the clock and the counts."""
        part = slice(start, stop)
        return OutcomeBatch(
            row=self.row[part],
            id_hi=self.id_hi[part],
            id_lo=self.id_lo[part],
            time_ms=self.time_ms[part],
            label=self.label[part],
            model=self.model[part],
            clock_row=self.clock_row[:0],
            clock_ms=self.clock_ms[:0],
            rejected=(),
            ignored=0,
        )
