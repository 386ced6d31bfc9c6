"""A configuration guessed from a sample of both topics, with the reason for each key.

What is given is taken as it is, and what depends on it is guessed accordingly. Spans come last: the rest is decoded by
the decoders of the product, and the horizon and the tolerance for disorder are read off the pairs that result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streamcal.errors import StreamcalError
from streamcal.inspect.columns import Column, Table
from streamcal.inspect.findings import counted, percent
from streamcal.inspect.guess_ids import guess_ids
from streamcal.inspect.guess_labels import guess_filter, guess_label
from streamcal.inspect.guess_scores import (
    guess_model,
    guess_raw_score,
    guess_score,
    guess_segments,
    guess_version,
    guess_weight,
    near_scores,
)
from streamcal.inspect.guess_times import guess_time, unusable_times
from streamcal.inspect.pairing import Decoded, Pairs
from streamcal.inspect.sample import Sample
from streamcal.inspect.time_forms import times_ms
from streamcal.inspect.topics import about, duration_text

__all__ = ["CannotGuessError", "Guess", "Proposal", "backwards_ms", "guess_fields", "guess_spans", "round_span"]

_SURE: Final = 0.999
_MARGIN: Final = 1.25
"""The slowest labels of a sample are not the slowest there are, and the end of a topic lacks those still to come."""
_SPANS: Final = tuple(
    1000 * s
    for s in (
        *(60, 300, 900, 1800, 3600, 2 * 3600, 6 * 3600, 12 * 3600),
        *(86400 * days for days in (1, 2, 3, 7, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365)),
    )
)
_NEEDED: Final = "give it with --set {}=PATH"


class CannotGuessError(StreamcalError):
    """A field without which nothing works was not found."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Guess:
    """A value for one key, and why."""

    value: Any
    reason: str


@dataclass(slots=True)
class Proposal:
    """Dotted keys of the configuration to values, in the order in which they are written.

    Attributes
    ----------
    given : mapping
        Keys whose values were not guessed.
    doubts : list of str
        What a person should look at.
    """

    given: Mapping[str, Any]
    guesses: dict[str, Guess] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def put(self, key: str, value: Any, reason: str) -> None:
        """Propose a value, unless one is given."""
        self.guesses[key] = Guess(self.given[key], "given") if key in self.given else Guess(value, reason)

    def value(self, key: str) -> Any:
        """The value of a key, None if there is none."""
        held = self.guesses.get(key)
        return self.given.get(key) if held is None else held.value


def guess_fields(
    predictions: Table, outcomes: Table, samples: tuple[Sample, Sample], given: Mapping[str, Any]
) -> Proposal:
    """Guess the section `events` and the labels of `join`.

    Raises
    ------
    CannotGuessError
        No id, no score or nothing readable was found.
    """
    for topic, table in (("predictions", predictions), ("outcomes", outcomes)):
        if not len(table):
            raise CannotGuessError(
                f"none of the {counted(table.unreadable, 'record')} of the {topic} sampled is a JSON object",
                hint="values in the Confluent wire format need --schema-registry URL; other formats are not read",
            )
    found = Proposal(given)
    _ids(found, predictions, outcomes)
    _prediction(found, predictions, samples[0])
    _outcome(found, predictions, outcomes, samples[1])
    _segments(found, predictions)
    return found


def _ids(found: Proposal, predictions: Table, outcomes: Table) -> None:
    key = "events.{}.id"
    fixed = {topic: found.given.get(key.format(topic)) for topic in ("prediction", "outcome")}
    ids = guess_ids(predictions, outcomes, prediction=fixed["prediction"], outcome=fixed["outcome"])
    if ids is None:
        raise CannotGuessError(
            "no field of the outcomes sampled holds a value of any field of the predictions sampled",
            hint="take a larger sample (--records), or name the ids with --set events.prediction.id=PATH and "
            "--set events.outcome.id=PATH",
        )
    found.put(key.format("prediction"), ids.prediction, ids.reason)
    found.put(key.format("outcome"), ids.outcome, ids.reason)


