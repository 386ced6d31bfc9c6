"""Predictions after their horizon: they can only make an outcome late, and a mark of a third the size is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.due_queue import DueQueue
from streamcal.stream.events import NO_MODEL, OutcomeBatch
from streamcal.stream.keyed_rows import KeyedRows
from streamcal.stream.rules import RuleTable

__all__ = ["Marks"]

Ints = NDArray[np.int64]


class Marks(KeyedRows):
    """Ids, models and times of predictions whose horizon both logs have passed.

    Parameters
    ----------
    skew_ms : int
    rules : RuleTable
    """

    def __init__(self, skew_ms: int, rules: RuleTable) -> None:
        super().__init__({"time": np.int64, "model": np.int32})
        self._skew_ms = skew_ms
        self._rules = rules
        self._due = DueQueue()

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the queue."""
        return super().nbytes + self._due.nbytes

    def dump_state(self) -> dict[str, Any]:
        """The table and the queue."""
        return super().dump_state() | {"due": self._due.dump_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        super().load_state(state)
        self._due.load_state(state["due"])
        # Live rows alone: of the others nothing is known, not even a model where there never was one.
        self._rules.know(int(self.columns["model"][self.live()].max(initial=-1)))

    def put(
        self,
        ids: tuple[NDArray[np.uint64], NDArray[np.uint64]],
        time: Ints,
        model: NDArray[np.int32],
        outcome_watermark: int,
    ) -> None:
        """Mark predictions, but for those that no outcome to come can be late for."""
        due = time + 2 * self._rules.horizon[model]
        needed = due >= outcome_watermark
        hi, lo = ids[0][needed], ids[1][needed]
        rows = self.add(hi, lo, self.find(hi, lo))
        self.columns["time"][rows] = time[needed]
        self.columns["model"][rows] = model[needed]
        self._due.push(due[needed], rows)

    def late(self, batch: OutcomeBatch, watermark: Ints) -> Ints:
        """Outcomes of the batch that come late for a marked prediction (indices, may repeat)."""
        owner, rows = self.chains(self.find(batch.id_hi, batch.id_lo))
        model, made = self.columns["model"][rows], self.columns["time"][rows]
        named = batch.model[owner]
        serves = (named == NO_MODEL) | (named == model)
        after_start = batch.time_ms[owner] >= made - self._skew_ms
        late: Ints = owner[serves & after_start & (watermark[owner] <= made + 2 * self._rules.horizon[model])]
        return late

    def advance(self, outcome_watermark: int) -> None:
        """Forget what the outcome watermark has passed."""
        self.remove(self._due.pop(outcome_watermark))
