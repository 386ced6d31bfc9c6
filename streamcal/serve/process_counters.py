"""Counts of what this process did, from any thread: they live as long as the process, not as the stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

__all__ = ["PROCESS_COUNTERS", "CounterSpec", "ProcessCounters"]


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """One counter: its help text and its labels."""

    text: str
    labels: tuple[str, ...] = ()


PROCESS_COUNTERS: Final[Mapping[str, CounterSpec]] = {
    "streamcal_dead_letter": CounterSpec("Rejected events stored in the dead-letter topic.", ("topic", "reason")),
    "streamcal_dead_letter_failed": CounterSpec(
        "Rejected events that the dead-letter topic does not take; they are in their own topic only.",
        ("topic", "error"),
    ),
    "streamcal_partitioner_checked": CounterSpec("Records sampled for the partition their key belongs to.", ("topic",)),
    "streamcal_partitioner_mismatch": CounterSpec(
        "Sampled records that are not in the partition their key belongs to.", ("topic",)
    ),
    "streamcal_repartitioned": CounterSpec("Records written again keyed by id.", ("topic",)),
}
"""Every counter there is; `_total` is appended on export."""


class ProcessCounters:
    """Adds up and shows.

    >>> counters = ProcessCounters()
    >>> counters.add("streamcal_repartitioned", ("outcomes",), 3)
    >>> [(s.name, s.labels, s.value) for family in counters.families() for s in family.samples]
    [('streamcal_repartitioned_total', {'topic': 'outcomes'}, 3)]
    """

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], int]] = {}
        self._lock = Lock()

    def add(self, name: str, labels: tuple[str, ...] = (), count: int = 1) -> None:
        """Count `count` more; `labels` in the order of the specification."""
        assert len(labels) == len(PROCESS_COUNTERS[name].labels), f"{name} has other labels"
        with self._lock:
            held = self._counts.setdefault(name, {})
            held[labels] = held.get(labels, 0) + count

    def value(self, name: str, labels: tuple[str, ...] = ()) -> int:
        """The present count."""
        with self._lock:
            return self._counts.get(name, {}).get(labels, 0)

    def families(self) -> Iterator[Metric]:
        """What has been counted, in a fixed order."""
        with self._lock:
            counts = {name: dict(held) for name, held in self._counts.items()}
        for name, spec in PROCESS_COUNTERS.items():
            if name in counts:
                family = CounterMetricFamily(name, spec.text, labels=spec.labels)
                for labels, count in sorted(counts[name].items()):
                    family.add_metric(labels, count)
                yield family