def _prediction(found: Proposal, table: Table, sample: Sample) -> None:
    _time(found, "prediction", table, sample)
    score = guess_score(table) if "events.prediction.score" not in found.given else ("", "")
    if score is None:
        near = "; ".join(f"{path} holds {reason}" for path, reason in near_scores(table))
        raise CannotGuessError(
            f"no field of the predictions holds numbers in [0, 1]{': ' + near if near else ''}",
            hint=_NEEDED.format("events.prediction.score"),
        )
    found.put("events.prediction.score", *score)
    for name, guess in (
        ("raw_score", guess_raw_score(table, found.value("events.prediction.score"))),
        ("map_version", guess_version(table)),
        ("model", guess_model(table)),
        ("weight", guess_weight(table)),
    ):
        found.put(f"events.prediction.{name}", *(guess or (None, "no such field")))


def _time(
    found: Proposal, topic: str, table: Table, sample: Sample, begun: Mapping[str, int] | None = None
) -> Mapping[str, int]:
    """Propose the time of a topic; returns the time of each id."""
    key = f"events.{topic}"
    ids = table.columns[found.value(f"{key}.id")]
    guess = guess_time(table, sample.records, given=found.given.get(f"{key}.time"), begun=begun, ids=ids)
    if guess.path is None and found.given.get(f"{key}.time") is None:
        unusable = "".join(f"; {path} is not used: {reason}" for path, reason in unusable_times(table))
        found.put(f"{key}.time_source", "record", guess.reason + unusable)
        found.doubts.append(f"the {topic} time is that of the record, when it was written{unusable}")
        return {}
    found.put(f"{key}.time", guess.path, "a field of times from 2000 to 2100")
    found.put(f"{key}.time_unit", guess.unit, guess.reason)
    column = table.columns.get(found.value(f"{key}.time"))
    if column is None:
        return {}
    times = times_ms(column, found.value(f"{key}.time_unit"))
    return {str(i): t for i, t in zip(ids.values, times, strict=True) if i is not None and t is not None}


def _outcome(found: Proposal, predictions: Table, outcomes: Table, sample: Sample) -> None:
    ids = outcomes.columns[found.value("events.outcome.id")]
    score_of = _scores_by_id(found, predictions)
    chosen = _filter(found, outcomes, ids, score_of)
    begun = _begun(found, predictions)
    _time(found, "outcome", chosen, sample, begun)
    paths = (found.value("events.outcome.id"), found.value("events.outcome.time"), _filter_path(found))
    taken = {path for path in paths if path is not None}
    scores = [score_of.get(str(name)) for name in chosen.columns[ids.path].values]
    label = guess_label(chosen, scores, taken, found.given.get("events.outcome.label"))
    if label.path is not None:
        found.put("events.outcome.label", label.path, label.reason)
        for name, held in (("positive_values", label.positive_values), ("negative_values", label.negative_values)):
            if held is not None or f"events.outcome.{name}" in found.given:
                found.put(f"events.outcome.{name}", held, "")
    elif "events.outcome.label" in found.given:
        found.put("events.outcome.label", None, "")
        found.doubts.append(
            "the values of the label are no known words: say what they mean with events.outcome.positive_values and "
            "negative_values, and set join.labels"
        )
    known = predictions.columns.get(found.value("events.prediction.model") or "")
    model = guess_model(chosen, known, outcome=True)
    found.put("events.outcome.model", *(model or (None, "outcomes name no model, so they are for every one")))
    found.put("join.labels", "positives_only" if label.positives_only else "both", label.reason)
    if label.positives_only:
        found.doubts.append(
            "outcomes are taken for positives only: a prediction without one within the horizon is a no"
        )


def _filter_path(found: Proposal) -> str | None:
    held = found.value("events.outcome.filter")
    return held.get("path") if isinstance(held, Mapping) else None


def _filter(found: Proposal, outcomes: Table, ids: Column, known: Mapping[str, float]) -> Table:
    """Propose a filter; returns the rows it picks."""
    key = "events.outcome.filter"
    if key not in found.given:
        guess = guess_filter(outcomes, ids, known, {ids.path})
        if guess is None:
            return outcomes.where([value is not None for value in ids.values])
        found.put(key, {"path": guess.path, "equals": guess.equals}, guess.reason)
    else:
        found.put(key, None, "")
    held = found.value(key)
    column = outcomes.columns.get(_filter_path(found) or "")
    if column is None:
        return outcomes
    return outcomes.where([value is not None and value == held.get("equals") for value in column.values])


