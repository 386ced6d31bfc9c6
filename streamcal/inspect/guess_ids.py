"""Which fields join the topics: the pair of columns whose values recur in the other topic and hardly in their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streamcal.inspect.columns import Column, Table
from streamcal.inspect.findings import percent
from streamcal.inspect.time_forms import time_unit

__all__ = ["IdGuess", "guess_ids", "words"]

_FEWEST_SHARED: Final = 3
_PRESENT: Final = 0.5
"""Share of the predictions that must have the id; outcomes may be few among other events of their topic."""
_NAMED: Final = frozenset({"id", "uuid", "guid", "key", "ref", "reference"})


def words(path: str) -> frozenset[str]:
    """Words of the last name of a path.

    >>> sorted(words("payload.requestId")), sorted(words("event_time"))
    (['id', 'request'], ['event', 'time'])
    """
    leaf = path.removeprefix("$header.").rpartition(".")[2]
    return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", leaf))


@dataclass(frozen=True, slots=True)
class IdGuess:
    """A pair of id fields.

    Attributes
    ----------
    shared : float
        Share of the outcomes with such a field whose value a prediction has.
    """

    prediction: str
    outcome: str
    shared: float
    reason: str


def guess_ids(
    predictions: Table, outcomes: Table, *, prediction: str | None = None, outcome: str | None = None
) -> IdGuess | None:
    """The likeliest pair; `prediction` and `outcome` are paths that are given. None if nothing recurs."""
    best: tuple[float, Column, Column, set[str]] | None = None
    sets = {column.path: _texts(column) for column in _candidates(outcomes, outcome, 0.0)}
    for mine in _candidates(predictions, prediction, _PRESENT):
        known = _texts(mine)
        for theirs, texts in sets.items():
            shared = len(known & texts)
            if shared < min(_FEWEST_SHARED, len(texts)) or not shared:
                continue
            column = outcomes.columns[theirs]
            # Values that repeat inside a topic (countries, users) recur in the other by chance.
            alone = len(known) / len(mine.present) * len(texts) / len(column.present)
            score = shared / len(texts) * alone + _preference(mine) + _preference(column)
            if best is None or score > best[0]:
                best = score, mine, column, known
    return None if best is None else _guess(*best[1:])


def _guess(mine: Column, theirs: Column, known: set[str]) -> IdGuess:
    recurring = sum(count for (_, value), count in theirs.counts.items() if str(value) in known)
    share = recurring / len(theirs.present)
    return IdGuess(mine.path, theirs.path, share, _reason(mine, share))


def _candidates(table: Table, given: str | None, least: float) -> Sequence[Column]:
    if given is not None:
        return [table.columns[given]] if given in table.columns else []
    scalars = [c for c in table.scalars() if c.only("text", "integer") and c.share >= least]
    return [c for c in scalars if time_unit(c) is None or words(c.path) & _NAMED]


def _texts(column: Column) -> set[str]:
    return {str(value) for _, value in column.counts}


def _preference(column: Column) -> float:
    """Small against a difference in what recurs, enough between fields that hold the same."""
    if column.path.startswith("$"):
        return 0.0 if column.path.startswith("$header.") else 0.01
    return 0.07 if words(column.path) & _NAMED else 0.03


def _reason(mine: Column, share: float) -> str:
    return (
        f"{percent(share, 1)} of the outcomes' values are among the predictions', {mine.distinct:,} of them different"
    )
