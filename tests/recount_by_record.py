"""A second, literal simulation of the join: record by record in arrival order, forgetting as the rules say.

`recount` never forgets and looks at each log by itself. This one keeps only what the rules keep, meets records as they
arrive and releases and settles as watermarks move, so that the two agreeing under every interleaving shows that the
rules themselves make state a function of the logs. Only counters, ends and rows are compared; it is no second truth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from recount import COUNTERS, relate, release
from recount_events import Event, Outcome, Prediction, Row, Rules, is_future, read_outcome, read_prediction


@dataclass
class Remembered:
    prediction: Prediction
    winner: tuple[int, int] | None = None
    released: bool = False


@dataclass
class Kept:
    outcome: Outcome
    matched: bool = False
    late: bool = False


class Task:
    """One partition of both topics. Invariant: `remembered` and `kept` hold nothing the rules have forgotten."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.watermark = {"p": -math.inf, "o": -math.inf}
        self.remembered: list[Remembered] = []
        self.kept: list[Kept] = []
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self.outcome_number = 0
        self.settled_rows: list[Row] = []

    def predict(self, new: Prediction) -> None:
        watermark = self.watermark["p"]
        if watermark > new.t_p:
            self.counters["late_prediction"] += 1
            return
        for old in self.remembered:
            p = old.prediction
            same = (p.id, p.model) == (new.id, new.model)
            if same and watermark <= p.t_p + self.rules.horizon_of(p.model):
                self.counters["duplicate_prediction"] += 1
                return
        self.counters["accepted_prediction"] += 1
        entry = Remembered(new)
        self.remembered.append(entry)
        for kept in self.kept:
            self.meet(entry, kept)

    def label(self, outcome: Outcome) -> None:
        self.counters["accepted_outcome"] += 1
        kept = Kept(outcome)
        self.kept.append(kept)
        for entry in self.remembered:
            self.meet(entry, kept)

    def meet(self, entry: Remembered, kept: Kept) -> None:
        relation = relate(entry.prediction, kept.outcome, self.rules)
        kept.late |= relation == "late"
        if relation != "match":
            return
        kept.matched = True
        new = (kept.outcome.t_o, kept.outcome.label)
        if entry.winner is None:
            entry.winner = new
            return
        revised = new > entry.winner and new[1] != entry.winner[1]
        self.counters["revised_outcome" if revised else "duplicate_outcome"] += 1
        entry.winner = max(entry.winner, new)

    def advance(self, topic: str, watermark: float) -> None:
        self.watermark[topic] = max(self.watermark[topic], watermark)
        self.release()
        self.settle()
        self.forget()

    def release(self) -> None:
        for entry in self.remembered:
            if not entry.released:
                end, _ = release(entry.prediction, entry.winner, self.watermark["o"], self.rules)
                entry.released = end != "pending"
                if entry.released:
                    self.counters[end] += 1

    def settle(self) -> None:
        still = []
        for kept in self.kept:
            if not self.watermark["p"] > kept.outcome.t_o + self.rules.skew_ms:
                still.append(kept)
            elif not kept.matched:
                self.counters["late_outcome" if kept.late else "orphan_outcome"] += 1
        self.kept = still

    def forget(self) -> None:
        still = []
        for entry in self.remembered:
            p = entry.prediction
            horizon = self.rules.horizon_of(p.model)
            if self.watermark["p"] > p.t_p + horizon and self.watermark["o"] > p.t_p + 2 * horizon:
                assert entry.released
                self.settled_rows += self.row(entry)
            else:
                still.append(entry)
        self.remembered = still

    def row(self, entry: Remembered) -> list[Row]:
        row = release(entry.prediction, entry.winner, self.watermark["o"], self.rules)[1]
        return [] if row is None else [row]

    def rows(self) -> list[Row]:
        return self.settled_rows + [row for entry in self.remembered for row in self.row(entry)]


def simulate(events: Sequence[Event], rules: Rules, *, drain: bool = False) -> tuple[Counter[str], int, list[Row]]:
    """Counters, pending and rows (in no particular order) after `events`."""
    tasks: dict[int, Task] = {}
    for topic, partition, value, kafka_timestamp in events:
        task = tasks.setdefault(partition, Task(rules))
        if "advance" in value:
            task.advance(topic, value["advance"])
            continue
        if is_future(value["ts"], kafka_timestamp, rules):
            continue
        if topic == "p":
            task.predict(read_prediction(value, partition))
        else:
            task.outcome_number += 1
            place = (partition, task.outcome_number)
            task.label(read_outcome(value, place, task.watermark["o"], rules.labels))
        task.advance(topic, value["ts"] - rules.out_of_order_ms)
    if drain:
        for task in tasks.values():
            task.advance("o", math.inf)
            task.advance("p", math.inf)
    total: Counter[str] = Counter()
    for task in tasks.values():
        total.update(task.counters)
    pending = sum(not entry.released for task in tasks.values() for entry in task.remembered)
    return total, pending, [row for task in tasks.values() for row in task.rows()]
