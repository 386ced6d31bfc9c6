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

Repeated ids inside a batch are applied in rounds that keep log order (`occurrence_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamcal.stream.changes import RowChanges
from streamcal.stream.due_queue import DueQueue
from streamcal.stream.events import NO_MODEL, OutcomeBatch, PredictionBatch
from streamcal.stream.keyed_rows import KeyedRows, occurrence_rounds
from streamcal.stream.tally import Tally

__all__ = ["JoinTask", "ModelRules"]

_HAS_LABEL = np.uint8(1)
_LABEL = np.uint8(2)
_RELEASED = np.uint8(4)
_FROZEN = np.uint8(8)

_ORPHAN, _LATE, _MATCHED = 0, 1, 2

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ModelRules:
    """How labels of one model become known."""

    horizon_ms: int
    positives_only: bool


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

    def __init__(
        self, *, skew_ms: int, pane_ms: int, score_clip: float, rules: Callable[[int], ModelRules], tally: Tally
    ) -> None:
        self._skew_ms = skew_ms
        self._pane_ms = pane_ms
        self._score_clip = score_clip
        self._rules = rules
        self._tally = tally
        self._horizon: Ints = np.empty(0, dtype=np.int64)
        self._at_maturity: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._predictions = KeyedRows(
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
        self._outcomes = KeyedRows(
            {
                "time": np.int64,
                "watermark": np.int64,
                "sequence": np.int64,
                "model": np.int32,
                "label": np.int8,
                "relation": np.uint8,
            }
        )
        # After its horizon a prediction can only make an outcome late: a mark of a third the size is enough.
        self._marks = KeyedRows({"time": np.int64, "model": np.int32})
        self._sequence = 0
        self._to_release = DueQueue()
        self._to_mark = DueQueue()
        self._to_forget = DueQueue()
        self._to_settle = DueQueue()
        self._changes: list[RowChanges] = []

    @property
    def nbytes(self) -> int:
        """Bytes of everything remembered."""
        queues = (self._to_release, self._to_mark, self._to_forget, self._to_settle)
        tables = (self._predictions, self._outcomes, self._marks)
        return sum(table.nbytes for table in tables) + sum(queue.nbytes for queue in queues)

    @property
    def remembered(self) -> int:
        """Predictions remembered, marks included."""
        return len(self._predictions) + len(self._marks)

    def take_changes(self) -> RowChanges | None:
        """The row changes since the last call, or None."""
        changes, self._changes = self._changes, []
        return RowChanges.concatenate(changes) if changes else None

    def predictions(self, batch: PredictionBatch, watermark: Ints) -> None:
        """Take predictions; `watermark[i]` is that of the predictions log just before row i."""
        if not len(batch.row):
            return
        self._know_models(int(batch.model.max()))
        late = watermark > batch.time_ms
        self._tally.add_by_model("late_prediction", batch.model[late])
        if batch.weight is not None and "weight" not in self._predictions.columns:
            self._predictions.columns["weight"] = np.ones(len(self._predictions.columns["time"]))
        on_time = np.flatnonzero(~late)
        for turn in occurrence_rounds(batch.id_lo[on_time]):
            self._accept(batch, on_time[turn], watermark)

    def outcomes(self, batch: OutcomeBatch, watermark: Ints, prediction_watermark: int) -> None:
        """Take outcomes; `watermark[i]` is that of the outcomes log just before row i.

        `prediction_watermark` is where the predictions log stands: an outcome that no future prediction
        can relate to is settled at once.
        """
        count = len(batch.row)
        if not count:
            return
        self._tally.add("accepted_outcome", count)
        relation = np.full(count, _ORPHAN, dtype=np.uint8)
        owner, rows = self._predictions.chains(self._predictions.find(batch.id_hi, batch.id_lo))
        named = batch.model[owner]
        serves = (named == NO_MODEL) | (named == self._predictions.columns["model"][rows])
        owner, rows = owner[serves], rows[serves]
        for turn in occurrence_rounds(rows):
            event = owner[turn]
            seen = self._apply(rows[turn], batch.time_ms[event], watermark[event], batch.label[event])
            # One outcome may serve several predictions in one turn; its best relation counts.
            np.maximum.at(relation, event, seen)
        np.maximum.at(relation, self._late_for_marks(batch, watermark), np.uint8(_LATE))
        keep = batch.time_ms + self._skew_ms >= prediction_watermark
        self._settle(relation[~keep])
        self._keep(batch, np.flatnonzero(keep), watermark, relation)
        self._sequence += count

    def advance(self, prediction_watermark: int, outcome_watermark: int) -> None:
        """Release, forget and settle what these watermarks have passed."""
        rows = self._to_release.pop(outcome_watermark)
        self._release(rows)
        horizon_end = self._horizon_end(rows)
        passed = horizon_end < prediction_watermark
        self._to_mark.push(horizon_end[~passed], rows[~passed])
        self._mark(np.concatenate([rows[passed], self._to_mark.pop(prediction_watermark)]), outcome_watermark)
        self._marks.remove(self._to_forget.pop(outcome_watermark))
        rows = self._to_settle.pop(prediction_watermark)
        self._settle(self._outcomes.columns["relation"][rows])
        self._outcomes.remove(rows)

    def _horizon_end(self, rows: Rows) -> Ints:
        columns = self._predictions.columns
        end: Ints = columns["time"][rows] + self._horizon[columns["model"][rows]]
        return end

    def _mark(self, rows: Rows, outcome_watermark: int) -> None:
        """Turn predictions whose horizon both logs have passed into marks, or forget them where none is needed."""
        if not len(rows):
            return
        columns = self._predictions.columns
        due = self._horizon_end(rows) + self._horizon[columns["model"][rows]]
        needed = due >= outcome_watermark
        kept, due = rows[needed], due[needed]
        hi, lo = self._predictions.ids(kept)
        for turn in occurrence_rounds(lo):
            marks = self._marks.add(hi[turn], lo[turn], self._marks.find(hi[turn], lo[turn]))
            self._marks.columns["time"][marks] = columns["time"][kept[turn]]
            self._marks.columns["model"][marks] = columns["model"][kept[turn]]
            self._to_forget.push(due[turn], marks)
        self._predictions.remove(rows)

    def _late_for_marks(self, batch: OutcomeBatch, watermark: Ints) -> Ints:
        """Outcomes of the batch that come late for a prediction already marked."""
        owner, marks = self._marks.chains(self._marks.find(batch.id_hi, batch.id_lo))
        model = self._marks.columns["model"][marks]
        made = self._marks.columns["time"][marks]
        named = batch.model[owner]
        late = (
            ((named == NO_MODEL) | (named == model))
            & (batch.time_ms[owner] >= made - self._skew_ms)
            & (watermark[owner] <= made + 2 * self._horizon[model])
        )
        return owner[late]

    def _know_models(self, highest: int) -> None:
        if highest >= len(self._horizon):
            rules = [self._rules(model) for model in range(highest + 1)]
            self._horizon = np.array([r.horizon_ms for r in rules], dtype=np.int64)
            self._at_maturity = np.array([r.positives_only for r in rules], dtype=np.bool_)

    def _accept(self, batch: PredictionBatch, index: Ints, watermark: Ints) -> None:
        """Accept the rows `index` (distinct ids) unless they are duplicates."""
        columns = self._predictions.columns
        heads = self._predictions.find(batch.id_hi[index], batch.id_lo[index])
        duplicate = np.zeros(len(index), dtype=np.bool_)
        owner, rows = self._predictions.chains(heads)
        if len(rows):
            event = index[owner]
            model = columns["model"][rows]
            again = (model == batch.model[event]) & (watermark[event] <= columns["time"][rows] + self._horizon[model])
            duplicate[owner[again]] = True
            self._tally.add_by_model("duplicate_prediction", batch.model[index[duplicate]])
        new = index[~duplicate]
        if not len(new):
            return
        rows = self._predictions.add(batch.id_hi[new], batch.id_lo[new], heads[~duplicate])
        self._fill(rows, batch, new)
        self._replay_kept(rows, batch, new)

    def _fill(self, rows: Rows, batch: PredictionBatch, index: Ints) -> None:
        columns = self._predictions.columns
        model, time = batch.model[index], batch.time_ms[index]
        columns["time"][rows] = time
        columns["raw"][rows] = batch.raw[index]
        columns["served"][rows] = batch.served[index]
        columns["model"][rows] = model
        columns["profile"][rows] = batch.profile[index]
        columns["state"][rows] = 0
        if "weight" in columns:
            columns["weight"][rows] = 1.0 if batch.weight is None else batch.weight[index]
        self._to_release.push(time + self._horizon[model], rows)
        self._tally.add_by_model("accepted_prediction", model)
        self._tally.add_by_model("without_raw", model[np.isnan(batch.raw[index])])

    def _replay_kept(self, rows: Rows, batch: PredictionBatch, index: Ints) -> None:
        """Let outcomes that came before their prediction meet it, in log order."""
        if not len(self._outcomes):
            return
        owner, kept = self._outcomes.chains(self._outcomes.find(batch.id_hi[index], batch.id_lo[index]))
        if not len(kept):
            return
        columns = self._outcomes.columns
        named = columns["model"][kept]
        serves = (named == NO_MODEL) | (named == batch.model[index[owner]])
        owner, kept = owner[serves], kept[serves]
        order = np.lexsort((columns["sequence"][kept], owner))
        owner, kept = owner[order], kept[order]
        for turn in occurrence_rounds(rows[owner]):
            outcome = kept[turn]
            seen = self._apply(
                rows[owner[turn]],
                columns["time"][outcome],
                columns["watermark"][outcome],
                columns["label"][outcome],
            )
            columns["relation"][outcome] = np.maximum(columns["relation"][outcome], seen)

    def _keep(self, batch: OutcomeBatch, index: Ints, watermark: Ints, relation: NDArray[np.uint8]) -> None:
        columns = self._outcomes.columns
        for turn in occurrence_rounds(batch.id_lo[index]):
            event = index[turn]
            hi, lo = batch.id_hi[event], batch.id_lo[event]
            rows = self._outcomes.add(hi, lo, self._outcomes.find(hi, lo))
            columns = self._outcomes.columns
            columns["time"][rows] = batch.time_ms[event]
            columns["watermark"][rows] = watermark[event]
            columns["sequence"][rows] = self._sequence + event
            columns["model"][rows] = batch.model[event]
            columns["label"][rows] = batch.label[event]
            columns["relation"][rows] = relation[event]
            self._to_settle.push(batch.time_ms[event] + self._skew_ms, rows)

    def _settle(self, relation: NDArray[np.uint8]) -> None:
        self._tally.add("late_outcome", int(np.count_nonzero(relation == _LATE)))
        self._tally.add("orphan_outcome", int(np.count_nonzero(relation == _ORPHAN)))

    def _apply(self, rows: Rows, time: Ints, watermark: Ints, label: NDArray[np.int8]) -> NDArray[np.uint8]:
        """Bring one outcome to each of `rows` (distinct predictions); return its relation to each."""
        columns = self._predictions.columns
        made = columns["time"][rows]
        horizon = self._horizon[columns["model"][rows]]
        after_start = time - made >= -self._skew_ms
        matches = after_start & (time - made <= horizon) & (watermark <= made + horizon)
        late = ~matches & after_start & (watermark <= made + 2 * horizon)
        if matches.any():
            self._label(rows[matches], time[matches], watermark[matches], label[matches] == 1)
        return np.where(matches, np.uint8(_MATCHED), np.where(late, np.uint8(_LATE), np.uint8(_ORPHAN)))

    def _label(self, rows: Rows, time: Ints, watermark: Ints, positive: NDArray[np.bool_]) -> None:
        """Give matching outcomes to distinct predictions: first label, renewal, revision or duplicate."""
        columns = self._predictions.columns
        state, known_time = columns["state"][rows], columns["outcome_time"][rows]
        first = (state & _HAS_LABEL) == 0
        same = ~first & (((state & _LABEL) != 0) == positive)
        renews = same & (time > known_time)
        revises = ~first & ~same & ((time > known_time) | ((time == known_time) & positive))
        changes = renews | revises
        model = columns["model"][rows]
        self._tally.add_by_model("revised_outcome", model[revises])
        self._tally.add_by_model("duplicate_outcome", model[~first & ~revises])
        at_once = ~self._at_maturity[model]
        leaving = changes & at_once
        if leaving.any():
            old = rows[leaving]
            still_open = watermark[leaving] <= self._pane_end(columns["outcome_time"][old])
            self._emit(old, -1, ((columns["state"][old] & _FROZEN) != 0) & still_open)
        takes = first | changes
        rows, time, watermark, positive = rows[takes], time[takes], watermark[takes], positive[takes]
        at_once, first, model = at_once[takes], first[takes], model[takes]
        frozen = at_once & self._in_frozen_part(rows, time, watermark)
        columns["outcome_time"][rows] = time
        columns["state"][rows] = (
            _HAS_LABEL
            | np.where(positive, _LABEL, np.uint8(0))
            | np.where(at_once, _RELEASED, columns["state"][rows] & _RELEASED)
            | np.where(frozen, _FROZEN, np.uint8(0))
        )
        self._count_release("matched", rows[first & at_once])
        self._emit(rows[at_once], 1, frozen[at_once])

    def _pane_end(self, time: Ints) -> Ints:
        return (time // self._pane_ms + 1) * self._pane_ms

    def _in_frozen_part(self, rows: Rows, time: Ints, watermark: Ints) -> NDArray[np.bool_]:
        end = self._pane_end(time)
        return (watermark <= end) & (self._predictions.columns["time"][rows] <= end)

    def _release(self, rows: Rows) -> None:
        """Release `rows`, whose horizon the outcome watermark has passed."""
        columns = self._predictions.columns
        rows = rows[(columns["state"][rows] & _RELEASED) == 0]
        if not len(rows):
            return
        columns["state"][rows] |= _RELEASED
        model = columns["model"][rows]
        at_maturity = self._at_maturity[model]
        self._tally.add_by_model("expired", model[~at_maturity])
        rows = rows[at_maturity]
        labelled = (columns["state"][rows] & _HAS_LABEL) != 0
        self._count_release("matched", rows[labelled])
        self._count_release("negative_at_maturity", rows[~labelled])
        columns["outcome_time"][rows] = columns["time"][rows] + self._horizon[model[at_maturity]]
        self._emit(rows, 1, np.ones(len(rows), dtype=np.bool_))

    def _count_release(self, counter: str, rows: Rows) -> None:
        columns = self._predictions.columns
        model, raw, served = columns["model"][rows], columns["raw"][rows], columns["served"][rows]
        clip = self._score_clip
        # NaN (no raw score) compares false.
        extreme = (raw < clip) | (raw > 1 - clip) | (served < clip) | (served > 1 - clip)
        self._tally.add_by_model(counter, model)
        self._tally.add_by_model("extreme", model[extreme])

    def _emit(self, rows: Rows, sign: int, frozen: NDArray[np.bool_]) -> None:
        if not len(rows):
            return
        columns = self._predictions.columns
        self._changes.append(
            RowChanges(
                sign=np.full(len(rows), sign, dtype=np.int8),
                raw=columns["raw"][rows],
                served=columns["served"][rows],
                weight=columns["weight"][rows] if "weight" in columns else None,
                label=((columns["state"][rows] & _LABEL) != 0).astype(np.int8),
                prediction_ms=columns["time"][rows],
                outcome_ms=columns["outcome_time"][rows],
                model=columns["model"][rows],
                profile=columns["profile"][rows],
                frozen=frozen,
            )
        )
