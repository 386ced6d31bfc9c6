"""What stands at the fields of the configuration: one line per field, and what to change where events are rejected."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from streamcal.inspect.columns import Column, Table
from streamcal.inspect.config_text import flow
from streamcal.inspect.findings import Finding, counted, listed, percent, problem, warning
from streamcal.inspect.guess_ids import guess_ids
from streamcal.inspect.guess_labels import guess_label
from streamcal.inspect.guess_scores import guess_score, near_scores
from streamcal.inspect.guess_times import guess_time
from streamcal.inspect.sample import Sample
from streamcal.inspect.time_forms import UNIT_NAMES, near_miss, time_unit, times_ms
from streamcal.inspect.topics import about
from streamcal.runtime.config import Config

__all__ = ["Looked", "field_rows", "read_paths", "rejection_findings"]

_SHOWN: Final = 40
_MUCH: Final = 0.01
"""Share of rejected events from which figures are in doubt rather than a few events lost."""


@dataclass(frozen=True, slots=True)
class Looked:
    """One topic's sample as it was read.

    Attributes
    ----------
    role : {"prediction", "outcome"}
        Section of `events`.
    paths : mapping
        Key of the section to path, for the fields that are read.
    rejected : Counter
        By reason.
    accepted, ignored : int
    """

    role: str
    sample: Sample
    table: Table
    config: Config
    paths: Mapping[str, str]
    rejected: Counter[str]
    accepted: int
    ignored: int

    def column(self, name: str) -> Column | None:
        """The column of a field, None if nothing is at its path."""
        return self.table.columns.get(self.paths.get(name, ""))

    @property
    def topic(self) -> str:
        """What its events are called."""
        return f"{self.role}s"

    @property
    def unit(self) -> str:
        """The time unit that is configured."""
        section = getattr(self.config.events, self.role)
        return str(section.time_unit)


def field_rows(looked: Looked) -> Iterator[tuple[str, str]]:
    """One line per field that is read."""
    for name, path in looked.paths.items():
        column = looked.column(name)
        if column is None or not column.present:
            yield name, f"{path}: nothing there"
            continue
        kinds = ", ".join(f"{kind} {percent(count, len(column.present))}" for kind, count in column.kinds.most_common())
        kinds = kinds if len(column.kinds) > 1 else next(iter(column.kinds))
        yield name, f"{path}: in {percent(len(column.present), len(column.values))}, {kinds}{_content(column)}"


def _content(column: Column) -> str:
    unit = time_unit(column)
    if unit is not None:
        times = [time for time in times_ms(column, unit) if time is not None]
        first, last = _utc(min(times)), _utc(max(times))
        return f", times in {UNIT_NAMES[unit]} from {first} to {last}"
    numbers = [v for v in column.present if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(column.present) and column.distinct > 2:
        return f", {min(numbers):g} to {max(numbers):g}, {column.distinct:,} different"
    if column.distinct > 10:
        lengths = sorted({len(str(value)) for value in column.common})
        span = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        return f", {column.distinct:,} different of {span} characters"  # ids are personal data
    return f", {listed([_short(value) for value in column.common])}" if column.distinct else ""


def _utc(ms: int) -> str:

    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms):%Y-%m-%dT%H:%M:%SZ}"


def _short(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def rejection_findings(looked: Looked, other: Looked) -> Iterator[Finding]:
    """Why events of a topic are rejected, and which line of the configuration to change."""
    records = len(looked.sample.records)
    if looked.ignored and looked.ignored + looked.table.tombstones >= records:
        yield from _all_ignored(looked)
    for reason, count in looked.rejected.most_common():
        explain = _EXPLAIN.get(reason)
        what = f"{percent(count, records)} of the {looked.topic} sampled are rejected as {reason}"
        details, change = ("", "look at the events") if explain is None else explain(looked, other)
        finding = problem if count > _MUCH * records else warning
        yield finding(f"{what}{': ' if details else ''}{details}", change)


def _all_ignored(looked: Looked) -> Iterator[Finding]:
    pick = looked.config.events.outcome.filter
    column = looked.table.columns.get(pick.path) if pick is not None else None
    held = "nothing is there" if column is None else f"there is {listed([_short(v) for v in column.common])}"
    path = "" if pick is None else pick.path
    yield problem(f"the filter picks none of the {looked.topic}: at {path}, {held}", "change events.outcome.filter")


def _key(looked: Looked, name: str) -> str:
    return f"events.{looked.role}.{name}"


def _absent(looked: Looked, name: str) -> str:
    """What to say of a path at which nothing is: paths like it."""
    path = looked.paths.get(name, "")
    near = difflib.get_close_matches(path, list(looked.table.columns), n=3, cutoff=0.5)
    paths = listed(near or list(looked.table.columns), 8)
    return f"nothing is at {path}; there is {paths or 'no field at all'}"


def _malformed(looked: Looked, _: Looked) -> tuple[str, str]:
    values = [record.value for record in looked.sample.records if record.value]
    wire = sum(value[0] == 0 for value in values)
    if 2 * wire > len(values) and getattr(looked.config.events, f"{looked.role}_format") == "json":
        change = f"set {_key(looked, 'format')}: avro or protobuf (or events.format) and events.schema_registry.url"
        return "they begin with a zero byte and a schema id, the wire format of a schema registry", change
    if looked.table.unreadable:
        return f"{counted(looked.table.unreadable, 'value')} cannot be decoded to an object", "mend the producer"
    odd = [
        f"{path} holds {listed(list(column.kinds))}"
        for name, path in looked.paths.items()
        if (column := looked.column(name)) is not None and {"list", "object"} & set(column.kinds)
    ]
    return f"a field is of another type than it must be{': ' if odd else ''}{listed(odd)}", (
        f"check the paths of events.{looked.role}; set one that is not needed to null"
    )


def _missing_id(looked: Looked, other: Looked) -> tuple[str, str]:
    mine, theirs = (looked.table, other.table) if looked.role == "prediction" else (other.table, looked.table)
    fixed = {other.role: other.paths["id"]} if other.column("id") is not None else {}
    ids = guess_ids(mine, theirs, **fixed)
    column = looked.column("id")
    seen = _absent(looked, "id") if column is None else f"at {column.path} there is {listed(list(column.kinds))}"
    path = None if ids is None else getattr(ids, looked.role)
    if path is None or path == looked.paths["id"]:
        return seen, f"set {_key(looked, 'id')} to the path of the id, or $key"
    return seen, f"set {_key(looked, 'id')}: {flow(path)} (its values recur in the other topic)"


def _bad_time(looked: Looked, _: Looked) -> tuple[str, str]:
    column = looked.column("time")
    if column is None:
        guess = guess_time(looked.table, looked.sample.records)
        where = "time_source: record" if guess.path is None else f"time: {flow(guess.path)} and time_unit: {guess.unit}"
        return _absent(looked, "time"), f"set {_key(looked, where)}"
    unit = time_unit(column)
    if unit is not None and unit != looked.unit:
        details = f"{column.path} holds {UNIT_NAMES[unit]}, like {column.present[-1]!r}, and is read as {looked.unit}"
        return details, f"set {_key(looked, 'time_unit')}: {unit}"
    reason = near_miss(column) or "they are no times from 2000 to 2100"
    shown = _short(column.present[-1]) if column.present else "nothing"
    return f"{column.path} holds {shown}; {reason}", f"mend the producer, or set {_key(looked, 'time_source')}: record"


def _future(looked: Looked, _: Looked) -> tuple[str, str]:
    stamps = [r.timestamp for r in looked.sample.records if r.timestamp is not None and r.timestamp >= 0]
    column = looked.column("time")
    times = [] if column is None else [t for t in times_ms(column, looked.unit) if t is not None]  # type: ignore[arg-type]
    ahead = (
        f" (the latest event is {about(max(times) - max(stamps))} past the latest record)" if times and stamps else ""
    )
    return f"their time is more than join.max_future after the record's own timestamp{ahead}", (
        "check the clock and the time zone of the producer, or raise join.max_future"
    )


def _bad_score(looked: Looked, _: Looked) -> tuple[str, str]:
    if looked.config.class_sets:
        where = looked.config.events.prediction.scores
        return (
            f"below {where} a model with classes needs a score in [0, 1] of each, not all 0",
            "the producer must write all classes, or mend events.classes and models.<name>.classes",
        )
    guess = guess_score(looked.table)
    for name in ("score", "raw_score"):
        column = looked.column(name)
        if column is None:
            continue
        for path, reason in near_scores(looked.table):
            if path == column.path:
                return f"{path} holds {reason.partition(';')[0]}", "the producer must write numbers in [0, 1]"
    change = f"set {_key(looked, 'score')}: {flow(guess[0])} ({guess[1]})" if guess else "name the score's path"
    column = looked.column("score")
    if column is None:
        return _absent(looked, "score"), change
    seen = listed([_short(value) for value in column.common]) or listed(list(column.kinds))
    return f"{column.path} holds values like {seen}", f"{change}, or mend the producer"


def _bad_label(looked: Looked, _: Looked) -> tuple[str, str]:
    column = looked.column("label")
    if looked.config.class_sets and column is not None:
        seen = f"{column.path} holds {listed([_short(value) for value in column.common])}"
        return seen, "name each class as the outcomes do in events.classes or models.<name>.classes"
    guess = guess_label(looked.table, [None] * len(looked.table), (looked.paths["id"], looked.paths.get("time", "")))
    if column is None:
        if guess.path is not None:
            return _absent(looked, "label"), f"set {_key(looked, 'label')}: {flow(guess.path)} ({guess.reason})"
        return _absent(
            looked, "label"
        ), "where there is no label because only positives come, set join.labels: positives_only"
    seen = f"{column.path} holds {listed([_short(value) for value in column.common])}"
    own = guess_label(looked.table, [None] * len(looked.table), (), column.path)
    if own.positive_values is not None:
        yes, no = flow(own.positive_values), flow(own.negative_values or [])
        return seen, f"set {_key(looked, 'positive_values')}: {yes} and {_key(looked, 'negative_values')}: {no}"
    return seen, f"say which mean yes and no with {_key(looked, 'positive_values')} and negative_values"


def _bad_weight(looked: Looked, _: Looked) -> tuple[str, str]:
    column = looked.column("weight")
    seen = "" if column is None else f"{column.path} holds values like {listed([_short(v) for v in column.common])}"
    return seen, f"set {_key(looked, 'weight')}: null if that is no weight, or raise events.max_weight"


def _too_large(looked: Looked, _: Looked) -> tuple[str, str]:
    longest = max((len(record.value) for record in looked.sample.records if record.value is not None), default=0)
    return f"the longest has {longest:,} bytes", "raise events.max_bytes"


_EXPLAIN: Final[Mapping[str, Callable[[Looked, Looked], tuple[str, str]]]] = {
    "malformed": _malformed,
    "missing_id": _missing_id,
    "bad_score": _bad_score,
    "bad_label": _bad_label,
    "bad_time": _bad_time,
    "future": _future,
    "bad_weight": _bad_weight,
    "too_large": _too_large,
}


def read_paths(config: Config, role: str) -> dict[str, str]:
    """Key to path of the fields that are read of a topic, segments by dimension."""
    section = getattr(config.events, role)
    names: Sequence[str] = (
        ("id", "time", "score", "raw_score", "map_version", "model", "weight")
        if role == "prediction"
        else ("id", "time", "label", "model")
    )
    sets = config.class_sets
    if not sets.single_scores:
        names = [name for name in names if name not in ("score", "raw_score")]
    paths = {name: getattr(section, name) for name in names if getattr(section, name) is not None}
    if role == "prediction":
        paths |= {f"score of {name}": f"{section.scores}.{name}" for name in sets.names}
    if section.time_source == "record":
        del paths["time"]
    if role == "prediction":
        segments = section.segments
        for name in config.dimensions:
            paths[f"segment {name}"] = f"{segments}.{name}" if isinstance(segments, str) else segments[name]
    elif section.filter is not None:
        paths["filter"] = section.filter.path
    return paths
