"""Early signs and how labels come, as metric families.

Named apart from the figures on purpose: nothing called ``streamcal_early_*`` or ``streamcal_score_shift`` has all its
labels, and no figure has anything of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from streamcal.serve.exposition import label_value
from streamcal.snapshot import EarlyEstimate, Snapshot

__all__ = ["EARLY", "LABELS", "SHIFT", "early_families"]

LABELS: Final = {
    "streamcal_label_coverage_ratio": "Share of matured predictions whose label is known.",
    "streamcal_label_delay_seconds": "Delay from prediction to outcome, by quantile.",
    "streamcal_unmatched_ratio": "Share of matured predictions without any outcome, by score band.",
}
"""Metric to help text: how labels came to the predictions of the newest matured longest window."""

EARLY: Final[dict[str, tuple[str, Callable[[EarlyEstimate], float | None]]]] = {
    "streamcal_early_predicted_to_observed_ratio": (
        "Expected over seen positives of predictions that have not matured; a warning, no figure.",
        lambda early: early.ratio,
    ),
    "streamcal_early_predicted_to_observed_ratio_stderr": (
        "Standard error of the early ratio.",
        lambda early: early.ratio_se,
    ),
    "streamcal_early_positive_outcomes": (
        "Positives seen that the early ratio compares.",
        lambda early: early.positives,
    ),
    "streamcal_early_expected_positives": (
        "Positives that scores and delays say should be seen by now.",
        lambda early: early.expected_positives,
    ),
    "streamcal_early_predictions": (
        "Predictions that the early ratio compares.",
        lambda early: early.predictions,
    ),
}
"""Metric to help text and value."""

SHIFT: Final = {
    "streamcal_score_shift": "Population stability index of raw scores against the longest window before.",
    "streamcal_score_shift_noise_floor": "Mean of the index if nothing shifted.",
}


def early_families(snapshot: Snapshot) -> Iterator[Metric]:
    """One family per metric; what is not known leaves no sample."""
    yield from _label_families(snapshot)
    for metric, (says, value) in EARLY.items():
        family = GaugeMetricFamily(metric, says, labels=("model",))
        for model in snapshot.models:
            found = None if model.early is None else value(model.early)
            if found is not None:
                family.add_metric((label_value(model.name),), found)
        yield family
    yield from _shift_families(snapshot)


def _label_families(snapshot: Snapshot) -> Iterator[Metric]:
    labels = (("model",), ("model", "quantile"), ("model", "lo", "hi"))
    coverage, delay, unmatched = (
        GaugeMetricFamily(metric, says, labels=names)
        for (metric, says), names in zip(LABELS.items(), labels, strict=True)
    )
    for model in snapshot.models:
        if model.labels is None:
            continue
        name = label_value(model.name)
        coverage.add_metric((name,), model.labels.coverage)
        for share, seconds in sorted(model.labels.delay_seconds.items()):
            delay.add_metric((name, str(share)), seconds)
        for band in model.labels.unmatched:
            unmatched.add_metric((name, str(band.lo), str(band.hi)), band.share)
    yield from (coverage, delay, unmatched)


def _shift_families(snapshot: Snapshot) -> Iterator[Metric]:
    index, floor = (
        GaugeMetricFamily(metric, says, labels=("model", "cut", "segment", "window")) for metric, says in SHIFT.items()
    )
    for model in snapshot.models:
        for (series, window), shift in sorted(model.score_shift.items()):
            labels = (label_value(model.name), label_value(series.cut), label_value(series.segment), window)
            index.add_metric(labels, shift.index)
            floor.add_metric(labels, shift.noise_floor)
    yield from (index, floor)