def _scores_by_id(found: Proposal, predictions: Table) -> dict[str, float]:
    ids = predictions.columns[found.value("events.prediction.id")]
    score = predictions.columns.get(found.value("events.prediction.score"))
    values = [0.0] * len(ids.values) if score is None else score.values
    return {
        str(name): float(value)
        for name, value in zip(ids.values, values, strict=True)
        if name is not None and isinstance(value, int | float)
    }


def _begun(found: Proposal, predictions: Table) -> Mapping[str, int]:
    path, unit = found.value("events.prediction.time"), found.value("events.prediction.time_unit")
    if path not in predictions.columns:
        return {}
    ids = predictions.columns[found.value("events.prediction.id")]
    times = times_ms(predictions.columns[path], unit)
    return {str(i): t for i, t in zip(ids.values, times, strict=True) if i is not None and t is not None}


def _segments(found: Proposal, predictions: Table) -> None:
    names = ("id", "time", "score", "raw_score", "map_version", "model", "weight")
    taken = {found.value(f"events.prediction.{name}") for name in names}
    dimensions = guess_segments(predictions, taken)
    given = found.given.get("events.prediction.segments")
    if given is None and not dimensions:
        found.put("segments.cuts", [], "no field with few values that recur")
        return
    reason = "; ".join(f"{name}: {why}" for name, (_, why) in dimensions.items())
    found.put("events.prediction.segments", {name: path for name, (path, _) in dimensions.items()}, reason)
    held = found.value("events.prediction.segments")
    cuts = [[name] for name in held] if isinstance(held, Mapping) else []
    found.put("segments.cuts", cuts, "each by itself; add combinations as [a, b]")


def guess_spans(found: Proposal, decoded: Decoded, pairs: Pairs) -> None:
    """Propose horizon, skew and disorder from what the decoders made of the samples."""
    if not len(pairs.delays_ms):
        found.put("join.horizon", "24h", "no pair was found to read it off")
        found.doubts.append(
            "no outcome of the sample belongs to a prediction of the sample: nothing confirms the guesses"
        )
        return
    slowest = max(0, pairs.delay_quantile_ms(_SURE))
    horizon = round_span(slowest * _MARGIN)
    found.put(
        "join.horizon",
        duration_text(horizon),
        f"of {counted(len(pairs.delays_ms), 'pair')} half took up to {about(pairs.delay_quantile_ms(0.5))}, 99.9 % up "
        f"to {about(slowest)}; with a quarter on top, rounded up",
    )
    early = int(-pairs.delays_ms[0])
    if early > 0:
        share = percent(float((pairs.delays_ms < 0).sum()), len(pairs.delays_ms))
        reason = f"{share} of the outcomes have an earlier time than their prediction, by up to {early} ms"
        found.put("join.skew", duration_text(round_span(early)), reason)
    behind = max(
        backwards_ms(decoded.predictions.time_ms, decoded.prediction_partition),
        backwards_ms(decoded.outcomes.time_ms, decoded.outcome_partition),
    )
    if behind > 60_000:
        found.put(
            "join.out_of_order", duration_text(round_span(behind)), f"times run backwards by up to {behind / 1000:g} s"
        )


def round_span(ms: float) -> int:
    """The next round span."""
    return next((span for span in _SPANS if span >= ms), math.ceil(ms / 86_400_000) * 86_400_000)


def backwards_ms(times: NDArray[np.int64], partitions: NDArray[np.int64], share: float = _SURE) -> int:
    """By how much times of a partition lie behind the latest before them: what a share of them does not exceed."""
    behind = [np.maximum.accumulate(times[partitions == n]) - times[partitions == n] for n in np.unique(partitions)]
    joined = np.concatenate(behind) if behind else np.zeros(1, dtype=np.int64)
    return int(np.quantile(joined, share, method="higher")) if len(joined) else 0
