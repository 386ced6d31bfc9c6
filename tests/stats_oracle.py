"""Counts of given rows, the frozen oracle rows and their numbers, and the shared table of statistics cases."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamcal.stats.counts import contributions
from streamcal.stats.layout import N_BINS

_HERE = Path(__file__).parent


class Rows(NamedTuple):
    """Score, label, weight and segment of each row."""

    p: NDArray[np.float64]
    y: NDArray[np.int64]
    w: NDArray[np.float64]
    segment: NDArray[np.str_]


def tally(p: ArrayLike, y: ArrayLike, w: ArrayLike | None = None) -> NDArray[np.int64]:
    """Counts int64[284, K] of the rows."""
    weight = None if w is None else np.asarray(w, dtype=np.float64)
    bins, values, _ = contributions(np.asarray(p, dtype=np.float64), np.asarray(y, dtype=np.int64), weight)
    counts = np.zeros((N_BINS, values.shape[1]), dtype=np.int64)
    np.add.at(counts, bins, values)
    return counts


def expand(table: Sequence[tuple[float, int, int]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows of a table of (score, n, positives)."""
    p = np.concatenate([np.full(n, score) for score, n, _ in table])
    y = np.concatenate([np.arange(n) < positives for _, n, positives in table])
    return p, y.astype(np.int64)


@cache
def oracle_rows() -> Rows:
    """5,000 rows with ties, scores on deciles and two at the border; made from seed 20261129."""
    with gzip.open(_HERE / "data" / "oracle.csv.gz", "rt", encoding="ascii") as lines:
        rows = list(csv.DictReader(lines))
    return Rows(
        p=np.array([float(row["score"]) for row in rows]),
        y=np.array([int(row["label"]) for row in rows]),
        w=np.array([float(row["weight"]) for row in rows]),
        segment=np.array([row["segment"] for row in rows]),
    )


@cache
def oracle_numbers() -> dict[str, Any]:
    """Figures of `oracle_rows` by other libraries; the file says which, their versions and calls."""
    document = json.loads((_HERE / "data" / "oracle_numbers.json").read_text())
    return {number["name"]: number["value"] for number in document["numbers"]}


@cache
def statistics_cases() -> dict[str, Any]:
    """Small tables with their right figures."""
    cases: dict[str, Any] = json.loads((_HERE / "cases" / "statistics.json").read_text())
    return cases
