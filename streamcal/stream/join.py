"""The join of one partition of predictions with the same partition of outcomes.

Theory of operation
-------------------
The state is a function of the two logs, never of how they were interleaved. Three things make it so:
every decision compares event times with the watermark *of the record's own log just before it* (`w`);
an outcome is kept, matched or not, until no prediction that could relate to it can still be accepted;
a prediction is remembered until no outcome that could relate to it can still come. So a slice of
predictions and a slice of outcomes may be applied one after the other in either order, whole batches at
a time, with the same result as record by record.

- prediction at t_p: *late* if w > t_p; *duplicate* if its (id, model) was accepted at t and w <= t + horizon;
  else accepted.
- outcome at t_o with watermark w, for a prediction of the id (and of the model it names, if any):
  *matches* iff -skew <= t_o - t_p <= horizon and w <= t_p + horizon; else *late* for it iff
  t_o >= t_p - skew and w <= t_p + 2 horizon; else unrelated.
- of several matching outcomes the latest event time wins (tie: label 1).
- release: ``both``: at the first label as matched, else as expired once the outcome watermark passed
  t_p + horizon; ``positives_only``: once the outcome watermark passed t_p + horizon, as matched or as
  negative.
- the frozen part of an outcome-time pane ending at e (``both``) has the rows whose outcome came with
  w <= e and whose prediction was made by e; a correction changes it only while w <= e. Prediction-time
  panes (``positives_only``) are final when the last of their rows is released.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.arrivals import Accepted, Arrivals
from streamcal.stream.changes import RowChanges
from streamcal.stream.due_queue import DueQueue
from streamcal.stream.events import NO_MODEL, OutcomeBatch, PredictionBatch
from streamcal.stream.kept_outcomes import KeptOutcomes
from streamcal.stream.keyed_rows import first_of_each
from streamcal.stream.marks import Marks
from streamcal.stream.remembered import LATE, UNRELATED, RememberedPredictions
from streamcal.stream.rules import ModelRules, RuleTable
from streamcal.stream.tally import Tally

__all__ = ["JoinTask", "ModelRules"]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that models of one id get different keys (golden ratio of 2^64)."""

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]


