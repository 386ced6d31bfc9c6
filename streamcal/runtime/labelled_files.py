"""Rows of a file as values in the order asked for: JSON lines, CSV (either may be gzip) or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from streamcal.errors import InputFileError, StreamcalError
from streamcal.runtime.logs.lines import read_line_blocks

__all__ = ["READERS", "Row", "form_of"]

_BLOCK: Final = 65_536
_SUFFIXES: Final = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}

Row = tuple[str, Sequence[Any]]
"""Where it stands in the file, and its values."""


def form_of(path: Path) -> str:
    """What kind of file it is by its name, one of `READERS`; raises InputFileError where the name does not tell."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    form = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if form is None:
        known = ", ".join(_SUFFIXES)
        raise InputFileError(f"is none of {known} by its name", where=str(path), hint="say so with --format")
    return form


def _json_rows(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    paths = [tuple(place.split(".")) for place in wanted]
    decode = msgspec.json.Decoder().decode
    number = 0
    for block in read_line_blocks(path, _BLOCK):
        for line in block:
            number += 1
            if not line.strip():
                continue
            try:
                value = decode(line)
            except msgspec.DecodeError as error:
                hint = "every line must be one JSON object"
                raise InputFileError(f"is not JSON: {error}", where=f"{path}, line {number}", hint=hint) from error
            if not isinstance(value, dict):
                raise InputFileError("is no JSON object", where=f"{path}, line {number}")
            yield f"line {number}", [_at(value, parts) for parts in paths]


def _at(value: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _csv_rows(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    rows = csv.reader(_text_lines(path), strict=True)
    try:
        header = next(rows, None)
        if header is None:
            raise InputFileError("holds no row", where=str(path))
        places = _places(path, header, wanted)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                what = f"has {len(row)} fields where the header has {len(header)}"
                raise InputFileError(what, where=f"{path}, line {rows.line_num}")
            yield f"line {rows.line_num}", [row[place] for place in places]
    except csv.Error as error:
        raise InputFileError(f"is not CSV: {error}", where=f"{path}, line {rows.line_num}") from error


def _text_lines(path: Path) -> Iterator[str]:
    number = 0
    for block in read_line_blocks(path, _BLOCK):
        for line in block:
            number += 1
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8") + "\n"
            except UnicodeDecodeError as error:
                raise InputFileError("is not UTF-8 text", where=f"{path}, line {number}") from error


def _places(path: Path, header: Sequence[str], wanted: Sequence[str]) -> list[int]:
    missing = [name for name in wanted if name not in header]
    if missing:
        what = f"has no column {', '.join(map(repr, missing))}"
        raise InputFileError(what, where=str(path), hint=f"its columns: {', '.join(header)}")
    return [header.index(name) for name in wanted]


def _parquet_rows(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    try:
        import pyarrow as pa  # noqa: PLC0415 -- an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as cause:
        hint = "pip install 'streamcal-monitor[parquet]'"
        raise StreamcalError("Parquet files need the package pyarrow", hint=hint) from cause
    try:
        with parquet.ParquetFile(path) as file:
            _places(path, file.schema_arrow.names, wanted)
            number = 0
            for batch in file.iter_batches(_BLOCK, columns=list(dict.fromkeys(wanted))):
                columns = {name: _values(batch.column(name), pa) for name in set(wanted)}
                for row in zip(*(columns[name] for name in wanted), strict=True):
                    number += 1
                    yield f"row {number}", row
    except (OSError, pa.ArrowException) as error:
        raise InputFileError(f"is no Parquet file that can be read: {error}", where=str(path)) from error


def _values(column: Any, pa: Any) -> list[Any]:
    """Python values of a column; timestamps as milliseconds since the epoch."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


READERS: Final[Mapping[str, Callable[[Path, Sequence[str]], Iterator[Row]]]] = {
    "jsonl": _json_rows,
    "csv": _csv_rows,
    "parquet": _parquet_rows,
}
"""Kind of file to what reads it: places of values in, rows out. All raise `InputFileError`; Parquet also
`StreamcalError`, where its extra is not installed."""
