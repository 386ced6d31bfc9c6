"""In which form a column holds times, by where its numbers lie; the ranges of the units do not overlap."""

from __future__ import annotations

import re
from typing import Any, Final

from streamcal.inspect.columns import Column
from streamcal.stream.fields import TimeUnit
from streamcal.stream.times import TimeRule

__all__ = ["UNIT_NAMES", "near_miss", "time_unit", "times_ms"]

_UNITS: Final[tuple[TimeUnit, ...]] = ("ms", "s", "us", "ns", "rfc3339")
UNIT_NAMES: Final[dict[TimeUnit, str]] = {
    "ms": "milliseconds",
    "s": "seconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "rfc3339": "RFC 3339 text",
}
_ENOUGH: Final = 0.95
"""Share of the values that must be such times: a column with a few broken ones is still a column of times."""
_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?", re.ASCII)


def time_unit(column: Column) -> TimeUnit | None:
    """The unit in which nearly all values are times from 2000 to 2100; None if there is none.

    Examples
    --------
    >>> time_unit(Column("ts", [1_700_000_000, 1_700_000_060.5]))
    's'
    """
    values = column.present
    if not values:
        return None
    for unit in _UNITS:
        rule = TimeRule(unit)
        # Few at first: most columns are not times, and are told apart at once.
        for part in (values[:50], values):
            if sum(rule.one(_number(column, value)) is not None for value in part) < _ENOUGH * len(part):
                break
        else:
            return unit
    return None


def times_ms(column: Column, unit: TimeUnit) -> list[int | None]:
    """Milliseconds of every row; None where there is no such time."""
    rule = TimeRule(unit)
    return [None if value is None else rule.one(_number(column, value)) for value in column.values]


def near_miss(column: Column) -> str | None:
    """Why values that look like times are none; None if they do not even look like it."""
    found = [reason for value in column.present[:200] if (reason := _almost(value)) is not None]
    return max(set(found), key=found.count) if len(found) >= _ENOUGH * len(column.present[:200]) and found else None


def _almost(value: Any) -> str | None:
    if isinstance(value, str):
        if _WITHOUT_ZONE.fullmatch(value):
            return "they have no time zone, and none is ever guessed; the producer must add Z or an offset"
        if value.isascii() and value.isdecimal() and any(TimeRule(unit).one(int(value)) for unit in _UNITS):
            return "they are numbers written as text; the producer must write numbers, or RFC 3339"
        return None
    if isinstance(value, float) and any(TimeRule(unit).one(int(value)) is not None for unit in ("ms", "us", "ns")):
        return "they are broken numbers of milliseconds or finer, where whole ones are read"
    if value == 0 and not isinstance(value, bool):
        return "they are 0, so the producer does not set them"
    return None


def _number(column: Column, value: Any) -> Any:
    """Keys and headers are text, in which numbers are read."""
    if column.path.startswith("$") and isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return value
    return value
