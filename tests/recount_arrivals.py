"""Accepted predictions and the label that stands for each, recounted from the logs alone; see `recount`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recount import judge, relate
from recount_events import Event, Log, Outcome, Prediction, Rules, is_future, read_outcome, read_prediction

Labelled = tuple[Prediction, tuple[int, int] | None]
"""A prediction, and its winner's time and label."""


def recount_arrivals(events: Sequence[Event], rules: Rules) -> tuple[list[Labelled], dict[Log, float]]:
    """Every accepted prediction with its label, released or not, and the watermarks the logs end with."""
    watermarks: dict[Log, float] = {}
    accepted: list[Prediction] = []
    earlier: dict[tuple[int, str, str], list[Prediction]] = {}
    outcomes: dict[tuple[int, str], list[Outcome]] = {}
    for topic, partition, value, timestamp in events:
        watermark = watermarks.setdefault((topic, partition), -math.inf)
        if is_future(value["ts"], timestamp, rules):
            continue
        if topic == "p":
            new = read_prediction(value, partition)
            before = earlier.setdefault((partition, new.id, new.model), [])
            if judge(new, watermark, before, rules) == "accepted_prediction":
                accepted.append(new)
                before.append(new)
        else:
            outcome = read_outcome(value, (partition, 0), watermark, rules.labels)
            outcomes.setdefault((partition, outcome.id), []).append(outcome)
        watermarks[topic, partition] = max(watermark, value["ts"] - rules.out_of_order_ms)
    return [(p, _winner(p, outcomes.get((p.partition, p.id), ()), rules)) for p in accepted], watermarks


def _winner(prediction: Prediction, outcomes: Sequence[Outcome], rules: Rules) -> tuple[int, int] | None:
    """Latest event time, and label 1 on ties."""
    return max(((o.t_o, o.label) for o in outcomes if relate(prediction, o, rules) == "match"), default=None)
