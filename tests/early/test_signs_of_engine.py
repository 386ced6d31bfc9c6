"""What readers see of early signs depends on how far the logs were read, not on how."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engine_streams import HOUR_MS, engine, over_confident, slices
from recount_arrivals import recount_arrivals
from recount_events import Event, Rules

from streamcal.engine import Engine

BOTH = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000)
AT_MATURITY = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000, labels="positives_only")


def run(rules: Rules, events: Sequence[Event], cuts: Sequence[int]) -> Engine:
    machine = engine(rules, (0, 1), refit={"mode": "off"})
    for low, high in itertools.pairwise([0, *cuts, len(events)]):
        machine.handle(slices(events[low:high]))
    return machine


def signs(machine: Engine) -> dict[str, Any]:
    return {model.name: (model.labels, model.early, model.score_shift) for model in machine.snapshot().models}


@pytest.mark.parametrize("rules", [BOTH, AT_MATURITY], ids=["both", "at maturity"])
def test_signs_do_not_depend_on_batches_and_on_which_log_is_ahead(rules: Rules) -> None:
    events = over_confident(3, hours=60, per_hour=240, partitions=2, models=("m1", "m2"))
    straight = signs(run(rules, events, [1000]))
    labels, early, shift = straight["m1"]
    assert labels is not None
    assert early is not None
    assert early.ratio is not None
    assert len(shift) >= 2
    rng = np.random.default_rng(4)
    by_log = sorted(events, key=lambda event: event[:2])
    logs: dict[Any, list[Event]] = {}
    for event in events:
        logs.setdefault(event[:2], []).append(event)
    order = [event[:2] for event in events]
    rng.shuffle(order)
    mixed = [logs[log].pop(0) for log in map(tuple, order)]
    for arrived in (by_log, mixed):
        cuts = sorted(rng.integers(1, len(events), 30).tolist())
        assert signs(run(rules, arrived, cuts)) == straight


@pytest.mark.parametrize("rules", [BOTH, AT_MATURITY], ids=["both", "at maturity"])
def test_coverage_delays_and_unmatched_shares_are_those_of_the_matured_rows(rules: Rules) -> None:
    rng = np.random.default_rng(6)
    events = [
        event
        for event in over_confident(5, hours=60, per_hour=240, partitions=2)
        # Outcomes are lost, and of AT_MATURITY only positives are told.
        if event[0] == "p" or (rng.random() < 0.8 and (rules is BOTH or event[2]["label"] == 1))
    ]
    machine = run(rules, events, [500, 9000])
    (model,) = machine.snapshot().models
    assert model.labels is not None
    arrivals, watermarks = recount_arrivals(events, rules)
    sealed = min(min(watermarks["p", k], watermarks["o", k] - rules.horizon_ms - 1) for k in (0, 1))
    stop = sealed // rules.pane_ms
    matured = [(p, winner) for p, winner in arrivals if stop - 144 <= p.t_p // rules.pane_ms < stop]
    labelled = [(p, winner) for p, winner in matured if winner is not None]
    coverage = 1.0 if rules is AT_MATURITY else len(labelled) / len(matured)
    assert model.labels.coverage == coverage
    delays = [(winner[0] - p.t_p) / 1000 for p, winner in labelled]
    for share, seconds in model.labels.delay_seconds.items():
        # Delays end abruptly at two hours, inside a bucket: the worst case, off by up to the bucket's width.
        assert seconds == pytest.approx(np.quantile(delays, share), rel=0.09)
    assert len(model.labels.unmatched) == 10
    for band in model.labels.unmatched:
        low, high = np.float32(band.lo), np.float32(band.hi)
        mine = [winner for p, winner in matured if (low < np.float32(p.served) or band.lo == 0) and p.served <= high]
        assert band.share == pytest.approx(sum(winner is None for winner in mine) / len(mine), abs=1e-12)


def test_a_drained_stream_has_matured_to_its_end() -> None:
    events = over_confident(7, hours=40, per_hour=60)
    machine = engine(BOTH, refit={"mode": "off"})
    machine.handle(slices(events))
    machine.drain()
    (model,) = machine.snapshot().models
    assert model.early is None
    assert model.labels is not None
    assert model.labels.coverage == 1
    made = [e[2]["ts"] // BOTH.pane_ms for e in events if e[0] == "p"]
    last = max(made)
    matured = machine.signs.of_model(0).matured()
    assert matured.accepted.sum() == sum(pane > max(last, machine.event_time_ms // BOTH.pane_ms) - 144 for pane in made)
