"""What early signs count equals a recount of the logs, for any batching and any interleaving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from engine_streams import engine, slices
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recount_arrivals import recount_arrivals
from recount_events import Event, Rules
from strategies import LogPair, batchings, interleavings, log_pairs, split

from streamcal.early.cohorts import CohortCounts
from streamcal.engine import Engine

WIDE = 1000
"""Panes of the window: it holds all that the strategies make."""
FEW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def folded(rules: Rules, events: Sequence[Event], cuts: Sequence[int]) -> Engine:
    machine = engine(
        rules,
        sorted({event[1] for event in events}) or [0],
        windows=[("w", WIDE), ("short", 100)],
        refit={"mode": "off"},
    )
    for batch in split(events, cuts):
        machine.handle(slices(batch))
    return machine


def band_of(score: float) -> int:
    """Ten of equal width, closed above, by float32."""
    return sum(bool(np.float32(score) > np.float32(edge / 10)) for edge in range(1, 10))


def counts_of(counts: CohortCounts, edges: Sequence[int]) -> dict[Any, int]:
    found: Counter[Any] = Counter()
    for name in ("accepted", "labelled"):
        found.update({(name, band): int(n) for band, n in enumerate(getattr(counts, name)) if n})
    for name in ("positives", "negatives"):
        found.update({(name, edges[place]): int(n) for place, n in enumerate(getattr(counts, name)) if n})
    for name in ("score", "square"):
        found.update({(name, band): int(s * 2**30) for band, s in enumerate(getattr(counts, name)) if s})
    return dict(found)


def expected_counts(
    events: Sequence[Event], rules: Rules, model: str, edges: Sequence[int], cohort_ms: int, sealed: float
) -> tuple[dict[Any, int], dict[Any, int]]:
    """Counts of matured and of fresh cohorts, `sealed` being the first cohort that is not matured."""
    matured: Counter[Any] = Counter()
    fresh: Counter[Any] = Counter()
    for prediction, winner in recount_arrivals(events, rules)[0]:
        if prediction.model != model:
            continue
        counter = matured if prediction.t_p // cohort_ms < sealed else fresh
        band = band_of(prediction.served)
        counter["accepted", band] += 1
        counter["score", band] += round(prediction.served * 2**30)
        counter["square", band] += round(prediction.served * prediction.served * 2**30)
        if winner is not None:
            counter["labelled", band] += 1
            delay = next(edge for edge in edges if winner[0] - prediction.t_p <= edge)
            counter["positives" if winner[1] else "negatives", delay] += 1
    return tuple({key: n for key, n in counter.items() if n} for counter in (matured, fresh))  # type: ignore[return-value]


def sealed_cohort(
    watermarks: dict[Any, float], partitions: Sequence[int], rules: Rules, model: str, cohort: int
) -> float:
    """First cohort that some source may still change."""
    reached = min(
        min(watermarks.get(("p", k), -np.inf), watermarks.get(("o", k), -np.inf) - rules.horizon_of(model) - 1)
        for k in partitions
    )
    return reached if reached == -np.inf else reached // rules.pane_ms * rules.pane_ms // cohort


@FEW
@given(data=st.data(), pair=log_pairs())
def test_cohorts_equal_the_recount(data: st.DataObject, pair: LogPair) -> None:
    rules = replace(pair.rules, max_future_ms=None)
    events = data.draw(interleavings(pair.logs))
    machine = folded(rules, events, data.draw(batchings(len(events))))
    watermarks = recount_arrivals(events, rules)[1]
    partitions = sorted({event[1] for event in events}) or [0]
    for index, name in enumerate(machine.names.models):
        cohorts = machine.signs.of_model(index)
        edges = cohorts.edges.tolist()
        sealed = sealed_cohort(watermarks, partitions, rules, name, cohorts.cohort_ms)
        ends, fresh = cohorts.fresh()
        total = CohortCounts(**{field: getattr(fresh, field).sum(axis=0) for field in CohortCounts.__slots__})
        found = counts_of(cohorts.matured(), edges), counts_of(total, edges)
        assert found == expected_counts(events, rules, name, edges, cohorts.cohort_ms, sealed)
        assert (ends > sealed * cohorts.cohort_ms).all()


@FEW
@given(data=st.data(), pair=log_pairs())
def test_a_partition_that_goes_elsewhere_takes_what_is_unsettled_with_it(data: st.DataObject, pair: LogPair) -> None:
    rules = replace(pair.rules, max_future_ms=None)
    events = data.draw(interleavings(pair.logs))
    machine = folded(rules, events, data.draw(batchings(len(events))))
    machine.assign([0])
    arrivals, watermarks = recount_arrivals(events, rules)
    expected: Counter[Any] = Counter()
    for prediction, winner in arrivals:
        maturity = prediction.t_p + rules.horizon_of(prediction.model)
        gone = prediction.partition != 0 or 0 not in {event[1] for event in events}
        reached = min(watermarks.get((topic, prediction.partition), -np.inf) for topic in "po")
        if not gone or reached > maturity:
            expected[prediction.model, "accepted"] += 1
            expected[prediction.model, "labelled"] += winner is not None
            expected[prediction.model, "positives"] += winner is not None and winner[1] == 1
    for index, name in enumerate(machine.names.models):
        cohorts = machine.signs.of_model(index)
        for field in ("accepted", "labelled", "positives"):
            both = getattr(cohorts.matured(), field).sum() + getattr(cohorts.fresh()[1], field).sum()
            assert both == expected[name, field]
