"""Metric families to the Prometheus text format (0.0.4), for families of many thousand series.

``prometheus_client.generate_latest`` sorts, checks and escapes the labels of every sample anew; here the labels of
one series have one text, which outlives the snapshot (`labelled`), families of many series are columns of labels and
values (`ColumnFamily`), of which no sample is made, and what a line begins with is kept as long as the series are the
same ones (`LabelColumns`). Measured (``benchmarks/scrape.py``): 35,000 series take 6 ms of CPU for 200, under the
interpreter lock that the stream needs too. The bytes are those of ``generate_latest``; a test holds that.

Left out, as nothing here uses them: exemplars, timestamps, native histograms, ``_created`` samples, names beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote_from_bytes

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

__all__ = [
    "ColumnFamily",
    "LabelColumn",
    "LabelColumns",
    "Labelled",
    "exposition",
    "label_value",
    "labelled",
]

_MOST_LABELS: Final = 20_000
"""Label sets whose text is kept, 10 MB: under the default ``metrics.max_series`` there are at most half as many."""
_SMALL: Final = 1e-4
_LARGE: Final = 1e6
"""Between them JSON, Python and Go write a number alike."""
_EXPONENT: Final = 1e10
"""Below it JSON has all digits; the library's exponents of two digits begin there."""

_encode = msgspec.json.Encoder().encode

_TYPE_SUFFIX: Final = {"counter": "_total", "info": "_info"}
_TYPE: Final = {"info": "gauge", "unknown": "untyped"}


def exposition(families: Iterable[Metric]) -> bytes:
    """UTF-8 text of `families`, in their order.

    Label values must have passed `label_value`. Label mappings that are the same object are rendered once.

    Raises
    ------
    UnicodeEncodeError
        A label value holds a lone surrogate, so it did not pass `label_value`.
    """
    return b"".join(_parts(families))


def _parts(families: Iterable[Metric]) -> Iterator[bytes]:
    """`exposition` in parts of at most a column of samples; raises what it raises."""
    rendered: dict[int, str] = {}
    kept: list[Mapping[str, str]] = []  # an id is good for as long as its object lives
    for family in families:
        name = family.name + _TYPE_SUFFIX.get(family.type, "")
        text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines = [f"# HELP {name} {text}\n# TYPE {name} {_TYPE.get(family.type, family.type)}"]
        if isinstance(family, ColumnFamily):
            yield lines[0].encode()
            yield from (part.encode() for part in family.parts())
            yield b"\n"
            continue
        for sample in family.samples:
            labels = sample.labels
            label_text = rendered.get(id(labels))
            if label_text is None:
                label_text = rendered[id(labels)] = _label_text(labels)
                kept.append(labels)
            value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]  # the library has no types for it
            lines.append(f"{sample.name}{label_text} {value}")
        yield ("\n".join(lines) + "\n").encode()


Column = Sequence[float] | NDArray[np.float64]


class Labelled(NamedTuple):
    """Labels of a series, and the text they are written as."""

    labels: Mapping[str, str]
    text: str


@lru_cache(_MOST_LABELS)
def labelled(names: tuple[str, ...], values: tuple[str, ...]) -> Labelled:
    r"""The labels of those names and values, which need not have passed `label_value`.

    >>> labelled(("model", "cut"), ("m", "a\x00b")).text
    '{cut="a%00b",model="m"}'
    """
    labels = {name: label_value(value) for name, value in zip(names, values, strict=True)}
    return Labelled(labels, _label_text(labels))


class LabelColumn:
    r"""Labels of many series, and what their lines begin with, by metric.

    >>> LabelColumn([labelled(("a",), ("1",))]).heads("x")
    ['\nx{a="1"} ']
    """

    def __init__(self, labels: Sequence[Labelled]) -> None:
        self.labels = labels
        self._heads: dict[str, list[str]] = {}

    def heads(self, metric: str) -> list[str]:
        """The end of the line before, metric, labels and a space, of every series; not to be changed."""
        heads = self._heads.get(metric)
        if heads is None:
            heads = self._heads[metric] = [f"\n{metric}{one.text} " for one in self.labels]
        return heads


