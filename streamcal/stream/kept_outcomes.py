"""Outcomes that a prediction still to come could relate to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.due_queue import DueQueue
from streamcal.stream.events import OutcomeBatch
from streamcal.stream.keyed_rows import KeyedRows
from streamcal.stream.remembered import LATE, UNRELATED
from streamcal.stream.tally import Tally

__all__ = ["KeptOutcomes"]

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]


class KeptOutcomes(KeyedRows):
    """Every accepted outcome, matched or not, until the prediction watermark passes its time plus the skew.

    Guarantee: each outcome's class is counted once, when it leaves.

    Parameters
    ----------
    skew_ms : int
    tally : Tally
    """

    def __init__(self, skew_ms: int, tally: Tally) -> None:
        super().__init__(
            {
                "time": np.int64,
                "watermark": np.int64,
                "sequence": np.int64,
                "model": np.int32,
                "label": np.int8,
                "relation": np.uint8,
            }
        )
        self._skew_ms = skew_ms
        self._tally = tally
        self._sequence = 0
        self._due = DueQueue()

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the queue."""
        return super().nbytes + self._due.nbytes

    def dump_state(self) -> dict[str, Any]:
        """The table, the queue and the place in the log."""
        return super().dump_state() | {"due": self._due.dump_state(), "sequence": self._sequence}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        super().load_state(state)
        self._due.load_state(state["due"])
        self._sequence = state["sequence"]

    def keep(
        self, batch: OutcomeBatch, watermark: Ints, relation: NDArray[np.uint8], prediction_watermark: int
    ) -> None:
        """Take a batch in; what no prediction to come can relate to is settled at once."""
        due = batch.time_ms + self._skew_ms
        open_ = due >= prediction_watermark
        self._settle(relation[~open_])
        index = np.flatnonzero(open_)
        hi, lo = batch.id_hi[index], batch.id_lo[index]
        rows = self.add(hi, lo, self.find(hi, lo))
        columns = self.columns
        columns["time"][rows] = batch.time_ms[index]
        columns["watermark"][rows] = watermark[index]
        columns["sequence"][rows] = self._sequence + index
        columns["model"][rows] = batch.model[index]
        columns["label"][rows] = batch.label[index]
        columns["relation"][rows] = relation[index]
        self._due.push(due[index], rows)
        self._sequence += len(batch.row)

    def of_ids(self, hi: NDArray[np.uint64], lo: NDArray[np.uint64]) -> tuple[Ints, Rows]:
        """Index into the ids and row of every outcome kept for one of them; in log order per id."""
        owner, rows = self.chains(self.find(hi, lo))
        order = np.lexsort((self.columns["sequence"][rows], owner))
        return owner[order], rows[order]

    def relate(self, rows: Rows, relation: NDArray[np.uint8]) -> None:
        """Note relations found later; the highest of each outcome counts."""
        np.maximum.at(self.columns["relation"], rows, relation)

    def advance(self, prediction_watermark: int) -> None:
        """Settle and forget what the prediction watermark has passed."""
        rows = self._due.pop(prediction_watermark)
        self._settle(self.columns["relation"][rows])
        self.remove(rows)

    def _settle(self, relation: NDArray[np.uint8]) -> None:
        self._tally.add("late_outcome", int(np.count_nonzero(relation == LATE)))
        self._tally.add("orphan_outcome", int(np.count_nonzero(relation == UNRELATED)))
