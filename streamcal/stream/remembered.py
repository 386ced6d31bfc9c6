"""Predictions inside their horizon, what is known of their labels, and the row changes that follow.

Theory of operation
-------------------
Of several matching outcomes the latest event time wins, and label 1 on ties: the winner is the maximum of
``2 * time + label``, the *rank*. So a batch of matches is settled by a running maximum per prediction, in log order,
and one id that gets ten thousand outcomes costs what ten thousand ids with one cost. Every winner on the way leaves
its row changes, not only the last: what was frozen of an earlier one stays frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.arrivals import Accepted, LabelChanges
from streamcal.stream.changes import RowChanges
from streamcal.stream.events import PredictionBatch
from streamcal.stream.keyed_rows import KeyedRows
from streamcal.stream.rules import RuleTable
from streamcal.stream.tally import Tally

__all__ = ["LATE", "MATCHED", "UNRELATED", "RememberedPredictions"]

UNRELATED, LATE, MATCHED = np.uint8(0), np.uint8(1), np.uint8(2)
"""Relations of an outcome to a prediction; the highest over predictions is the outcome's own class."""

_HAS_LABEL = np.uint8(1)
_LABEL = np.uint8(2)
_RELEASED = np.uint8(4)
_FROZEN = np.uint8(8)

_NO_RANK = np.iinfo(np.int64).min

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.int32]


