"""An independent recount of join and counts: the truth the product is checked against.

Plain, slow and complete: nothing is forgotten, nothing is batched, and nothing of the product is imported. The join is
written as a function of the logs alone: first every log is walked by itself (watermarks, which predictions are
accepted), then every accepted prediction meets every accepted outcome of its partition in the order of the outcome
log. The arrival order of records of *different* logs is never looked at, so it cannot matter here.

Readings taken where the rules leave room:

- The watermark a log ends with counts its last record; a record carries the watermark before itself.
- An outcome's class is settled by the prediction log alone (its watermark past ``t_o + skew``), at whatever moment.
- With ``positives_only`` an outcome that says 0 is a label: the prediction ends ``matched``, label 0.
- Duplicates and revisions are counted when prediction and outcome meet, released or not.
- ``extreme`` and rows follow release: a row is extreme if its raw or its served score is clipped, once, whatever
  corrections follow. ``without_raw`` counts accepted predictions.
- Draining moves all watermarks past everything: all is released and settled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recount_counts import add_into, all_cuts, bin_of, cut_label, is_extreme, row_columns, segment_key
from recount_events import Event, Log, Outcome, Prediction, Row, Rules, is_future, read_outcome, read_prediction

Series = tuple[str, str, str]
"""Model, cut label, segment key."""
Bins = dict[int, list[int]]

COUNTERS = (
    *("accepted_prediction", "accepted_outcome", "matched", "expired", "negative_at_maturity"),
    *("duplicate_prediction", "duplicate_outcome", "revised_outcome"),
    *("late_prediction", "late_outcome", "orphan_outcome", "without_raw", "extreme"),
)


@dataclass
class Recount:
    rules: Rules
    counters: Counter[str]
    model_counters: dict[str, Counter[str]]
    pending: int
    rows: list[Row]
    watermarks: dict[Log, int]
    """Per log that has seen a record; draining does not show here."""
    future: Counter[str]
    """Records set aside as ``future``, by topic."""
    matches: int = 0
    """Pairs that matched: what is above one per prediction is duplicate or revised."""

    def counts(
        self,
        cuts: Sequence[tuple[str, ...]],
        family: Literal["prediction", "outcome"],
        kind: Literal["raw", "served"],
        *,
        weighted: bool | None = None,
    ) -> dict[tuple[str, str, str, int], Bins]:
        """Bins per (model, cut, segment, pane index); the empty cut ``all`` is always there.

        `weighted` says whether the 14 weighted columns follow; by default they do if any counted row has a weight
        other than 1.
        """
        out: dict[tuple[str, str, str, int], Bins] = {}
        weighted = self.is_weighted() if weighted is None else weighted
        for row in self.rows:
            score = row.raw if kind == "raw" else row.served
            if score is None:
                continue
            pane = (row.t_p if family == "prediction" else row.t_o) // self.rules.pane_ms
            for cut in all_cuts(cuts):
                key = (row.model, cut_label(cut), segment_key(cut, row.segments), pane)
                columns = row_columns(score, row.label, row.weight, weighted=weighted)
                add_into(out.setdefault(key, {}), bin_of(score), columns)
        return out

    def totals(
        self, cuts: Sequence[tuple[str, ...]], kind: Literal["raw", "served"], *, weighted: bool | None = None
    ) -> dict[Series, Bins]:
        """Bins per series over all panes."""
        out: dict[Series, Bins] = {}
        for (model, cut, segment, _), bins in self.counts(cuts, "prediction", kind, weighted=weighted).items():
            for index, columns in bins.items():
                add_into(out.setdefault((model, cut, segment), {}), index, columns)
        return out

    def is_weighted(self) -> bool:
        return any(row.weight != 1 for row in self.rows)


def recount(events: Sequence[Event], rules: Rules, *, drain: bool = False) -> Recount:
    """Recount `events`, given in any arrival order that keeps the order within each log."""
    counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
    by_model: dict[str, Counter[str]] = {}
    result = Recount(rules, counters, by_model, 0, [], {}, Counter())
    watermarks: dict[Log, float] = {}
    predictions: list[Prediction] = []
    outcomes: list[Outcome] = []
    accepted: dict[tuple[int, str, str], list[Prediction]] = {}  # by partition, id, model
    outcomes_of: dict[tuple[int, str], list[Outcome]] = {}  # by partition, id

    def count(name: str, model: str) -> None:
        counters[name] += 1
        by_model.setdefault(model, Counter())[name] += 1

    # 1. Every log by itself: watermarks, and what is accepted.
    for topic, partition, value, kafka_timestamp in events:
        log = (topic, partition)
        watermark = watermarks.setdefault(log, -math.inf)
        if "advance" in value:
            watermarks[log] = max(watermark, value["advance"])
            continue
        t = value["ts"]
        if is_future(t, kafka_timestamp, rules):
            result.future[topic] += 1
            continue
        # The rows of one record (`recount_classes`) share its watermark.
        for row in value.get("rows", (value,)):
            if topic == "p":
                new = read_prediction(row, partition)
                earlier = accepted.setdefault((partition, new.id, new.model), [])
                verdict = judge(new, watermark, earlier, rules)
                count(verdict, new.model)
                if verdict == "accepted_prediction":
                    predictions.append(new)
                    earlier.append(new)
                    if new.raw is None:
                        count("without_raw", new.model)
            else:
                outcome = read_outcome(row, (partition, len(outcomes)), watermark, rules.labels)
                outcomes.append(outcome)
                outcomes_of.setdefault((partition, outcome.id), []).append(outcome)
                counters["accepted_outcome"] += 1
        watermarks[log] = max(watermark, t - rules.out_of_order_ms)

    result.watermarks = {log: int(w) for log, w in watermarks.items() if w > -math.inf}
    if drain:
        watermarks = {(topic, partition): math.inf for topic in "po" for _, partition in watermarks}

    # 2. Every prediction meets every outcome of its partition, in the order of the outcome log.
    has_matched: set[tuple[int, int]] = set()
    is_late: set[tuple[int, int]] = set()
    for prediction in predictions:
        partition = prediction.partition
        winner: tuple[int, int] | None = None  # (outcome time, label)
        for outcome in outcomes_of.get((partition, prediction.id), ()):
            relation = relate(prediction, outcome, rules)
            if relation == "late":
                is_late.add(outcome.place)
            if relation != "match":
                continue
            has_matched.add(outcome.place)
            result.matches += 1
            if winner is None:
                winner = (outcome.t_o, outcome.label)
                continue
            t_o, label = winner
            if outcome.label == label:
                count("duplicate_outcome", prediction.model)
                winner = (max(t_o, outcome.t_o), label)
            elif outcome.t_o > t_o or (outcome.t_o == t_o and outcome.label == 1):
                count("revised_outcome", prediction.model)
                winner = (outcome.t_o, outcome.label)
            else:
                count("duplicate_outcome", prediction.model)
        end, row = release(prediction, winner, watermarks.get(("o", partition), -math.inf), rules)
        if end == "pending":
            result.pending += 1
        else:
            count(end, prediction.model)
        if row is not None:
            result.rows.append(row)
            if is_extreme(row.served) or (row.raw is not None and is_extreme(row.raw)):
                count("extreme", row.model)

    # 3. Each outcome's own class, once the predictions it could still meet have all been seen.
    for outcome in outcomes:
        settled = watermarks.get(("p", outcome.place[0]), -math.inf) > outcome.t_o + rules.skew_ms
        if settled and outcome.place not in has_matched:
            counters["late_outcome" if outcome.place in is_late else "orphan_outcome"] += 1
    return result


def judge(new: Prediction, watermark: float, earlier: Sequence[Prediction], rules: Rules) -> str:
    """What becomes of a prediction: `watermark` is its log's before it, `earlier` what was accepted under its key."""
    if watermark > new.t_p:
        return "late_prediction"
    if any(not watermark > old.t_p + rules.horizon_of(old.model) for old in earlier):
        return "duplicate_prediction"
    return "accepted_prediction"


