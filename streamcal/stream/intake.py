"""From a slice of records to columns of decoded values, whatever the topic.

Theory of operation. The slice is decoded value by value into the strict type of the schema; a record that
does not fit is judged by itself, and one that turns out valid (an id of fifty digits, a key given twice)
joins the columns at its place in the log. Tests that need more than one value (future, sample, label
lookup) run on whole columns; a row that fails one goes to the judge as well, which names the reason. So
there is one authority on reasons, and the columns only have to know that a row is fine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.events import Record, Rejection
from streamcal.stream.fields import Scalar
from streamcal.stream.formats import ValueFormat, converted
from streamcal.stream.judge import Ignored, Judge, Limits, Rejected, Taken, is_future
from streamcal.stream.schema import UNREADABLE, Schema
from streamcal.stream.times import HIGHEST_MS, LOWEST_MS, TimeRule
from streamcal.stream.values import hash_ids, same, sampled_out

__all__ = ["Accepted", "Intake", "Preselection"]

Columns: TypeAlias = dict[str, Sequence[Any]]
Misfit: TypeAlias = Callable[[Mapping[str, Sequence[Any]]], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Preselection:
    """The filter of a mixed topic: decodes only what it needs, before anything else is looked at."""

    schema: Schema
    slot: str
    equals: Scalar


@dataclass(frozen=True, slots=True)
class Accepted:
    """Accepted events of a slice, in log order, and the account of the others.

    Attributes
    ----------
    columns : dict
        Decoded JSON values by slot, still unconverted.
    row, time_ms, clock_row, clock_ms : int64
    id_hi, id_lo : uint64
    """

    row: NDArray[np.int64]
    columns: Columns
    id_hi: NDArray[np.uint64]
    id_lo: NDArray[np.uint64]
    time_ms: NDArray[np.int64]
    clock_row: NDArray[np.int64]
    clock_ms: NDArray[np.int64]
    rejected: Sequence[Rejection]
    ignored: int


@dataclass(slots=True)
class _Account:
    """What became of the events of one slice that are not accepted."""

    rejected: list[Rejection] = field(default_factory=list)
    ignored: int = 0
    clock: list[tuple[int, int]] = field(default_factory=list)

    def ignore(self, row: int, time_ms: int | None) -> None:
        self.ignored += 1
        if time_ms is not None:
            self.clock.append((row, time_ms))


class Intake:
    """Decodes slices of one topic.

    Parameters
    ----------
    schema : Schema
    judge : Judge
        The authority on single events.
    time : TimeRule or None
        None: the record's timestamp is the event time.
    misfit : callable, optional
        Marks rows of the columns that the strict type admits and the topic does not.
    preselection : Preselection or None
    value_format : ValueFormat or None
        Turns values into JSON; None: they are JSON.
    """

    def __init__(
        self,
        schema: Schema,
        judge: Judge,
        time: TimeRule | None,
        limits: Limits,
        *,
        misfit: Misfit | None = None,
        preselection: Preselection | None = None,
        value_format: ValueFormat | None = None,
    ) -> None:
        self._schema = schema
        self._judge = judge
        self._time = time
        self._limits = limits
        self._misfit = misfit
        self._preselection = preselection
        self._format = value_format

    def take(self, records: Sequence[Record]) -> Accepted:
        """Decode one slice."""
        if self._format is not None:
            records = converted(records, self._format, self._limits.max_bytes)
        account = _Account()
        rows, columns = self._columns(records, account)
        row = np.array(rows, dtype=np.int64)
        time_ms, stamps = self._times(columns, records, rows)
        id_hi, id_lo = hash_ids(columns["id"])
        timely = (time_ms >= LOWEST_MS) & (time_ms <= HIGHEST_MS)
        timely &= (stamps < 0) | (time_ms - stamps <= self._limits.max_future_ms)
        keep = timely.copy()
        if self._misfit is not None:
            keep &= ~self._misfit(columns)
        if self._limits.sample_rate < 1.0:
            outside = sampled_out(id_hi, self._limits.sample_rate)
            keep &= ~outside
            account.ignored += int(outside.sum())
            told = outside & timely
            account.clock.extend(zip(row[told].tolist(), time_ms[told].tolist(), strict=True))
            failed = row[~keep & ~outside]
        else:
            failed = row[~keep]
        if not keep.all():
            for place in failed.tolist():
                self._refuse(place, records[place], account)
            columns = {name: list(itertools.compress(column, keep.tolist())) for name, column in columns.items()}
            row, time_ms, id_hi, id_lo = row[keep], time_ms[keep], id_hi[keep], id_lo[keep]
        clock_row, clock_ms = _clock(row, time_ms, account.clock)
        rejected = tuple(sorted(account.rejected, key=lambda r: r.row))
        return Accepted(row, columns, id_hi, id_lo, time_ms, clock_row, clock_ms, rejected, account.ignored)

    def _refuse(self, place: int, record: Record, account: _Account) -> None:
        verdict = self._judge(record)
        assert isinstance(verdict, Rejected), f"columns refuse what the judge does not: {verdict!r}"
        account.rejected.append(Rejection(place, verdict.reason))

    def _columns(self, records: Sequence[Record], account: _Account) -> tuple[Sequence[int], Columns]:
        """Rows that are valid value by value, and their columns."""
        rows, columns, failed = self._strictly(records, account)
        late: dict[int, Mapping[str, Any]] = {}
        for place in failed:
            verdict = self._judge(records[place])
            if isinstance(verdict, Taken):
                late[place] = verdict.fields
            elif isinstance(verdict, Ignored):
                account.ignore(place, verdict.time_ms)
            else:
                account.rejected.append(Rejection(place, verdict.reason))
        if not late:
            return rows, columns
        joined = [*rows, *late]
        order = np.argsort(joined, kind="stable").tolist()
        for name, column in columns.items():
            both = [*column, *(fields[name] for fields in late.values())]
            columns[name] = [both[i] for i in order]
        return [joined[i] for i in order], columns

    def _strictly(self, records: Sequence[Record], account: _Account) -> tuple[Sequence[int], Columns, list[int]]:
        """Rows that fit the strict type, their columns, and the rows that do not."""
        strict = self._schema.strict
        if strict is None:
            return [], {name: [] for name in self._schema.names}, list(range(len(records)))
        values = [record.value for record in records]
        rows, failed = _readable(values, self._limits.max_bytes)
        if self._preselection is not None:
            rows, unreadable = self._preselect(self._preselection, rows, records, account)
            failed += unreadable
        decoded, rows, misfits = _decode(strict, values, rows)
        chosen = records if len(rows) == len(records) else [records[place] for place in rows]
        columns, unfit = self._schema.columns(decoded, chosen)
        failed += misfits
        if unfit:
            failed += [rows[i] for i in unfit]
            fit = [i not in unfit for i in range(len(rows))]
            rows = list(itertools.compress(rows, fit))
            columns = {name: list(itertools.compress(column, fit)) for name, column in columns.items()}
        return rows, columns, sorted(failed)

    def _preselect(
        self, pick: Preselection, rows: Sequence[int], records: Sequence[Record], account: _Account
    ) -> tuple[Sequence[int], list[int]]:
        """Rows the filter picks, and rows it cannot read; the others are ignored here."""
        assert pick.schema.strict is not None  # or the main schema, which has these slots too, is not strict either
        decoded, rows, failed = _decode(pick.schema.strict, [record.value for record in records], rows)
        columns, unfit = pick.schema.columns(decoded, [records[place] for place in rows])
        times = columns.get("time") or [None] * len(rows)
        picked = []
        for index, (place, found) in enumerate(zip(rows, columns[pick.slot], strict=True)):
            if index in unfit:
                failed.append(place)
            elif same(found, pick.equals):
                picked.append(place)
            else:
                time_ms = self._judge.time_ms(times[index], records[place])
                early = time_ms is not None and is_future(time_ms, records[place], self._limits.max_future_ms)
                account.ignore(place, None if early else time_ms)
        return picked, failed

    def _times(
        self, columns: Columns, records: Sequence[Record], rows: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Event times and record timestamps of the rows; negative where there is none."""
        chosen: Iterable[Record] = records if len(rows) == len(records) else (records[place] for place in rows)
        stamps = _stamps([record.timestamp for record in chosen])
        return (stamps if self._time is None else self._time.many(columns["time"])), stamps


