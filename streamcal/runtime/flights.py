"""The flights that `demo` streams: where they are, read into columns, in the order of their events."""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import InputFileError

__all__ = ["Flights", "flights_folder", "read_flights"]

_TABLE: Final = "flights.csv.gz"

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Flights:
    """One entry per flight in every column.

    Attributes
    ----------
    id, carrier, origin : list of str
    scored_ms, known_ms : int64
        Time of the prediction and of its outcome.
    score : float64
        Raw score in [0, 1].
    label : int64
        0 or 1.
    """

    id: list[str]
    scored_ms: Ints
    known_ms: Ints
    carrier: list[str]
    origin: list[str]
    score: NDArray[np.float64]
    label: Ints

    def __len__(self) -> int:
        return len(self.id)

    def until(self, end_ms: int) -> Flights:
        """Those scored before `end_ms`, in the same order."""
        kept = np.flatnonzero(self.scored_ms < end_ms)
        return Flights(
            id=[self.id[i] for i in kept],
            scored_ms=self.scored_ms[kept],
            known_ms=self.known_ms[kept],
            carrier=[self.carrier[i] for i in kept],
            origin=[self.origin[i] for i in kept],
            score=self.score[kept],
            label=self.label[kept],
        )

    def events(self) -> Ints:
        """Events of both topics by time, predictions first on ties: i is flight i's prediction, n + i its outcome."""
        outcome = np.repeat([0, 1], len(self))
        return np.lexsort((outcome, np.concatenate([self.scored_ms, self.known_ms])))


def flights_folder() -> Path:
    """Folder with the table and its configuration: in the installed package, else in the source checkout.

    Raises
    ------
    InputFileError
        It is in neither.
    """
    package = Path(str(resources.files("streamcal")))
    for folder in (package / "demo_data", package.parent / "examples" / "flights"):
        if (folder / _TABLE).is_file():
            return folder
    hint = "run the demo from a source checkout, or install the package with its data"
    raise InputFileError("the flights of the demo are not here", where=str(package.parent), hint=hint)


def read_flights(folder: Path) -> Flights:
    """Read the table in `folder`.

    Raises
    ------
    InputFileError
        It cannot be read, or is not such a table.
    """
    path = folder / _TABLE
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            table = csv.reader(file)
            header = next(table, [])
            columns = dict(zip(header, zip(*table, strict=True), strict=False))
        return Flights(
            id=list(columns["id"]),
            scored_ms=np.array(columns["scored_ms"], dtype=np.int64),
            known_ms=np.array(columns["known_ms"], dtype=np.int64),
            carrier=list(columns["carrier"]),
            origin=list(columns["origin"]),
            score=np.array(columns["score"], dtype=np.float64),
            label=np.array(columns["label"], dtype=np.int64),
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError) as error:
        what = f"cannot be read as a table of flights ({type(error).__name__}: {error})"
        raise InputFileError(what, where=str(path), hint="get the file from the repository again") from error
