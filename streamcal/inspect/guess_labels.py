"""Which field of an outcome is its label, what its values mean, and which events of a mixed topic are outcomes.

Values with known words are read as such (yes, fraud, click against no, legit, impression). Two unknown words: the one
whose predictions scored higher is taken for yes, if the difference is beyond chance. A topic without any field that
tells yes from no holds positives only.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamcal.inspect.columns import Column, Table
from streamcal.inspect.findings import listed
from streamcal.inspect.guess_ids import words
from streamcal.stream.fields import Scalar
from streamcal.stream.values import LabelRule

__all__ = ["FilterGuess", "LabelGuess", "guess_filter", "guess_label"]

_YES_WORDS: Final = """
yes y true t 1 positive pos click clicked conversion converted convert purchase purchased bought buy fraud fraudulent
chargeback charged_back default defaulted bad churn churned won win success succeeded delayed late accepted spam
readmitted died death hit install installed signup subscribed
"""
_NO_WORDS: Final = """
no n false f 0 negative neg none legit legitimate genuine ok good settled paid repaid retained active stayed lost loss
failure failed on_time ontime rejected declined ham survived alive not_clicked no_click miss view viewed impression
"""
_NOISE_WORDS: Final = "impression impressions view viewed heartbeat ping request page_view refund shipped"
_YES: Final = frozenset(_YES_WORDS.split())
_NO: Final = frozenset(_NO_WORDS.split())
_NOISE: Final = frozenset(_NOISE_WORDS.split())
_NAMES: Final[Mapping[str, int]] = {
    "label": 9, "outcome": 8, "target": 8, "y": 8, "converted": 8, "clicked": 8, "click": 7, "fraud": 8, "default": 7,
    "defaulted": 8, "chargeback": 8, "churned": 8, "result": 6, "truth": 8, "response": 5, "status": 4, "verdict": 7,
    "is": 1, "won": 7, "delayed": 7, "success": 6, "positive": 7, "actual": 7, "observed": 6, "disposition": 6,
    "test": -9, "mobile": -9, "bot": -5, "final": -2, "internal": -9,
}  # fmt: skip
_TYPES: Final = frozenset({"type", "event", "kind", "action", "name", "category", "topic", "op"})
_MOST_VALUES: Final = 20
_BEYOND_CHANCE: Final = 4.0
"""Standard errors between mean scores: a false start once in 16,000 columns."""
_PRESENT: Final = 0.95
_RARE: Final = 0.02
"""Share of the labels below which a value is a broken event rather than a kind of label."""


@dataclass(frozen=True, slots=True)
class LabelGuess:
    """The label field; `path` is None where there is none.

    Attributes
    ----------
    positive_values, negative_values : tuple or None
        None: true, 1, "1" and false, 0, "0".
    positives_only : bool
    """

    path: str | None
    positive_values: tuple[Scalar, ...] | None
    negative_values: tuple[Scalar, ...] | None
    positives_only: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FilterGuess:
    """Which events of the outcomes topic are outcomes."""

    path: str
    equals: Scalar
    reason: str


def guess_label(
    table: Table, scores: Sequence[float | None], taken: Container[str], given: str | None = None
) -> LabelGuess:
    """The likeliest label; `scores` are those of each row's prediction, None where it is not known."""
    ranked = []
    for column in table.scalars():
        if (given is not None and column.path != given) or (given is None and not _may_be_label(column, taken)):
            continue
        meaning = _meaning(column, scores)
        if meaning is None:
            continue
        yes, no, sure = meaning
        rank = sum(_NAMES.get(word, 0) for word in words(column.path)) + sure
        if rank > 0 or given is not None:
            ranked.append((rank, column, yes, no))
    if not ranked:
        return LabelGuess(None, None, None, positives_only=True, reason="no field tells yes from no: positives only")
    _, column, yes, no = max(ranked, key=lambda one: one[0])
    return _label(column, yes, no)


def _may_be_label(column: Column, taken: Container[str]) -> bool:
    if column.path in taken or column.path.startswith("$") or column.share < _PRESENT:
        return False
    return column.distinct <= _MOST_VALUES


