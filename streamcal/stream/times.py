"""Event time in integer milliseconds, read in the one declared form and never guessed.

Whole numbers of microseconds and nanoseconds floor to the millisecond. Fractional seconds are doubles,
which hold microseconds of this century exactly once rounded to them; so they round to the microsecond
first and floor after that, and 1700000000.123 is 1700000000123 ms although the nearest double lies below it.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from streamcal.stream.fields import TimeUnit

__all__ = ["HIGHEST_MS", "LOWEST_MS", "TimeRule", "rfc3339_ms"]

LOWEST_MS: Final = 946_684_800_000
"""2000-01-01T00:00:00Z; an earlier time is a wrong unit, not an event."""
HIGHEST_MS: Final = 4_102_444_800_000
"""2100-01-01T00:00:00Z."""

_BAD: Final = -1
_DIVISOR: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)


@functools.lru_cache(maxsize=1024)
def _day(text: str) -> int | None:
    """Days since the epoch of YYYY-MM-DD; a stream holds few different days at a time."""
    try:
        return dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def rfc3339_ms(text: str) -> int | None:
    """Milliseconds since the epoch of an RFC 3339 time, any finer digits floored; None if it is not one.

    The offset (or Z) is required, a space may stand for the T, and a leap second counts as the next second.

    Examples
    --------
    >>> rfc3339_ms("1970-01-01T01:00:00.0019+01:00")
    1
    >>> rfc3339_ms("1970-01-01T00:00:00") is None
    True
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    date, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    day = _day(date)
    if day is None:
        return None
    seconds = ((day * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    if sign:
        offset = int(offset_hour) * 3600 + int(offset_minute) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * 1000 + (int(fraction[:3].ljust(3, "0")) if fraction else 0)


class TimeRule:
    """Turns the time field of an event into milliseconds; one rule per topic.

    The vector and the scalar form agree on every value that `json_type` admits.

    Parameters
    ----------
    unit : {"ms", "s", "us", "ns", "rfc3339"}
    """

    __slots__ = ("_divisor", "json_type", "unit")

    def __init__(self, unit: TimeUnit) -> None:
        self.unit = unit
        self._divisor = _DIVISOR.get(unit, 1)
        self.json_type: Any = self._type()

    def _type(self) -> Any:
        if self.unit == "rfc3339":
            return str
        if self.unit == "s":
            bounds = {"ge": LOWEST_MS // 1000, "le": HIGHEST_MS // 1000}
            whole = Annotated[int, Meta(**bounds)]
            broken = Annotated[float, Meta(ge=float(bounds["ge"]), le=float(bounds["le"]))]
            return whole | broken
        return Annotated[int, Meta(ge=LOWEST_MS * self._divisor, le=HIGHEST_MS * self._divisor)]

    def one(self, value: object) -> int | None:
        """Milliseconds of one decoded JSON value; None when it is no time of this form or out of range."""
        if self.unit == "rfc3339":
            time_ms = rfc3339_ms(value) if isinstance(value, str) else None
            return time_ms if time_ms is not None and LOWEST_MS <= time_ms <= HIGHEST_MS else None
        if self.unit == "s":
            if type(value) not in (int, float):
                return None
            number = cast("float", value)
            if not LOWEST_MS // 1000 <= number <= HIGHEST_MS // 1000:
                return None
            return round(number * 1e6) // 1000
        if type(value) is not int or not LOWEST_MS * self._divisor <= value <= HIGHEST_MS * self._divisor:
            return None
        return value // self._divisor

    def many(self, values: Sequence[Any]) -> NDArray[np.int64]:
        """Milliseconds of values that `json_type` admits; a negative entry is no valid time."""
        if self.unit == "rfc3339":
            return np.array([_BAD if (t := self.one(v)) is None else t for v in values], dtype=np.int64)
        if self.unit == "s":
            return np.rint(np.array(values, dtype=np.float64) * 1e6).astype(np.int64) // 1000
        times = np.array(values, dtype=np.int64)
        return times if self._divisor == 1 else times // self._divisor
