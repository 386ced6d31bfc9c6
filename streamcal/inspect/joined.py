"""What is wrong with how the two samples pair, and with what the pairs say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from streamcal.inspect.config_text import flow
from streamcal.inspect.fields import Looked
from streamcal.inspect.findings import Finding, counted, listed, percent, problem, warning
from streamcal.inspect.guess_ids import guess_ids
from streamcal.inspect.pairing import Decoded, Pairs, profile_counts
from streamcal.inspect.proposal import backwards_ms, round_span
from streamcal.inspect.topics import about, duration_text
from streamcal.stream.events import MISSING, NO_MODEL
from streamcal.stream.times import LOWEST_MS

__all__ = ["joined_findings", "joined_rows", "stream_findings"]

_MATCHED: Final = 0.95
_LATE: Final = 0.01
_SOME: Final = 0.001
_FEWEST: Final = 20
"""Pairs from which a share means anything."""


def joined_rows(pairs: Pairs, *, positives_only: bool) -> Iterator[tuple[str, str]]:
    """What the pairs tell, one line each."""
    yield (
        "matched",
        f"{percent(pairs.matched, pairs.judged)} of {counted(pairs.judged, 'outcome')} that could be judged",
    )
    if not len(pairs.delays_ms):
        return
    shares = (0.5, 0.9, 0.99, 0.999)
    quantiles = ", ".join(f"{100 * share:g} % {about(pairs.delay_quantile_ms(share))}" for share in shares)
    yield "label delay", f"{quantiles}, longest {about(int(pairs.delays_ms[-1]))}"
    if not np.isnan(pairs.labelled):
        yield "labelled", f"{percent(pairs.labelled, 1)} of the predictions old enough have an outcome"
    if positives_only and not np.isnan(pairs.positive):
        yield "base rate", f"{percent(pairs.positive, 1)} of the predictions old enough are positive"
    elif not positives_only:
        yield "base rate", f"{percent(pairs.base_rate, 1)} of the labels are positive"
    scores = pairs.score[~np.isnan(pairs.score)]
    if len(scores):
        yield "mean score", f"{100 * scores.mean():.3g} % over the pairs"


def joined_findings(predictions: Looked, outcomes: Looked, decoded: Decoded, pairs: Pairs) -> Iterator[Finding]:
    """Whether enough outcomes find their prediction, in time."""
    if predictions.accepted and outcomes.accepted:
        yield from _matching(predictions, outcomes, pairs)
    yield from _models(decoded)
    yield from _delays(predictions, pairs)
    yield from _labels(outcomes, pairs)


def _matching(predictions: Looked, outcomes: Looked, pairs: Pairs) -> Iterator[Finding]:
    if not pairs.conclusive:
        yield warning(
            "none of the outcomes sampled is young enough for the predictions sampled: whether they match is not known",
            "look at more with --records and --seconds, or wait until outcomes of these predictions have come",
        )
        return
    if pairs.share >= _MATCHED:
        return
    ids = guess_ids(predictions.table, outcomes.table)
    other = ids is not None and (ids.prediction, ids.outcome) != (predictions.paths["id"], outcomes.paths["id"])
    change = "check that both ids are the same text, and that the predictions of these outcomes are in this topic"
    if other and ids is not None and ids.shared > pairs.share:
        change = (
            f"set events.prediction.id: {flow(ids.prediction)} and events.outcome.id: {flow(ids.outcome)} "
            f"({ids.reason})"
        )
    elif not predictions.sample.complete:
        change += "; more of the predictions are looked at with --records and --seconds"
    yield problem(
        f"only {percent(pairs.matched, pairs.judged)} of {counted(pairs.judged, 'outcome')} match a prediction by id",
        change,
    )


def _models(decoded: Decoded) -> Iterator[Finding]:
    named = decoded.outcomes.model[decoded.outcomes.model != NO_MODEL]
    strange = set(named.tolist()) - set(decoded.predictions.model.tolist())
    count = int(np.isin(named, list(strange)).sum())
    if count > _LATE * len(decoded.outcomes.row):
        names = listed([decoded.names.models[model] for model in sorted(strange)])
        share = percent(count, len(decoded.outcomes.row))
        yield problem(
            f"{share} of the outcomes name models that no prediction names: {names}",
            "set events.outcome.model: null if that field is something else (outcomes are then for every model)",
        )


def _delays(predictions: Looked, pairs: Pairs) -> Iterator[Finding]:
    found, join = len(pairs.delays_ms), predictions.config.join
    if found < _FEWEST:
        return
    horizon = predictions.config.longest_horizon_ms
    late = int((pairs.delays_ms > horizon).sum())
    if late > _SOME * found:
        wanted = duration_text(round_span(pairs.delay_quantile_ms(0.999) * 1.25))
        finding = problem if late > _LATE * found else warning
        yield finding(
            f"{percent(late, found)} of the outcomes come later than the horizon of {duration_text(horizon)} and are "
            f"not counted; 99.9 % come within {about(pairs.delay_quantile_ms(0.999))}",
            f"set join.horizon: {wanted}",
        )
    elif 0 < pairs.delay_quantile_ms(1.0) * 20 < horizon:
        yield warning(
            f"the slowest outcome took {about(pairs.delay_quantile_ms(1.0))} and the horizon is "
            f"{duration_text(horizon)}: memory grows with it, and what waits for it (alarms among it) waits long",
            f"join.horizon: {duration_text(round_span(pairs.delay_quantile_ms(1.0) * 1.25))} would do for this sample",
        )
    early = int((pairs.delays_ms < -join.skew.ms).sum())
    if early > _SOME * found:
        finding = problem if early > _LATE * found else warning
        wanted = duration_text(round_span(-float(pairs.delays_ms[0])))
        yield finding(
            f"{percent(early, found)} of the outcomes have a time before their prediction's by more than join.skew "
            f"({join.skew}), up to {about(-int(pairs.delays_ms[0]))}, and are not counted",
            f"check the clocks and time zones of the producers, or set join.skew: {wanted}",
        )


def _labels(outcomes: Looked, pairs: Pairs) -> Iterator[Finding]:
    positives_only = outcomes.config.join.labels == "positives_only"
    if len(pairs.label) < _FEWEST:
        return
    if not positives_only and pairs.base_rate == 1.0 and pairs.labelled < _MATCHED:
        yield problem(
            f"every label is positive, and {percent(1 - pairs.labelled, 1)} of the predictions have none: without "
            "negatives the base rate would be 1",
            "set join.labels: positives_only",
        )
    if positives_only and pairs.base_rate < 1.0:
        yield warning(
            f"{percent(1 - pairs.base_rate, 1)} of the outcomes are negative, although only positives are expected",
            "set join.labels: both if negatives always come too; they are then known sooner",
        )


def stream_findings(looked: Looked, decoded: Decoded) -> Iterator[Finding]:
    """Disorder, timestamps and segments of one topic."""
    join = looked.config.join
    batch = decoded.predictions if looked.role == "prediction" else decoded.outcomes
    partition = decoded.prediction_partition if looked.role == "prediction" else decoded.outcome_partition
    allowed = join.out_of_order.ms
    if looked.role == "prediction" and len(batch.row):
        behind = backwards_ms(batch.time_ms, partition, 1 - _SOME)
        if behind > allowed:
            finding = problem if backwards_ms(batch.time_ms, partition, 1 - _LATE) > allowed else warning
            yield finding(
                f"times of the predictions run backwards by up to {about(behind)} (99.9 %), and what is more than "
                f"join.out_of_order ({join.out_of_order}) behind is late_prediction",
                f"set join.out_of_order: {duration_text(round_span(behind))}",
            )
    stamps = [r.timestamp for r in looked.sample.records if r.timestamp is not None and r.timestamp >= 0]
    old = sum(stamp < LOWEST_MS for stamp in stamps)
    if old:
        yield problem(
            f"the record timestamps of {percent(old, len(stamps))} of the {looked.topic} lie before 2000: they are no "
            "milliseconds, and Kafka deletes such records as soon as retention looks at them",
            "the producer must set record timestamps in milliseconds, or none",
        )
    if looked.role == "prediction":
        yield from _segments(looked, decoded)


def _segments(looked: Looked, decoded: Decoded) -> Iterator[Finding]:
    for name, counts in profile_counts(decoded).items():
        total = sum(counts.values())
        if total and counts[MISSING] > total / 2:
            yield warning(
                f"{percent(counts[MISSING], total)} of the predictions have no {name} and count as {MISSING}",
                f"set the path of {name} in events.prediction.segments, or take it out of segments.cuts",
            )
        most = looked.config.segments.max_segments
        if len(counts) > most:
            yield warning(
                f"{name} has {len(counts):,} values in the sample alone, more than segments.max_segments ({most:,}); "
                "the rest is counted together",
                "choose a coarser dimension, or raise segments.max_segments",
            )