class LabelColumns:
    """Label columns of the newest snapshot, as the next one mostly has the same series.

    Bounded by what one snapshot exports, 200 bytes a sample: what was not asked for between two calls of `turn` is
    dropped. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[Sequence[Hashable], LabelColumn]] = {}
        self._used: dict[Hashable, tuple[Sequence[Hashable], LabelColumn]] = {}

    def column(self, key: Hashable, series: Sequence[Hashable], make: Callable[[], Sequence[Labelled]]) -> LabelColumn:
        """The column of `key`, made anew where its `series` are not those of the last time."""
        held = self._held.get(key)
        if held is None or held[0] != series:
            held = series, LabelColumn(make())
        self._used[key] = held
        return held[1]

    def turn(self) -> None:
        """Forget what has not been asked for since the last turn."""
        self._held, self._used = self._used, {}


class ColumnFamily(GaugeMetricFamily):
    r"""A gauge whose samples are columns; they become `Sample` objects only where somebody asks for those.

    >>> family = ColumnFamily("x", "An example.")
    >>> family.add(LabelColumn([labelled(("a",), ("1",)), labelled(("a",), ("2",))]), [0.5, float("nan")])
    >>> list(family.parts()), len(family.samples)
    (['\nx{a="1"} 0.5'], 1)
    """

    def __init__(self, name: str, documentation: str) -> None:
        self._columns: list[tuple[LabelColumn, Column]] = []
        super().__init__(name, documentation)

    def add(self, column: LabelColumn, values: Column) -> None:
        """Append samples; one whose value is NaN is absent.

        Raises
        ------
        ValueError
            There are not as many values as labels.
        """
        if len(column.labels) != len(values):
            raise ValueError(f"{len(values)} values of {self.name} for {len(column.labels)} series")
        self._columns.append((column, values))

    def parts(self) -> Iterator[str]:
        """The samples as text, a column at a time; a line begins with the end of the one before."""
        for column, values in self._columns:
            numbers, absent = _numbers(values)
            pieces: list[str] = [""] * (2 * len(numbers))
            pieces[::2] = column.heads(self.name)
            pieces[1::2] = numbers
            for i in absent:
                pieces[2 * i] = pieces[2 * i + 1] = ""
            yield "".join(pieces)

    @property
    def samples(self) -> list[Sample]:
        """The samples as the library has them."""
        return [
            Sample(self.name, dict(one.labels), float(value))
            for column, values in self._columns
            for one, value in zip(column.labels, values, strict=True)
            if value == value  # noqa: PLR0124 - NaN
        ]

    @samples.setter
    def samples(self, _: Any) -> None:
        """The library's constructor empties what is empty."""


def _numbers(values: Column) -> tuple[list[str], list[int]]:
    """The shortest text of each value, by Go's rules, and where there is a NaN instead."""
    if not len(values):
        return [], []
    column = np.asarray(values, dtype=np.float64)
    # All at once by the JSON encoder, a third of the time of one `repr` each. It writes exponents its own way, and
    # has neither infinities nor NaN.
    numbers = _encode(column.tolist())[1:-1].decode().split(",")
    size = np.abs(column)
    plain = (size >= _SMALL) & (size < _LARGE)
    moments = (column >= _LARGE) & (column < _EXPONENT)
    for i in np.flatnonzero(moments).tolist():
        numbers[i] = _in_exponents(numbers[i])
    for i in np.flatnonzero(~(plain | moments) & (size != 0)).tolist():
        numbers[i] = floatToGoString(float(column[i]))  # type: ignore[no-untyped-call]
    return numbers, np.flatnonzero(np.isnan(column)).tolist()


def _in_exponents(text: str) -> str:
    """A number of at least 10^6 as Go writes it; timestamps of every segment are such.

    >>> _in_exponents("1361000000.5")
    '1.3610000005e+09'
    """
    whole, _, rest = text.partition(".")
    mantissa = f"{whole[0]}.{whole[1:]}{rest}".rstrip("0.")
    return f"{mantissa}e+0{len(whole) - 1}"


def label_value(value: str) -> str:
    r"""`value` as a label may carry it: NUL and lone surrogates percent-encoded, all else as it is.

    Prometheus' lexer has no token for a NUL inside a label value and gives up the whole scrape, so one
    client that puts it into an id or a segment would blind the monitor. Percent-encoding keeps two values
    apart, as segments escape ``%`` themselves.

    >>> label_value("a\x00b"), label_value("naïve")
    ('a%00b', 'naïve')
    """
    if "\0" not in value and (value.isascii() or _encodes(value)):
        return value
    return "".join(
        char if char != "\0" and _encodes(char) else quote_from_bytes(char.encode("utf-8", "surrogatepass"))
        for char in value
    )


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _label_text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(labels[key])}"' for key in sorted(labels)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
