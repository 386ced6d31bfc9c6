"""Both samples through the decoders of a configuration, and how they pair by id.

Theory of operation. A sample is the end of a topic, so the prediction of a sampled outcome may lie before the sampled
predictions. Where these do not reach back to the beginning of their topic, only those outcomes are judged that are
younger than the first sampled prediction by the 99 % delay (of the pairs found) or more; of others nothing can be said.
Outcomes before the first sampled prediction are never judged. Pairs are made by id alone, whatever the horizon, so that
a horizon that is too short shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamcal.inspect.sample import Sample
from streamcal.settings import EngineSettings
from streamcal.stream.events import Names, OutcomeBatch, PredictionBatch

__all__ = ["Decoded", "Pairs", "decode", "pair", "profile_counts"]

_SURE: Final = 0.99
"""Quantile of the delays that a prediction sample must reach back for an outcome to be judged."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """Both samples as the engine would read them.

    Attributes
    ----------
    names : Names
        Of models and segment profiles.
    prediction_partition, outcome_partition : int64 arrays
        One entry per accepted event.
    """

    predictions: PredictionBatch
    outcomes: OutcomeBatch
    names: Names
    prediction_partition: Ints
    outcome_partition: Ints
    prediction_rejections: Counter[str]
    outcome_rejections: Counter[str]


def decode(settings: EngineSettings, predictions: Sample, outcomes: Sample) -> Decoded:
    """Decode both samples."""
    names = Names(settings.dimensions)
    prediction_decoder, outcome_decoder = settings.decoders(names)
    taken = prediction_decoder.decode(predictions.records)
    known = outcome_decoder.decode(outcomes.records)
    return Decoded(
        predictions=taken,
        outcomes=known,
        names=names,
        prediction_partition=_partitions(predictions)[taken.row],
        outcome_partition=_partitions(outcomes)[known.row],
        prediction_rejections=Counter(rejection.reason for rejection in taken.rejected),
        outcome_rejections=Counter(rejection.reason for rejection in known.rejected),
    )


def _partitions(sample: Sample) -> Ints:
    return np.array([record.partition for record in sample.records], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Pairs:
    """How the samples pair.

    Attributes
    ----------
    judged, matched : int
        Outcomes of which something can be said, and those of them whose id a prediction has.
    delays_ms : int64 array
        Outcome time minus prediction time of every pair, sorted.
    label : int8 array
        Of every pair.
    score : float64 array
        Raw score of every pair; NaN where only a served one is known.
    elsewhere : int
        Pairs whose two records are in different partitions.
    labelled : float
        Share of predictions old enough to have an outcome by now that have one.
    positive : float
        Share of predictions old enough whose outcome is positive (those without one count as negative).
    """

    judged: int
    matched: int
    delays_ms: Ints
    label: NDArray[np.int8]
    score: NDArray[np.float64]
    elsewhere: int
    labelled: float
    positive: float

    @property
    def conclusive(self) -> bool:
        """Whether there was anything to judge."""
        return self.judged > 0

    @property
    def share(self) -> float:
        """Share of the judged outcomes that match; 0 where there are none."""
        return self.matched / self.judged if self.judged else 0.0

    @property
    def base_rate(self) -> float:
        """Share of positive labels among the pairs; NaN without any."""
        return float(self.label.mean()) if len(self.label) else float("nan")

    def delay_quantile_ms(self, share: float) -> int:
        """The delay that a share of the pairs does not exceed; needs pairs."""
        return int(self.delays_ms[min(int(np.ceil(share * len(self.delays_ms))), len(self.delays_ms)) - 1])


def pair(found: Decoded, *, predictions_complete: bool) -> Pairs:
    """Pair outcomes with the first prediction of their id."""
    taken, known = found.predictions, found.outcomes
    place = _first_with(_ids(taken.id_hi, taken.id_lo), _ids(known.id_hi, known.id_lo))
    hit = place >= 0
    at = place[hit]
    delays = known.time_ms[hit] - taken.time_ms[at]
    judged = _judged(known.time_ms, taken.time_ms, delays, complete=predictions_complete)
    labelled, positive = _known_by_now(taken, known, at, hit, delays)
    return Pairs(
        judged=int(judged.sum()),
        matched=int((judged & hit).sum()),
        delays_ms=np.sort(delays),
        label=known.label[hit],
        score=taken.raw[at],
        elsewhere=int((found.outcome_partition[hit] != found.prediction_partition[at]).sum()),
        labelled=labelled,
        positive=positive,
    )


def _judged(outcome_ms: Ints, prediction_ms: Ints, delays: Ints, *, complete: bool) -> NDArray[np.bool_]:
    if not len(prediction_ms):
        return np.zeros(len(outcome_ms), dtype=np.bool_)
    first = int(prediction_ms.min())
    reach = 0 if complete or not len(delays) else max(0, int(np.quantile(delays, _SURE)))
    # Clocks differ, so an outcome may come a little before its prediction.
    ahead = min(0, int(delays.min())) if len(delays) else 0
    return np.asarray(outcome_ms >= first + reach + ahead)


def _known_by_now(
    taken: PredictionBatch, known: OutcomeBatch, at: Ints, hit: NDArray[np.bool_], delays: Ints
) -> tuple[float, float]:
    """Shares of labelled and positive among predictions older than nearly all delays."""
    if not len(delays) or not len(known.time_ms):
        return float("nan"), float("nan")
    old = taken.time_ms <= int(known.time_ms.max()) - int(np.quantile(delays, _SURE))
    if not old.any():
        return float("nan"), float("nan")
    has, yes = np.zeros(len(old), dtype=np.bool_), np.zeros(len(old), dtype=np.bool_)
    has[at] = True
    yes[at[known.label[hit] == 1]] = True
    return float(has[old].mean()), float(yes[old].mean())


def _ids(hi: NDArray[np.uint64], lo: NDArray[np.uint64]) -> NDArray[np.void]:
    found = np.empty(len(hi), dtype=[("hi", np.uint64), ("lo", np.uint64)])
    found["hi"], found["lo"] = hi, lo
    return found


def _first_with(ids: NDArray[np.void], wanted: NDArray[np.void]) -> Ints:
    """Place of the first of `ids` equal to each of `wanted`; -1 where there is none."""
    if not len(ids) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    distinct, first = np.unique(ids, return_index=True)
    near = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    return np.where(distinct[near] == wanted, first[near], -1).astype(np.int64)


def profile_counts(found: Decoded) -> Mapping[str, Counter[str]]:
    """How often which value of each segment dimension comes."""
    counts = Counter(found.predictions.profile.tolist())
    result: dict[str, Counter[str]] = {name: Counter() for name in found.names.dimensions}
    for profile, count in counts.items():
        for name, value in zip(found.names.dimensions, found.names.profiles[profile], strict=True):
            result[name][value] += count
    return result
