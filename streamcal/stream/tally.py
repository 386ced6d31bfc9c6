"""Event counters, whole and per model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["COUNTERS", "MODEL_COUNTERS", "Tally"]

MODEL_COUNTERS = (
    "accepted_prediction",
    "matched",
    "expired",
    "negative_at_maturity",
    "duplicate_prediction",
    "late_prediction",
    "duplicate_outcome",
    "revised_outcome",
    "without_raw",
    "extreme",
)
"""Counted per model."""

COUNTERS = (*MODEL_COUNTERS, "accepted_outcome", "late_outcome", "orphan_outcome", "ignored", "clipped")
"""All counters but `rejected`, which is kept by topic and reason."""


class Tally:
    """Counts what happened to events; only ever grows.

    Attributes
    ----------
    rejected : Counter
        (topic, reason) to count.
    """

    STATE = ("_whole", "_by_model", "rejected", "_abandoned")

    def __init__(self) -> None:
        self._whole: Counter[str] = Counter()
        self._by_model: dict[str, NDArray[np.int64]] = {name: np.zeros(1, dtype=np.int64) for name in MODEL_COUNTERS}
        self.rejected: Counter[tuple[str, str]] = Counter()
        self._abandoned: Counter[int] = Counter()

    def told(self) -> tuple[dict[str, int], dict[str, list[int]], list[tuple[str, str, int]]]:
        """All counters: whole ones, those by model index, and (topic, reason, count) of what was rejected."""
        by_model = {name: held.tolist() for name, held in self._by_model.items()}
        return dict(self._whole), by_model, [(*key, count) for key, count in sorted(self.rejected.items())]

    def clear(self) -> None:
        """Begin at zero again, to be filled by `include`."""
        self._whole.clear()
        self._by_model = {name: np.zeros(1, dtype=np.int64) for name in MODEL_COUNTERS}
        self.rejected.clear()

    def include(
        self,
        whole: Mapping[str, int],
        by_model: Mapping[str, Sequence[int]],
        rejected: Iterable[tuple[str, str, int]],
        models: Sequence[int],
    ) -> None:
        """Add what another tally `told`; `models` numbers its models here."""
        self._whole.update(whole)
        size = max(models, default=-1) + 1
        for name, counts in by_model.items():
            held = self._by_model[name]
            if size > len(held):
                held = self._by_model[name] = np.append(held, np.zeros(size - len(held), dtype=np.int64))
            held[list(models)] += np.array([*counts, *[0] * len(models)][: len(models)], dtype=np.int64)
        for topic, reason, count in rejected:
            self.rejected[topic, reason] += count

    def abandon(self, model: NDArray[np.int32]) -> None:
        """Leave out of `pending` predictions whose partition went elsewhere, one entry of `model` each."""
        self._abandoned.update(model.tolist())

    def add(self, name: str, count: int) -> None:
        """Add `count` to a counter that is not kept per model."""
        self._whole[name] += count

    def add_by_model(self, name: str, model: NDArray[np.int32]) -> None:
        """Count one event per entry of `model` (model indices)."""
        if not len(model):
            return
        found = np.bincount(model)
        held = self._by_model[name]
        if len(found) > len(held):
            held = self._by_model[name] = np.concatenate([held, np.zeros(len(found) - len(held), dtype=np.int64)])
        held[: len(found)] += found

    def of_model(self, model: int) -> dict[str, int]:
        """The per-model counters of one model index."""
        return {name: int(held[model]) if model < len(held) else 0 for name, held in self._by_model.items()}

    def total(self) -> dict[str, int]:
        """Every counter, summed over models."""
        totals = {name: int(held.sum()) for name, held in self._by_model.items()}
        return {name: totals[name] if name in totals else self._whole[name] for name in COUNTERS}

    def pending(self, model: int | None = None) -> int:
        """Accepted predictions not yet released, of one model or of all."""
        counts = self.total() if model is None else self.of_model(model)
        gone = self._abandoned.total() if model is None else self._abandoned[model]
        released = counts["matched"] + counts["expired"] + counts["negative_at_maturity"]
        return counts["accepted_prediction"] - released - gone
