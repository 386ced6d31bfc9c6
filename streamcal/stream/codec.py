"""Decoders of the two topics: slices of raw records in, columns of valid events out, nothing ever raised.

An event is decoded into a type compiled from the configured paths; what does not fit is judged by itself
(`streamcal.stream.judge`) and counted with its reason. Names are interned for accepted events only, in log
order.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stream import values
from streamcal.stream.events import NO_MODEL, NO_VERSION, Names, OutcomeBatch, PredictionBatch, Record
from streamcal.stream.fields import EventFilter, ModelFilter, OutcomeFields, PredictionFields, Scalar
from streamcal.stream.formats import ValueFormat
from streamcal.stream.intake import Intake, Preselection
from streamcal.stream.judge import Limits, judge_outcome, judge_prediction, segment_slots
from streamcal.stream.schema import Schema
from streamcal.stream.slots import (
    any_slot,
    comparable,
    filter_slots,
    outcome_slots,
    prediction_slots,
    preselection_slots,
)
from streamcal.stream.times import TimeRule

__all__ = [
    "DEFAULT_MODEL",
    "EventFilter",
    "ModelFilter",
    "OutcomeDecoder",
    "OutcomeFields",
    "PredictionDecoder",
    "PredictionFields",
]

DEFAULT_MODEL: Final = "default"
"""The name of the model a prediction belongs to when nothing names one."""

_MOST_CACHED: Final = 65_536
"""Raw profiles remembered at once (about 20 MB): far above any dashboard, far below a stream of user ids."""


class _Profiles(dict[tuple[Any, ...], int]):
    """Raw segment values to profile index, normalised once per distinct tuple.

    Invariant: keys hold only strings and None. Tuples with numbers are kept apart by type, because
    1, 1.0 and True are one dictionary key and three different values.
    """

    def __init__(self, names: Names) -> None:
        super().__init__()
        self._names = names
        self._typed = functools.lru_cache(maxsize=_MOST_CACHED, typed=True)(self._index)

    def __missing__(self, raw: tuple[Any, ...]) -> int:
        if not all(value is None or isinstance(value, str) for value in raw):
            return self._typed(*raw)
        if len(self) >= _MOST_CACHED:
            self.clear()
        index = self[raw] = self._index(*raw)
        return index

    def _index(self, *raw: Any) -> int:
        # Every accepted value has a text; the empty string is for the type checker only.
        return self._names.profile(tuple(values.segment_text(value) or "" for value in raw))


class _Models(dict[Any, int]):
    """Model as the event gives it to index; absent and empty are `fallback` (None: `NO_MODEL`)."""

    def __init__(self, names: Names, fallback: str | None) -> None:
        super().__init__()
        self._names = names
        self._fallback = fallback

    def __missing__(self, raw: str | int | None) -> int:
        name = values.model_name(raw) or self._fallback
        index = NO_MODEL if name is None else self._names.model(name)
        if len(self) >= _MOST_CACHED:
            self.clear()
        self[raw] = index
        return index


class _ModelColumn:
    """Model indices of accepted events, with the filters that name a model for those that name none."""

    def __init__(self, names: Names, filters: Sequence[ModelFilter], fallback: str | None) -> None:
        self._index = _Models(names, fallback)
        self._filters = [(f"filter{i}", f.model, comparable(f.path, f.equals)) for i, f in enumerate(filters)]
        self.slots = [any_slot(f"filter{i}", f.path) for i, f in enumerate(filters)]

    def of(self, columns: Mapping[str, Sequence[Any]], count: int) -> NDArray[np.int32]:
        raw: Sequence[Any] = columns.get("model") or [None] * count
        if self._filters:
            raw = [m if m not in (None, "") else self._by_filter(columns, i) for i, m in enumerate(raw)]
        elif count and raw.count(None) == count:
            return np.full(count, self._index[None], dtype=np.int32)
        return np.fromiter(map(self._index.__getitem__, raw), np.int32, count)

    def _by_filter(self, columns: Mapping[str, Sequence[Any]], index: int) -> str | None:
        for slot, model, equals in self._filters:
            if values.same(columns[slot][index], equals):
                return model
        return None


class PredictionDecoder:
    """Decodes slices of the predictions topic.

    Parameters
    ----------
    fields : PredictionFields
    names : Names
        Interns models and segment profiles; its `dimensions` are the ones read.
    max_future_ms : int
        Most milliseconds an event time may lie after its record's timestamp.
    max_weight : float
    sample_rate : float
        Share of ids kept, chosen by the id's hash; 1 keeps all.
    max_bytes : int
        Longest record value.
    model_filters : sequence of ModelFilter
        The first that fits names the model of an event that names none.
    value_format : ValueFormat or None
        Turns values into JSON; None: they are JSON.
    fast : bool
        False judges each event by itself: same batches, about ten times slower.

    Raises
    ------
    ValueError
        A path cannot be read, or a dimension has none.
    """

    def __init__(  # noqa: PLR0913 - one keyword per configuration key
        self,
        fields: PredictionFields,
        names: Names,
        *,
        max_future_ms: int,
        max_weight: float,
        sample_rate: float,
        max_bytes: int,
        model_filters: Sequence[ModelFilter] = (),
        value_format: ValueFormat | None = None,
        fast: bool = True,
    ) -> None:
        limits = Limits(max_future_ms, max_weight, sample_rate, max_bytes)
        time = None if fields.time_source == "record" else TimeRule(fields.time_unit)
        self._names = names
        self._models = _ModelColumn(names, model_filters, DEFAULT_MODEL)
        self._profiles = _Profiles(names)
        self._segments = segment_slots(len(names.dimensions))
        schema = Schema(prediction_slots(fields, time, names.dimensions, max_weight) + self._models.slots, fast=fast)
        judge = judge_prediction(schema, time, limits, len(names.dimensions))
        self._intake = Intake(schema, judge, time, limits, value_format=value_format)

    def decode(self, records: Sequence[Record]) -> PredictionBatch:
        """Decode one slice of one partition, in log order."""
        taken = self._intake.take(records)
        columns, count = taken.columns, len(taken.row)
        served, clipped = _clip(np.array(columns["score"], dtype=np.float64))
        version = _versions(columns.get("map_version"), count)
        raw, clipped_raw = _raw(columns.get("raw_score"), served, version)
        return PredictionBatch(
            row=taken.row,
            id_hi=taken.id_hi,
            id_lo=taken.id_lo,
            time_ms=taken.time_ms,
            raw=raw,
            served=served,
            map_version=version,
            model=self._models.of(columns, count),
            profile=self._profile_column(columns, count),
            weight=_weights(columns.get("weight")),
            clock_row=taken.clock_row,
            clock_ms=taken.clock_ms,
            rejected=taken.rejected,
            ignored=taken.ignored,
            clipped=clipped + clipped_raw,
        )

    def _profile_column(self, columns: Mapping[str, Sequence[Any]], count: int) -> NDArray[np.int32]:
        if not self._segments:
            return np.full(count, self._names.profile(()) if count else 0, dtype=np.int32)
        raw = zip(*(columns[slot] for slot in self._segments), strict=True)
        return np.fromiter(map(self._profiles.__getitem__, raw), np.int32, count)


class OutcomeDecoder:
    """Decodes slices of the outcomes topic; parameters as `PredictionDecoder`.

    Parameters
    ----------
    default_label_positive : bool
        An absent label means 1 (``labels: positives_only``).
    """

    def __init__(  # noqa: PLR0913 - one keyword per configuration key
        self,
        fields: OutcomeFields,
        names: Names,
        *,
        max_future_ms: int,
        max_weight: float,
        sample_rate: float,
        max_bytes: int,
        model_filters: Sequence[ModelFilter] = (),
        default_label_positive: bool = False,
        value_format: ValueFormat | None = None,
        fast: bool = True,
    ) -> None:
        limits = Limits(max_future_ms, max_weight, sample_rate, max_bytes)
        time = None if fields.time_source == "record" else TimeRule(fields.time_unit)
        self._models = _ModelColumn(names, model_filters, None)
        self._label = values.LabelRule(
            fields.positive_values, fields.negative_values, absent_is_positive=default_label_positive
        )
        pick = fields.filter
        slots = [*outcome_slots(fields, time), *self._models.slots, *filter_slots(pick)]
        schema = Schema(slots, fast=fast)
        wanted = None if pick is None else ("filter", comparable(pick.path, pick.equals))
        self._intake = Intake(
            schema,
            judge_outcome(schema, time, limits, self._label, wanted),
            time,
            limits,
            misfit=lambda columns: self._label.many(columns["label"]) < 0,
            preselection=_preselection(fields, time, wanted),
            value_format=value_format,
        )

    def decode(self, records: Sequence[Record]) -> OutcomeBatch:
        """Decode one slice of one partition, in log order."""
        taken = self._intake.take(records)
        return OutcomeBatch(
            row=taken.row,
            id_hi=taken.id_hi,
            id_lo=taken.id_lo,
            time_ms=taken.time_ms,
            label=self._label.many(taken.columns["label"]),
            model=self._models.of(taken.columns, len(taken.row)),
            clock_row=taken.clock_row,
            clock_ms=taken.clock_ms,
            rejected=taken.rejected,
            ignored=taken.ignored,
        )


def _preselection(
    fields: OutcomeFields, time: TimeRule | None, wanted: tuple[str, Scalar] | None
) -> Preselection | None:
    if fields.filter is None or wanted is None:
        return None
    return Preselection(Schema(preselection_slots(fields.filter, fields.time, time)), *wanted)


def _clip(scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Scores in [0, 1] and how many were not; NaN stays."""
    outside = int(((scores < 0.0) | (scores > 1.0)).sum())
    return (np.clip(scores, 0.0, 1.0) if outside else scores), outside


def _versions(column: Sequence[Any] | None, count: int) -> NDArray[np.int64]:
    if column is None or column.count(None) == count:
        return np.full(count, NO_VERSION, dtype=np.int64)
    return np.array([NO_VERSION if v is None else v for v in column], dtype=np.int64)


def _raw(
    column: Sequence[Any] | None, served: NDArray[np.float64], version: NDArray[np.int64]
) -> tuple[NDArray[np.float64], int]:
    """Raw scores and how many were clipped: as given, else the served one, else (under a map) unknown."""
    own = np.where(version == NO_VERSION, served, np.nan)
    if column is None or column.count(None) == len(column):
        return own, 0
    given = np.array(column, dtype=np.float64)  # None becomes NaN
    raw, clipped = _clip(given)
    return np.where(np.isnan(given), own, raw), clipped


def _weights(column: Sequence[Any] | None) -> NDArray[np.float64] | None:
    if column is None or column.count(None) == len(column):
        return None
    weights = np.array(column, dtype=np.float64)
    weights[np.isnan(weights)] = 1.0
    return None if (weights == 1.0).all() else weights