class RememberedPredictions(KeyedRows):
    """The predictions that outcomes may still match.

    Guarantee: the sum of the changes emitted is the labelled predictions as the logs stand.

    Parameters
    ----------
    skew_ms, pane_ms : int
    score_clip : float
        See `streamcal.stream.join.JoinTask`.
    rules : RuleTable
    tally : Tally
    """

    def __init__(self, *, skew_ms: int, pane_ms: int, score_clip: float, rules: RuleTable, tally: Tally) -> None:
        super().__init__(
            {
                "time": np.int64,
                "raw": np.float64,
                "served": np.float64,
                "outcome_time": np.int64,
                "model": np.int32,
                "profile": np.int32,
                "state": np.uint8,
            }
        )
        self._skew_ms = skew_ms
        self._pane_ms = pane_ms
        self._score_clip = score_clip
        self._rules = rules
        self._tally = tally
        self._changes: list[RowChanges] = []
        self._labels: list[LabelChanges] = []

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `dump_state` wrote."""
        super().load_state(state)
        # Live rows alone: of the others nothing is known, not even a model where there never was one.
        self._rules.know(int(self.columns["model"][self.live()].max(initial=-1)))

    def take_changes(self) -> list[RowChanges]:
        """The row changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def take_labels(self) -> list[LabelChanges]:
        """The label changes since the last call."""
        labels, self._labels = self._labels, []
        return labels

    def accepted(self, rows: Rows) -> Accepted:
        """What is told of predictions when they are accepted."""
        columns = self.columns
        raw, served = columns["raw"][rows], columns["served"][rows]
        unknown = np.isnan(raw)
        return Accepted(
            time_ms=columns["time"][rows],
            score=np.where(unknown, served, raw) if unknown.any() else raw,
            served=served,
            model=columns["model"][rows],
            profile=columns["profile"][rows],
        )

    def withdraw(self) -> tuple[Accepted, LabelChanges]:
        """Every prediction remembered, and its label taken back."""
        rows = self.live()
        labelled = rows[(self.columns["state"][rows] & _HAS_LABEL) != 0]
        label = (self.columns["state"][labelled] & _LABEL) != 0
        return self.accepted(rows), self._label_changes(labelled, -1, label, self.columns["outcome_time"][labelled])

    def horizon_end(self, rows: Rows) -> Ints:
        """Last event time at which an outcome may match, ms."""
        end: Ints = self.columns["time"][rows] + self._rules.horizon[self.columns["model"][rows]]
        return end

    def pending(self) -> NDArray[np.int32]:
        """Models of the predictions not yet released, one entry each."""
        rows = self.live()
        waiting = rows[(self.columns["state"][rows] & _RELEASED) == 0]
        models: NDArray[np.int32] = self.columns["model"][waiting]
        return models

    def fill(self, rows: Rows, batch: PredictionBatch, index: Ints) -> None:
        """Write the events `index` of a batch to new rows."""
        columns = self.columns
        if batch.weight is not None and "weight" not in columns:
            columns["weight"] = np.ones(len(columns["time"]))
        columns["time"][rows] = batch.time_ms[index]
        columns["raw"][rows] = batch.raw[index]
        columns["served"][rows] = batch.served[index]
        columns["model"][rows] = batch.model[index]
        columns["profile"][rows] = batch.profile[index]
        columns["state"][rows] = 0
        if "weight" in columns:
            columns["weight"][rows] = 1.0 if batch.weight is None else batch.weight[index]

    def meet(self, rows: Rows, time: Ints, watermark: Ints, label: NDArray[np.int8]) -> NDArray[np.uint8]:
        """Bring outcomes to predictions and return the relation of each pair.

        Parameters
        ----------
        rows : int32 array, shape (n,)
            A prediction per pair; pairs of one prediction follow each other, in the order of the outcomes log.
        time, watermark : int64 arrays, shape (n,)
            Of the outcome: event time, and its log's watermark just before it.
        label : int8 array, shape (n,)
        """
        delay = time - self.columns["time"][rows]
        end = self.horizon_end(rows)
        horizon = self._rules.horizon[self.columns["model"][rows]]
        after_start = delay >= -self._skew_ms
        matches = after_start & (delay <= horizon) & (watermark <= end)
        late = ~matches & after_start & (watermark <= end + horizon)
        if matches.any():
            self._label(rows[matches], time[matches], watermark[matches], label[matches])
        return np.where(matches, MATCHED, np.where(late, LATE, UNRELATED))

    def release(self, rows: Rows) -> None:
        """Release what is not released yet of `rows`, whose horizon the outcome watermark has passed."""
        columns = self.columns
        rows = rows[(columns["state"][rows] & _RELEASED) == 0]
        if not len(rows):
            return
        columns["state"][rows] |= _RELEASED
        model = columns["model"][rows]
        at_maturity = self._rules.at_maturity[model]
        self._tally.add_by_model("expired", model[~at_maturity])
        rows = rows[at_maturity]
        labelled = (columns["state"][rows] & _HAS_LABEL) != 0
        self._count_release("matched", rows[labelled])
        self._count_release("negative_at_maturity", rows[~labelled])
        label = (columns["state"][rows] & _LABEL) != 0
        self._emit(rows, 1, label, self.horizon_end(rows), np.ones(len(rows), dtype=np.bool_))

    def _label(self, rows: Rows, time: Ints, watermark: Ints, label: NDArray[np.int8]) -> None:
        """Give matching outcomes to their predictions: first label, renewal, revision or duplicate."""
        opens = np.append(True, rows[1:] != rows[:-1])
        rank = 2 * time + label
        before = _running_maximum(opens, rank, self._rank(rows))
        first, wins = before == _NO_RANK, rank > before
        revises = ~first & wins & ((before & 1) != label)
        model = self.columns["model"][rows]
        self._tally.add_by_model("revised_outcome", model[revises])
        self._tally.add_by_model("duplicate_outcome", model[~first & ~revises])
        at_once = wins & ~self._rules.at_maturity[model]
        self._tell(rows[wins], time[wins], label[wins], before[wins])
        self._count_release("matched", rows[first & at_once])
        frozen = self._replace(rows[at_once], time[at_once], watermark[at_once], label[at_once], before[at_once])
        last = _last_of_each(rows[wins])
        flags = np.where(label == 1, _HAS_LABEL | _LABEL, _HAS_LABEL) | np.where(at_once, _RELEASED, np.uint8(0))
        flags[at_once] |= np.where(frozen, _FROZEN, np.uint8(0))
        winner = rows[wins][last]
        self.columns["outcome_time"][winner] = time[wins][last]
        self.columns["state"][winner] = flags[wins][last]

    def _replace(self, rows: Rows, time: Ints, watermark: Ints, label: NDArray[np.int8], before: Ints) -> Bools:
        """Emit winners that count at once, and take out those they replace; return what is in a frozen part."""
        if not len(rows):
            return np.empty(0, dtype=np.bool_)
        end = self._pane_end(time)
        frozen: Bools = (watermark <= end) & (self.columns["time"][rows] <= end)
        was_frozen = (self.columns["state"][rows] & _FROZEN) != 0
        follows = rows[1:] == rows[:-1]
        was_frozen[1:][follows] = frozen[:-1][follows]
        old = before != _NO_RANK
        old_time = before[old] >> 1
        still_open = watermark[old] <= self._pane_end(old_time)
        self._emit(rows[old], -1, (before[old] & 1) == 1, old_time, was_frozen[old] & still_open)
        self._emit(rows, 1, label == 1, time, frozen)
        return frozen

    def _tell(self, rows: Rows, time: Ints, label: NDArray[np.int8], before: Ints) -> None:
        """Tell of winners and of the labels they replace, whether they count yet or not."""
        if not len(rows):
            return
        old = before != _NO_RANK
        if old.any():
            self._labels.append(self._label_changes(rows[old], -1, (before[old] & 1) == 1, before[old] >> 1))
        self._labels.append(self._label_changes(rows, 1, label == 1, time))

    def _label_changes(self, rows: Rows, sign: int, positive: Bools, time: Ints) -> LabelChanges:
        made = self.columns["time"][rows]
        return LabelChanges(
            sign=np.full(len(rows), sign, dtype=np.int8),
            label=positive.astype(np.int8),
            prediction_ms=made,
            delay_ms=time - made,
            served=self.columns["served"][rows],
            model=self.columns["model"][rows],
        )

    def _rank(self, rows: Rows) -> Ints:
        """Rank of the outcome that stands, `_NO_RANK` where there is none."""
        state = self.columns["state"][rows]
        standing = 2 * self.columns["outcome_time"][rows] + ((state & _LABEL) != 0)
        rank: Ints = np.where((state & _HAS_LABEL) != 0, standing, _NO_RANK)
        return rank

    def _pane_end(self, time: Ints) -> Ints:
        return (time // self._pane_ms + 1) * self._pane_ms

    def _count_release(self, counter: str, rows: Rows) -> None:
        model, raw, served = (self.columns[name][rows] for name in ("model", "raw", "served"))
        clip = self._score_clip
        # NaN (no raw score) compares false.
        extreme = (raw < clip) | (raw > 1 - clip) | (served < clip) | (served > 1 - clip)
        self._tally.add_by_model(counter, model)
        self._tally.add_by_model("extreme", model[extreme])

    def _emit(self, rows: Rows, sign: int, positive: Bools, outcome_ms: Ints, frozen: Bools) -> None:
        if not len(rows):
            return
        columns = self.columns
        self._changes.append(
            RowChanges(
                sign=np.full(len(rows), sign, dtype=np.int8),
                raw=columns["raw"][rows],
                served=columns["served"][rows],
                weight=columns["weight"][rows] if "weight" in columns else None,
                label=positive.astype(np.int8),
                prediction_ms=columns["time"][rows],
                outcome_ms=outcome_ms,
                model=columns["model"][rows],
                profile=columns["profile"][rows],
                frozen=frozen,
            )
        )


def _running_maximum(opens: Bools, rank: Ints, start: Ints) -> Ints:
    """Highest of `start` and of the ranks before each entry within its group; `opens` marks where a group begins."""
    if opens.all():
        return start
    group = np.cumsum(opens) - 1
    both = np.concatenate([start, rank])
    values, place = np.unique(both, return_inverse=True)
    # As places among the distinct values the groups can be laid one above the other, and one pass serves all.
    lift = group * len(values)
    reached = np.maximum.accumulate(np.maximum(place[: len(start)], place[len(start) :]) + lift)
    before = np.where(opens, place[: len(start)] + lift, np.append(lift[:1], reached[:-1]))
    found: Ints = values[before - lift]
    return found


def _last_of_each(rows: Rows) -> Bools:
    """Whether each entry is the last of its run of equal rows."""
    return np.append(rows[1:] != rows[:-1], np.ones(min(len(rows), 1), dtype=np.bool_))