def _readable(values: Sequence[bytes | None], max_bytes: int) -> tuple[Sequence[int], list[int]]:
    """Rows of ordinary size in UTF-8, and the others (tombstones too).

    msgspec does not look into strings it skips, so bad UTF-8 in a field nobody asked for would pass; one
    check over the joined slice costs a hundredth of decoding it.
    """
    places = range(len(values))
    try:
        if not values or max(map(len, values)) <= max_bytes:  # type: ignore[arg-type]
            joined = b"\n".join(values)  # type: ignore[arg-type]
            if joined.isascii() or joined.decode():
                return places, []
    except (TypeError, UnicodeDecodeError):  # a tombstone; bad UTF-8 somewhere
        pass
    good: list[int] = []
    bad: list[int] = []
    for place, value in enumerate(values):
        (good if value is not None and len(value) <= max_bytes and _is_utf8(value) else bad).append(place)
    return good, bad


def _is_utf8(value: bytes) -> bool:
    try:
        return value.isascii() or bool(value.decode())
    except UnicodeDecodeError:
        return False


def _decode(strict: Any, values: Sequence[Any], rows: Sequence[int]) -> tuple[list[Any], Sequence[int], list[int]]:
    """Decoded rows, their places, and the places that do not fit the type.

    An iterator goes on after the value that failed, and `list.extend` keeps what came before it, so
    a bad record costs its own exception and nothing else.
    """
    decoded: list[Any] = []
    failed: list[int] = []
    pending = iter(values if len(rows) == len(values) else [values[place] for place in rows])
    while True:
        try:
            decoded.extend(map(strict.decode, pending))
        except UNREADABLE:
            failed.append(len(decoded) + len(failed))
        else:
            break
    if not failed:
        return decoded, rows, []
    bad = set(failed)
    kept = [place for index, place in enumerate(rows) if index not in bad]
    return decoded, kept, [rows[index] for index in failed]


def _stamps(timestamps: Sequence[int | None]) -> NDArray[np.int64]:
    try:
        return np.array(timestamps, dtype=np.int64)
    except (TypeError, OverflowError):
        return np.array([-1 if t is None else min(max(t, -1), 2**62) for t in timestamps], dtype=np.int64)


def _clock(
    row: NDArray[np.int64], time_ms: NDArray[np.int64], told: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and times of every event that moves the watermark: the accepted and `told`, in log order."""
    if not told:
        return row, time_ms
    more = np.array(told, dtype=np.int64)
    rows = np.concatenate([row, more[:, 0]])
    times = np.concatenate([time_ms, more[:, 1]])
    order = np.argsort(rows, kind="stable")
    return rows[order], times[order]
