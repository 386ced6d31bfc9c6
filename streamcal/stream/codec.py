"""Decoders of the two topics: slices of raw records in, columns of valid events out, nothing ever raised.

An event is decoded into a type compiled from the configured paths; what does not fit is judged by itself
(`streamcal.stream.judge`) and counted with its reason. Names are interned for accepted events only, in log
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.stream import values
from streamcal.stream.class_outcomes import OutcomeClasses
from streamcal.stream.class_predictions import PredictionClasses
from streamcal.stream.classes import NO_CLASSES, ClassSets
from streamcal.stream.events import Names, OutcomeBatch, PredictionBatch, Record
from streamcal.stream.fields import EventFilter, ModelFilter, OutcomeFields, PredictionFields, Scalar
from streamcal.stream.formats import ValueFormat
from streamcal.stream.intake import Accepted, Intake, Preselection
from streamcal.stream.interned import ModelColumn, Profiles
from streamcal.stream.judge import Limits, judge_outcome, judge_prediction, segment_slots
from streamcal.stream.schema import Schema
from streamcal.stream.score_columns import clip, raw_scores, versions, weights
from streamcal.stream.slots import comparable, filter_slots, outcome_slots, prediction_slots, preselection_slots
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
    classes : ClassSets
        Models that have scores by class: one row per class is decoded of their events.
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
        classes: ClassSets = NO_CLASSES,
        fast: bool = True,
    ) -> None:
        limits = Limits(max_future_ms, max_weight, sample_rate, max_bytes)
        time = None if fields.time_source == "record" else TimeRule(fields.time_unit)
        self._names = names
        self._models = ModelColumn(names, model_filters, DEFAULT_MODEL)
        self._profiles = Profiles(names)
        self._segments = segment_slots(len(names.dimensions))
        self._classes = PredictionClasses(classes, fields, self._models, names) if classes else None
        slots = prediction_slots(fields, time, names.dimensions, max_weight, classes)
        schema = Schema(slots + self._models.slots, fast=fast)
        judge = judge_prediction(schema, time, limits, len(names.dimensions), self._classes)
        misfit = None if self._classes is None else self._classes.misfit
        self._intake = Intake(schema, judge, time, limits, misfit=misfit, value_format=value_format)

    def decode(self, records: Sequence[Record]) -> PredictionBatch:
        """Decode one slice of one partition, in log order."""
        taken = self._intake.take(records)
        if self._classes is not None:
            return self._by_class(self._classes, taken)
        columns, count = taken.columns, len(taken.row)
        served, clipped = clip(np.array(columns["score"], dtype=np.float64))
        version = versions(columns.get("map_version"), count)
        raw, clipped_raw = raw_scores(columns.get("raw_score"), served, version)
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
            weight=weights(columns.get("weight")),
            clock_row=taken.clock_row,
            clock_ms=taken.clock_ms,
            rejected=taken.rejected,
            ignored=taken.ignored,
            clipped=clipped + clipped_raw,
        )

    def _by_class(self, classes: PredictionClasses, taken: Accepted) -> PredictionBatch:
        """Rows by class, in the order of the log and of the classes."""
        found = classes.rows(taken.columns)
        rows, owner = found.rows, found.rows.owner
        weight = weights(taken.columns.get("weight"))
        return PredictionBatch(
            row=taken.row[owner],
            id_hi=taken.id_hi[owner] ^ rows.salt_hi,
            id_lo=taken.id_lo[owner] ^ rows.salt_lo,
            time_ms=taken.time_ms[owner],
            raw=found.raw,
            served=found.served,
            map_version=found.version,
            model=rows.model,
            profile=self._profile_column(taken.columns, len(taken.row))[owner],
            weight=None if weight is None else weight[owner],
            clock_row=taken.clock_row,
            clock_ms=taken.clock_ms,
            rejected=taken.rejected,
            ignored=taken.ignored,
            clipped=found.clipped,
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
        classes: ClassSets = NO_CLASSES,
        fast: bool = True,
    ) -> None:
        limits = Limits(max_future_ms, max_weight, sample_rate, max_bytes)
        time = None if fields.time_source == "record" else TimeRule(fields.time_unit)
        self._models = ModelColumn(names, model_filters, None)
        self._label = values.LabelRule(
            fields.positive_values, fields.negative_values, absent_is_positive=default_label_positive
        )
        self._classes = OutcomeClasses(classes, self._label, self._models, names) if classes else None
        pick = fields.filter
        slots = [*outcome_slots(fields, time), *self._models.slots, *filter_slots(pick)]
        schema = Schema(slots, fast=fast)
        wanted = None if pick is None else ("filter", comparable(pick.path, pick.equals))
        self._intake = Intake(
            schema,
            judge_outcome(schema, time, limits, self._label, wanted, self._classes),
            time,
            limits,
            misfit=self._misfit if self._classes is None else self._classes.misfit,
            preselection=_preselection(fields, time, wanted),
            value_format=value_format,
        )

    def decode(self, records: Sequence[Record]) -> OutcomeBatch:
        """Decode one slice of one partition, in log order."""
        taken = self._intake.take(records)
        if self._classes is not None:
            return self._by_class(self._classes, taken)
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

    def _misfit(self, columns: Mapping[str, Sequence[Any]]) -> NDArray[np.bool_]:
        return self._label.many(columns["label"]) < 0

    def _by_class(self, classes: OutcomeClasses, taken: Accepted) -> OutcomeBatch:
        """Rows by class, in the order of the log and of the classes."""
        rows = classes.rows(taken.columns)
        return OutcomeBatch(
            row=taken.row[rows.owner],
            id_hi=taken.id_hi[rows.owner] ^ rows.salt_hi,
            id_lo=taken.id_lo[rows.owner] ^ rows.salt_lo,
            time_ms=taken.time_ms[rows.owner],
            label=rows.label,
            model=rows.model,
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
