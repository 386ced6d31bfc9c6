"""Which fields of a prediction are its score, raw score, map version, weight, model and segments."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final

from streamcal.inspect.columns import Column, Table
from streamcal.inspect.findings import listed
from streamcal.inspect.guess_ids import words
from streamcal.inspect.time_forms import time_unit
from streamcal.stream import values

__all__ = [
    "guess_model",
    "guess_raw_score",
    "guess_score",
    "guess_segments",
    "guess_version",
    "guess_weight",
    "near_scores",
]

Guess = tuple[str, str] | None
"""Path and reason."""

_PRESENT: Final = 0.95
_VALID: Final = 0.98
_MOST_MODELS: Final = 50
_MOST_SEGMENTS: Final = 200
"""Values of a dimension: a cut with more is rarely looked at, and each value costs its windows."""
_DIMENSIONS: Final = 3
_SCORE_NAMES: Final[Mapping[str, int]] = {
    "score": 6, "probability": 6, "prob": 6, "proba": 6, "p": 5, "prediction": 4, "predicted": 4, "pd": 5, "ctr": 5,
    "pctr": 5, "pcvr": 5, "cvr": 4, "risk": 4, "likelihood": 4, "confidence": 3, "calibrated": 2, "propensity": 5,
    "served": 1, "raw": -1, "threshold": -9, "cutoff": -9, "weight": -9, "rate": 0, "discount": -5, "share": -2,
    "random": -9, "bucket": -9, "quantile": -3, "uncalibrated": -1,
}  # fmt: skip
_RAW: Final = frozenset({"raw", "uncalibrated", "original"})
_MODEL: Final = frozenset({"model", "scorer", "algorithm", "algo"})
_NOT_A_NAME: Final = frozenset({"type", "framework", "date", "family"})
_PLAIN_NAMES: Final = frozenset({"name", "id", "code", "value", "version", "key"})
_WEIGHT: Final = frozenset({"weight", "weights", "importance"})


def guess_score(table: Table, taken: Container[str] = ()) -> Guess:
    """The likeliest probability: numbers in [0, 1] that are not just 0 and 1."""
    ranked = [(_score_rank(column), column) for column in table.scalars() if _is_score(column, taken)]
    if not ranked:
        return None
    _, best = max(ranked, key=lambda one: one[0])
    low, high = min(best.numbers), max(best.numbers)
    others = [column.path for _, column in ranked if column is not best]
    also = f"; numbers in [0, 1] are in {listed(others)} too" if others else ""
    return best.path, f"numbers from {low:g} to {high:g}, {best.distinct:,} of them different{also}"


def guess_raw_score(table: Table, score: str) -> Guess:
    """The score before a map, where there is one beside the score."""
    found = [c for c in table.scalars() if _is_score(c, (score,), least=0.0) and words(c.path) & _RAW]
    return (found[0].path, "a second score, by its name the one before a map") if found else None


def guess_version(table: Table) -> Guess:
    """The version of the map that made the score."""
    found = [c for c in table.scalars() if c.only("integer") and {"map", "version"} <= words(c.path)]
    return (found[0].path, "whole numbers, by its name the map that was applied") if found else None


def guess_weight(table: Table) -> Guess:
    """The weight of a prediction, where weights differ from 1."""
    for column in table.scalars():
        if not words(column.path) & _WEIGHT or not column.only("integer", "number"):
            continue
        if min(column.numbers) >= 0 and column.common != [1]:
            return column.path, f"numbers from {min(column.numbers):g} to {max(column.numbers):g}"
    return None


def guess_model(table: Table, known: Column | None = None, *, outcome: bool = False) -> Guess:
    """The field that names the model; of an outcome only if it names models of predictions (`known`)."""
    for column in sorted(table.scalars(), key=_model_rank, reverse=True):
        names = _model_words(column)
        if not names & _MODEL or names & _NOT_A_NAME or not column.only("text", "integer"):
            continue
        if column.distinct > _MOST_MODELS:
            continue
        if outcome and (known is None or not set(map(str, column.common)) <= set(map(str, known.common))):
            continue
        return column.path, f"{column.distinct} different: {listed(column.common, 4)}"
    return None


def _model_words(column: Column) -> frozenset[str]:
    """Words of the name, with those of the object around it where the name alone says nothing: ``model.name``."""
    names = words(column.path)
    return names | words(column.path.rpartition(".")[0]) if names <= _PLAIN_NAMES else names


def _model_rank(column: Column) -> int:
    names = _model_words(column)
    return ("name" in names) + ("id" in names) + 2 * (names <= _MODEL) - ("version" in names)


def guess_segments(table: Table, taken: Container[str]) -> dict[str, tuple[str, str]]:
    """Dimension to path and reason: up to three fields with few values that recur."""
    found: dict[str, tuple[str, str]] = {}
    ranked = sorted((c for c in table.scalars() if _is_dimension(c, taken)), key=lambda c: (-c.share, c.distinct))
    for column in ranked:
        name = _dimension_name(column)
        name = column.path.replace(".", "_") if name in found or name == "all" else name
        if len(found) < _DIMENSIONS and name not in found:
            found[name] = column.path, f"{column.distinct} different: {listed(column.common, 4)}"
    return found


def _dimension_name(column: Column) -> str:
    last, _, before = column.path.removeprefix("$header.")[::-1].partition(".")
    name, around = last[::-1], before[::-1].rpartition(".")[2]
    return around if around and words(name) <= _PLAIN_NAMES else name


def _is_dimension(column: Column, taken: Container[str]) -> bool:
    if column.path in taken or column.path.startswith("$key") or column.share < 0.5:
        return False
    if not column.only("text", "boolean") or not 2 <= column.distinct <= _MOST_SEGMENTS or time_unit(column):
        return False
    return column.distinct <= 0.05 * len(column.present) or column.distinct <= 10 < len(column.present)


def _is_score(column: Column, taken: Container[str], least: float = _PRESENT) -> bool:
    if column.path in taken or column.share < least or not column.only("integer", "number"):
        return False
    good = sum(values.score(value) is not None for value in column.present)
    whole = set(column.numbers) <= {0, 1}
    return good >= _VALID * len(column.present) and not whole


def _score_rank(column: Column) -> tuple[int, int]:
    return sum(_SCORE_NAMES.get(word, 0) for word in words(column.path)), column.distinct


def near_scores(table: Table) -> Sequence[tuple[str, str]]:
    """Fields whose name says score and whose values are no probabilities, with the reason."""
    found = []
    for column in table.scalars():
        if _score_rank(column)[0] < 3:
            continue
        if column.only("text"):
            found.append((column.path, "numbers written as text; the producer must write numbers"))
        elif column.only("integer", "number") and not _is_score(column, (), 0.0):
            low, high = min(column.numbers), max(column.numbers)
            what = "percentages" if low >= 0 and 1 < high <= 100 else "no probabilities"
            found.append((column.path, f"from {low:g} to {high:g}, so {what}; the producer must write [0, 1]"))
    return found
