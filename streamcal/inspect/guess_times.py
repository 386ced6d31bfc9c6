"""Which field tells when: times near the record's own timestamp and, for outcomes, after the prediction."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streamcal.inspect.columns import Column, Table
from streamcal.inspect.guess_ids import words
from streamcal.inspect.sample import SampledRecord
from streamcal.inspect.time_forms import UNIT_NAMES, near_miss, time_unit, times_ms
from streamcal.stream.fields import TimeUnit

__all__ = ["TimeGuess", "guess_time", "unusable_times"]

_PRESENT: Final = 0.95
_AFTER: Final = 0.95
"""Share of the pairs in which an outcome follows its prediction: clocks differ a little, fields that mean it do not."""
_NAMES: Final[Mapping[str, int]] = {
    "ts": 4, "timestamp": 4, "time": 3, "datetime": 3, "at": 3, "event": 1, "occurred": 2, "date": 1, "when": 2,
    "created": 1, "scored": 2, "predicted": 2, "updated": -2, "ingested": -3, "received": -2, "processed": -2,
    "expires": -5, "expiry": -5, "due": -4, "birth": -9, "start": -1, "end": -1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeGuess:
    """A time field; `path` is None where the record's timestamp is the time."""

    path: str | None
    unit: TimeUnit
    reason: str


def guess_time(
    table: Table,
    records: Sequence[SampledRecord],
    *,
    given: str | None = None,
    begun: Mapping[str, int] | None = None,
    ids: Column | None = None,
) -> TimeGuess:
    """The likeliest time field.

    Parameters
    ----------
    table : Table
    records : sequence
        The sample the table was made of.
    given : str, optional
        The path, where only its unit is asked for.
    begun : mapping, optional
        Id to the time of its prediction, for outcomes.
    ids : Column, optional
        The ids of this table, needed with `begun`.
    """
    ranked = []
    for column in table.columns.values() if given is None else _given(table, given):
        unit = time_unit(column)
        if unit is None or (given is None and column.share < _PRESENT):
            continue
        times = times_ms(column, unit)
        rank = (_follows(times, ids, begun), _name_score(column), -_distance(times, table, records))
        ranked.append((rank, column, unit))
    if not ranked:
        return TimeGuess(None, "ms", "no field holds times, so the record's own timestamp is taken")
    _, column, unit = max(ranked, key=lambda one: one[0])
    return TimeGuess(column.path, unit, f"{UNIT_NAMES[unit]}, like {column.present[-1]!r}")


def _given(table: Table, path: str) -> list[Column]:
    return [table.columns[path]] if path in table.columns else []


def unusable_times(table: Table) -> list[tuple[str, str]]:
    """Fields that look like times and are none, with the reason."""
    found = [(c.path, near_miss(c)) for c in table.columns.values() if _name_score(c) > 1 and time_unit(c) is None]
    return [(path, reason) for path, reason in found if reason is not None]


def _name_score(column: Column) -> int:
    return sum(_NAMES.get(word, 0) for word in words(column.path))


def _follows(times: Sequence[int | None], ids: Column | None, begun: Mapping[str, int] | None) -> int:
    """2 where outcomes follow their predictions, 1 where they have the same time, 0 where they come before."""
    if ids is None or not begun:
        return 2
    delays = [
        time - begun[str(name)]
        for time, name in zip(times, ids.values, strict=True)
        if time is not None and name is not None and str(name) in begun
    ]
    if not delays:
        return 2
    if sum(delay >= 0 for delay in delays) < _AFTER * len(delays):
        return 0
    return 2 if any(delays) else 1


def _distance(times: Sequence[int | None], table: Table, records: Sequence[SampledRecord]) -> float:
    """Median distance from the records' timestamps in ms; 0 where there are none."""
    stamps = (records[row].timestamp for row in table.rows)
    apart = [
        abs(time - stamp)
        for time, stamp in zip(times, stamps, strict=True)
        if time is not None and stamp is not None and stamp >= 0
    ]
    return statistics.median(apart) if apart else 0.0