def _meaning(column: Column, scores: Sequence[float | None]) -> tuple[list[Any], list[Any], float] | None:
    """Values that mean yes and no, and how sure that is; None if they mean neither."""
    plain = LabelRule(None, None, absent_is_positive=False)
    yes = [value for value in column.common if _word(value) in _YES or plain.one(value) == 1]
    no = [value for value in column.common if value not in yes and (_word(value) in _NO or plain.one(value) == 0)]
    known = len(column.present) * _RARE
    rest = [v for v in column.common if v not in yes and v not in no and column.counts[isinstance(v, bool), v] > known]
    gap = _gap(column, scores, column.common[0]) if column.distinct == 2 else 0.0
    if not rest:
        return (yes, no, 1.0 if abs(gap) > _BEYOND_CHANCE else 0.0) if yes else None
    if len(rest) == 1 and bool(yes) != bool(no):
        return (yes or rest, no or rest, 0.5)
    if column.distinct == 2 and column.only("text") and abs(gap) > _BEYOND_CHANCE:
        first, second = column.common
        return ([first], [second], 0.5) if gap > 0 else ([second], [first], 0.5)
    return None


def _label(column: Column, yes: list[Any], no: list[Any]) -> LabelGuess:
    rule = LabelRule(None, None, absent_is_positive=False)
    plain = all(rule.one(value) == 1 for value in yes) and all(rule.one(value) == 0 for value in no)
    said = f"{listed([_shown(v) for v in yes])} for yes, {listed([_shown(v) for v in no]) or 'nothing'} for no"
    if not no:
        said += ": positives only"
    return LabelGuess(
        column.path,
        None if plain else tuple(yes),
        None if plain or not no else tuple(no),
        positives_only=not no,
        reason=said,
    )


def _word(value: Any) -> str:
    return str(value).strip().lower().replace(" ", "_").replace("-", "_")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gap(column: Column, scores: Sequence[float | None], value: Any) -> float:
    """Standard errors by which predictions of rows with `value` scored higher than the others."""
    mine: list[float] = []
    others: list[float] = []
    for held, score in zip(column.values, scores, strict=True):
        if held is not None and score is not None:
            (mine if held == value else others).append(score)
    if len(mine) < 2 or len(others) < 2:
        return 0.0
    variance = _variance(mine) / len(mine) + _variance(others) / len(others)
    apart = sum(mine) / len(mine) - sum(others) / len(others)
    return apart / math.sqrt(variance) if variance else 0.0


def _variance(part: Sequence[float]) -> float:
    mean = sum(part) / len(part)
    return sum((value - mean) ** 2 for value in part) / (len(part) - 1)


def guess_filter(table: Table, ids: Column, known: Container[str], taken: Container[str]) -> FilterGuess | None:
    """The value of a type field that picks the outcomes; None where all events are.

    Parameters
    ----------
    ids : Column
        Ids of the outcomes, some absent in a mixed topic.
    known : container
        Ids of predictions.
    """
    joined = [value is not None and str(value) in known for value in ids.values]
    ranked = []
    for column in table.scalars():
        if column.path in taken or column is ids or not column.only("text", "integer", "boolean"):
            continue
        if not 2 <= column.distinct <= _MOST_VALUES or column.share < _PRESENT:
            continue
        for value in column.common:
            rank = _filter_rank(table, column, value, joined)
            if rank is not None:
                ranked.append((rank, column, value))
    if not ranked:
        return None
    _, column, value = max(ranked, key=lambda one: one[0])
    others = [_shown(v) for v in column.common if v != value]
    return FilterGuess(column.path, value, f"the others are {listed(others)}")


def _filter_rank(table: Table, column: Column, value: Any, joined: Sequence[bool]) -> float | None:
    """How well a value picks outcomes; None if the others may be outcomes as well."""
    picked = [held == value and isinstance(held, bool) == isinstance(value, bool) for held in column.values]
    inside = _share([j for j, p in zip(joined, picked, strict=True) if p])
    outside = _share([j for j, p in zip(joined, picked, strict=True) if not p])
    named = bool(words(column.path) & _TYPES)
    word = _word(value)
    if inside < 0.5:  # not even half of them have a prediction
        return None
    if outside < 0.5 * inside:  # the others are something else
        return 2.0 + inside - outside + named
    # All kinds of event carry the id. Only words can tell which of them is the outcome.
    own = {c.path for c in table.scalars() if _only_where(c, picked)}
    if named and own & {p for p in own if sum(_NAMES.get(w, 0) for w in words(p)) > 3}:
        return 1.5 + inside
    noise = [_word(v) for v in column.common if v != value]
    if named and word in _YES and any(other in _NOISE for other in noise):
        return 1.0 + inside
    return None


def _only_where(column: Column, picked: Sequence[bool]) -> bool:
    """Whether a field is there in the picked rows and nowhere else."""
    inside = [v is not None for v, p in zip(column.values, picked, strict=True) if p]
    outside = [v is not None for v, p in zip(column.values, picked, strict=True) if not p]
    return _share(inside) >= _PRESENT and _share(outside) <= 1 - _PRESENT


def _share(held: Sequence[bool]) -> float:
    return sum(held) / len(held) if held else 0.0