def relate(prediction: Prediction, outcome: Outcome, rules: Rules) -> Literal["match", "late", "unrelated"]:
    named = (outcome.model,) if isinstance(outcome.model, str) else outcome.model
    if outcome.id != prediction.id or (named is not None and prediction.model not in named):
        return "unrelated"
    horizon = rules.horizon_of(prediction.model)
    delay = outcome.t_o - prediction.t_p
    if -rules.skew_ms <= delay <= horizon and outcome.watermark <= prediction.t_p + horizon:
        return "match"
    if outcome.t_o >= prediction.t_p - rules.skew_ms and outcome.watermark <= prediction.t_p + 2 * horizon:
        return "late"
    return "unrelated"


def release(
    prediction: Prediction, winner: tuple[int, int] | None, outcome_watermark: float, rules: Rules
) -> tuple[Literal["matched", "expired", "negative_at_maturity", "pending"], Row | None]:
    """How the prediction ends when its outcome log ends at `outcome_watermark`, and the row it is counted as."""
    maturity = prediction.t_p + rules.horizon_of(prediction.model)
    matured = outcome_watermark > maturity
    if rules.labels_of(prediction.model) == "both":
        if winner is not None:
            return "matched", row_of(prediction, winner[1], winner[0])
        return ("expired", None) if matured else ("pending", None)
    if not matured:
        return "pending", None
    if winner is not None:
        return "matched", row_of(prediction, winner[1], maturity)
    return "negative_at_maturity", row_of(prediction, 0, maturity)


def row_of(prediction: Prediction, label: int, t_o: int) -> Row:
    return Row(
        prediction.id,
        prediction.model,
        prediction.partition,
        prediction.raw,
        prediction.served,
        label,
        prediction.t_p,
        t_o,
        prediction.weight,
        prediction.segments,
    )