class JoinTask:
    """Matches predictions and outcomes of one partition number.

    Guarantees: accepted = matched + expired + negative_at_maturity + pending, per model, at all times;
    the sum of the changes emitted is the labelled predictions as the logs stand.

    Parameters
    ----------
    skew_ms : int
        How much earlier than its prediction an outcome may be stamped.
    pane_ms : int
        Pane length, for the frozen parts.
    rules : callable
        Model index to `ModelRules`.
    score_clip : float
        Distance from 0 and 1 within which a score is clipped for logits; such rows are counted `extreme`.
    tally : Tally
        Counters to add to, shared over tasks.
    """

    STATE = ("_predictions", "_outcomes", "_marks", "_to_release", "_to_mark")
    """Between calls; what `take_changes` and `take_arrivals` have not handed out yet is not part of it."""

    def __init__(
        self, *, skew_ms: int, pane_ms: int, score_clip: float, rules: Callable[[int], ModelRules], tally: Tally
    ) -> None:
        self._rules = RuleTable(rules)
        self._tally = tally
        self._predictions = RememberedPredictions(
            skew_ms=skew_ms, pane_ms=pane_ms, score_clip=score_clip, rules=self._rules, tally=tally
        )
        self._outcomes = KeptOutcomes(skew_ms, tally)
        self._marks = Marks(skew_ms, self._rules)
        self._to_release = DueQueue()
        self._to_mark = DueQueue()
        self._accepted: list[Accepted] = []

    @property
    def nbytes(self) -> int:
        """Bytes of everything remembered."""
        parts = (self._predictions, self._outcomes, self._marks, self._to_release, self._to_mark)
        return sum(part.nbytes for part in parts)

    @property
    def remembered(self) -> int:
        """Predictions remembered, marks included."""
        return len(self._predictions) + len(self._marks)

    def pending(self) -> NDArray[np.int32]:
        """Models of the predictions accepted and not yet released, one entry each."""
        return self._predictions.pending()

    def take_changes(self) -> list[RowChanges]:
        """The row changes since the last call."""
        return self._predictions.take_changes()

    def take_arrivals(self) -> Arrivals:
        """Predictions accepted and labels that came since the last call."""
        accepted, self._accepted = self._accepted, []
        return Arrivals(accepted, self._predictions.take_labels())

    def withdraw(self) -> Arrivals:
        """Every prediction that could still be labelled, and its label taken back: its partition goes elsewhere."""
        accepted, labels = self._predictions.withdraw()
        return Arrivals([accepted], [labels])

    def predictions(self, batch: PredictionBatch, watermark: Ints) -> None:
        """Take predictions; `watermark[i]` is that of the predictions log just before row i."""
        if not len(batch.row):
            return
        self._rules.know(int(batch.model.max()))
        late = watermark > batch.time_ms
        self._tally.add_by_model("late_prediction", batch.model[late])
        waiting = np.flatnonzero(~late)
        while len(waiting):
            waiting = self._accept(batch, waiting, watermark)

    def outcomes(self, batch: OutcomeBatch, watermark: Ints, prediction_watermark: int) -> None:
        """Take outcomes; `watermark[i]` is that of the outcomes log just before row i.

        `prediction_watermark` is where the predictions log stands: an outcome that no future prediction
        can relate to is settled at once.
        """
        if not len(batch.row):
            return
        self._tally.add("accepted_outcome", len(batch.row))
        relation = np.full(len(batch.row), UNRELATED)
        owner, rows = self._predictions.chains(self._predictions.find(batch.id_hi, batch.id_lo))
        named = batch.model[owner]
        serves = (named == NO_MODEL) | (named == self._predictions.columns["model"][rows])
        owner, rows = owner[serves], rows[serves]
        order = np.argsort(rows, kind="stable")
        owner, rows = owner[order], rows[order]
        seen = self._predictions.meet(rows, batch.time_ms[owner], watermark[owner], batch.label[owner])
        # One outcome may serve several predictions; its best relation counts.
        np.maximum.at(relation, owner, seen)
        np.maximum.at(relation, self._marks.late(batch, watermark), LATE)
        self._outcomes.keep(batch, watermark, relation, prediction_watermark)

    def advance(self, prediction_watermark: int, outcome_watermark: int) -> None:
        """Release, forget and settle what these watermarks have passed."""
        rows = self._to_release.pop(outcome_watermark)
        self._predictions.release(rows)
        end = self._predictions.horizon_end(rows)
        passed = end < prediction_watermark
        self._to_mark.push(end[~passed], rows[~passed])
        self._mark(np.concatenate([rows[passed], self._to_mark.pop(prediction_watermark)]), outcome_watermark)
        self._marks.advance(outcome_watermark)
        self._outcomes.advance(prediction_watermark)

    def _mark(self, rows: Rows, outcome_watermark: int) -> None:
        """Turn predictions whose horizon both logs have passed into marks, or forget them where none is needed."""
        if not len(rows):
            return
        columns = self._predictions.columns
        self._marks.put(self._predictions.ids(rows), columns["time"][rows], columns["model"][rows], outcome_watermark)
        self._predictions.remove(rows)

    def _accept(self, batch: PredictionBatch, index: Ints, watermark: Ints) -> Ints:
        """Accept the first row of each id and model in `index`, duplicates apart; return those to judge again."""
        heads = self._predictions.find(batch.id_hi[index], batch.id_lo[index])
        duplicate = self._duplicates(batch, index, heads, watermark)
        self._tally.add_by_model("duplicate_prediction", batch.model[index[duplicate]])
        index, heads = index[~duplicate], heads[~duplicate]
        first = first_of_each(batch.id_lo[index] + batch.model[index].astype(np.uint64) * _SPREAD)
        again, index, heads = index[~first], index[first], heads[first]
        if len(index):
            rows = self._predictions.add(batch.id_hi[index], batch.id_lo[index], heads)
            self._predictions.fill(rows, batch, index)
            self._to_release.push(self._predictions.horizon_end(rows), rows)
            self._tally.add_by_model("accepted_prediction", batch.model[index])
            self._accepted.append(self._predictions.accepted(rows))
            self._tally.add_by_model("without_raw", batch.model[index[np.isnan(batch.raw[index])]])
            self._replay_kept(rows, batch, index)
        return again

    def _duplicates(self, batch: PredictionBatch, index: Ints, heads: Rows, watermark: Ints) -> NDArray[np.bool_]:
        """Whether each row's id and model were accepted before and can still be labelled."""
        duplicate = np.zeros(len(index), dtype=np.bool_)
        owner, rows = self._predictions.chains(heads)
        if len(rows):
            event = index[owner]
            same = self._predictions.columns["model"][rows] == batch.model[event]
            again = same & (watermark[event] <= self._predictions.horizon_end(rows))
            duplicate[owner[again]] = True
        return duplicate

    def _replay_kept(self, rows: Rows, batch: PredictionBatch, index: Ints) -> None:
        """Let outcomes that came before their prediction meet it, in log order."""
        if not len(self._outcomes):
            return
        owner, kept = self._outcomes.of_ids(batch.id_hi[index], batch.id_lo[index])
        columns = self._outcomes.columns
        named = columns["model"][kept]
        serves = (named == NO_MODEL) | (named == batch.model[index[owner]])
        owner, kept = owner[serves], kept[serves]
        if len(kept):
            outcome = (columns[name][kept] for name in ("time", "watermark", "label"))
            self._outcomes.relate(kept, self._predictions.meet(rows[owner], *outcome))
