"""Judges one event by itself: takes it, ignores it, or names the first reason against it.

The slow half of the codec, and the definition of what the fast half must agree with. Reasons are tested in
the order of `streamcal.stream.events.REJECTIONS`. An outcome the filter leaves out is not judged beyond
being JSON; an event the sample leaves out is not judged beyond its shape and id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from streamcal.stream import values
from streamcal.stream.events import Record
from streamcal.stream.fields import Scalar
from streamcal.stream.schema import Schema, UnreadableError
from streamcal.stream.times import HIGHEST_MS, LOWEST_MS, TimeRule

__all__ = [
    "LARGEST_READ",
    "ByClass",
    "Ignored",
    "Judge",
    "Limits",
    "Rejected",
    "Taken",
    "Verdict",
    "judge_outcome",
    "judge_prediction",
    "scores_fit",
    "segment_slots",
]

LARGEST_READ: Final = 64 * 2**20
"""A larger value is not even parsed: no broker's default lets a tenth of it through, and parsing holds it twice."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one topic's events, from the configuration."""

    max_future_ms: int
    max_weight: float
    sample_rate: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Taken:
    """The event counts; `fields` are its decoded JSON values by slot."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ignored:
    """The event is none of ours; it still tells the time when `time_ms` is known."""

    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The event is set aside."""

    reason: str


Verdict: TypeAlias = Taken | Ignored | Rejected
Fields: TypeAlias = Mapping[str, Any]
Test: TypeAlias = Callable[[Fields], bool]


class ByClass(Protocol):
    """What is different where models have classes."""

    def unread(self, fields: Fields) -> Collection[str]:
        """Slots that are not looked at in this event, whatever is there."""
        ...

    def shape(self, fields: Fields) -> bool:
        """Whether the model may be named like that and its version can be read."""
        ...

    def content(self, fields: Fields) -> str | None:
        """The reason against scores or label, or None."""
        ...


def segment_slots(count: int) -> tuple[str, ...]:
    """Slot names of the segment dimensions, in their order."""
    return tuple(f"segment{i}" for i in range(count))


class Judge:
    """Applies the tests to single records.

    Parameters
    ----------
    schema : Schema
        Holds the slots ``id`` and, unless the record tells the time, ``time``.
    time : TimeRule or None
        None: the record's own timestamp is the event time.
    shape, content : callable
        Tests of one topic: `shape` says whether version, model and segments are well formed,
        `content` gives the reason against score or label, or None.
    wanted : (slot, value) or None
        Events whose slot has another value are ignored.
    unread : callable
        Slots that are not looked at in an event, whatever is there.
    """

    def __init__(
        self,
        schema: Schema,
        time: TimeRule | None,
        limits: Limits,
        *,
        shape: Test,
        content: Callable[[Fields], str | None],
        wanted: tuple[str, Scalar] | None = None,
        unread: Callable[[Fields], Collection[str]] = lambda _: (),
    ) -> None:
        self._schema = schema
        self._time = time
        self._limits = limits
        self._shape = shape
        self._content = content
        self._wanted = wanted
        self._unread = unread

    def __call__(self, record: Record) -> Verdict:
        """What becomes of one record."""
        value = record.value
        if value is None:
            return Ignored()
        if len(value) > LARGEST_READ:
            return Rejected("too_large")
        try:
            fields = self._schema.read(value, record)
        except UnreadableError:
            return Rejected("malformed")
        return self._weigh(fields, record, len(value))

    def _weigh(self, fields: Fields, record: Record, size: int) -> Verdict:
        time_ms = self.time_ms(fields.get("time"), record)
        early = time_ms is not None and is_future(time_ms, record, self._limits.max_future_ms)
        if self._wanted is not None and not values.same(fields[self._wanted[0]], self._wanted[1]):
            return Ignored(None if early else time_ms)
        # An optional filter may look into anything; every other field must be where its path says.
        broken = {k for k, v in fields.items() if v is values.BROKEN and not k.startswith("filter")}
        if (broken and not broken.issubset(self._unread(fields))) or not self._shape(fields):
            return Rejected("malformed")
        text = values.id_text(fields["id"])
        if text is None:
            return Rejected("missing_id")
        if self._limits.sample_rate < 1.0:
            id_hi, _ = values.hash_ids([text])
            if values.sampled_out(id_hi, self._limits.sample_rate)[0]:
                return Ignored(None if early else time_ms)
        reason = self._content(fields) or self._rest(fields, time_ms, early=early, size=size)
        return Rejected(reason) if reason else Taken(fields)

    def _rest(self, fields: Fields, time_ms: int | None, *, early: bool, size: int) -> str | None:
        if time_ms is None:
            return "bad_time"
        if early:
            return "future"
        if values.weight(fields.get("weight"), self._limits.max_weight) is None:
            return "bad_weight"
        return "too_large" if size > self._limits.max_bytes else None

    def time_ms(self, value: object, record: Record) -> int | None:
        """Event time of a record whose time field holds `value`; None if it has no valid one."""
        if self._time is not None:
            return self._time.one(value)
        stamp = record.timestamp
        return stamp if stamp is not None and LOWEST_MS <= stamp <= HIGHEST_MS else None


def is_future(time_ms: int, record: Record, max_future_ms: int) -> bool:
    """Whether an event time lies further past its record's own timestamp than allowed; never if that is unknown."""
    stamp = record.timestamp
    return stamp is not None and stamp >= 0 and time_ms - stamp > max_future_ms


def scores_fit(fields: Fields) -> bool:
    """Whether the single scores of a prediction are scores."""
    raw = fields.get("raw_score")
    return values.score(fields["score"]) is not None and (raw is None or values.score(raw) is not None)


def judge_prediction(
    schema: Schema, time: TimeRule | None, limits: Limits, dimensions: int, by_class: ByClass | None = None
) -> Judge:
    """The judge of predictions with that many segment dimensions."""
    segments = segment_slots(dimensions)

    def shape(fields: Fields) -> bool:
        return (
            values.version(fields.get("map_version")) is not None
            and values.model_name(fields.get("model")) is not None
            and all(values.segment_text(fields[slot]) is not None for slot in segments)
        )

    def content(fields: Fields) -> str | None:
        return None if scores_fit(fields) else "bad_score"

    return _judge(schema, time, limits, shape, content, None, by_class)


def judge_outcome(
    schema: Schema,
    time: TimeRule | None,
    limits: Limits,
    label: values.LabelRule,
    wanted: tuple[str, Scalar] | None,
    by_class: ByClass | None = None,
) -> Judge:
    """The judge of outcomes."""

    def shape(fields: Fields) -> bool:
        return values.model_name(fields.get("model")) is not None

    def content(fields: Fields) -> str | None:
        return None if label.one(fields["label"]) is not None else "bad_label"

    return _judge(schema, time, limits, shape, content, wanted, by_class)


def _judge(
    schema: Schema,
    time: TimeRule | None,
    limits: Limits,
    shape: Test,
    content: Callable[[Fields], str | None],
    wanted: tuple[str, Scalar] | None,
    by_class: ByClass | None,
) -> Judge:
    if by_class is None:
        return Judge(schema, time, limits, shape=shape, content=content, wanted=wanted)
    classes = by_class  # what the closure below holds is not None
    return Judge(
        schema,
        time,
        limits,
        shape=lambda fields: shape(fields) and classes.shape(fields),
        content=classes.content,
        wanted=wanted,
        unread=classes.unread,
    )
