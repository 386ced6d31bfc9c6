"""The machine: moments, maps and snapshots are functions of the logs, whatever the batches and whoever is ahead."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from engine_streams import DAY_MS, HOUR_MS, START_MS, engine, over_confident, slices
from recount import recount
from recount_events import Event, Log, Rules

from streamcal.engine import Engine
from streamcal.maps.compiled import CompiledMap
from streamcal.maps.document import decode
from streamcal.maps.families import Platt, Prior
from streamcal.maps.loop import PublishMap, shadow_key
from streamcal.snapshot import Series, Snapshot
from streamcal.stats.aggregate import EVERYTHING
from streamcal.stats.cells import KINDS
from streamcal.stats.counts import Column
from streamcal.stats.layout import N_BINS, bin_index

BOTH = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000)
AT_MATURITY = Rules(horizon_ms=3 * HOUR_MS, out_of_order_ms=60_000, pane_ms=600_000, labels="positives_only")
MIXED = Rules(
    horizon_ms=3 * HOUR_MS,
    out_of_order_ms=60_000,
    pane_ms=600_000,
    models={"m2": ("positives_only", 5 * HOUR_MS), "m3": ("both", HOUR_MS)},
)
Order = Callable[[Sequence[Event]], list[Event]]


def run(machine: Engine, events: Sequence[Event], cuts: Iterable[int] = ()) -> list[PublishMap]:
    ends = [0, *sorted(cuts), len(events)]
    return [command for low, high in itertools.pairwise(ends) for command in machine.handle(slices(events[low:high]))]


def by_time(events: Sequence[Event]) -> list[Event]:
    return list(events)


def log_after_log(*order: Log) -> Order:
    def arrange(events: Sequence[Event]) -> list[Event]:
        logs = sorted({event[:2] for event in events}, key=lambda log: order.index(log) if log in order else 99)
        return [event for log in logs for event in events if event[:2] == log]

    return arrange


def shuffled(seed: int) -> Order:
    """Any interleaving: which log's next record arrives is drawn anew in stretches of very different length."""

    def arrange(events: Sequence[Event]) -> list[Event]:
        rng = np.random.default_rng(seed)
        queues = {log: [e for e in events if e[:2] == log] for log in sorted({event[:2] for event in events})}
        arrived: list[Event] = []
        while queues:
            log = list(queues)[int(rng.integers(len(queues)))]
            count = int(rng.choice([1, 7, 300, 3000]))
            arrived += queues[log][:count]
            queues[log] = queues[log][count:]
            if not queues[log]:
                del queues[log]
        return arrived

    return arrange


def some_cuts(size: int, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return sorted(rng.integers(1, size, int(rng.choice([3, 60]))).tolist())


ORDERS = {
    "predictions first": log_after_log(("p", 0), ("p", 1), ("o", 0), ("o", 1)),
    "outcomes first": log_after_log(("o", 1), ("o", 0), ("p", 0), ("p", 1)),
    "one partition first": log_after_log(("p", 1), ("o", 1), ("p", 0), ("o", 0)),
    "shuffled": shuffled(1),
    "shuffled otherwise": shuffled(2),
}


def decisions(machine: Engine, published: Sequence[PublishMap]) -> dict[str, Any]:
    """Per model: documents, results of refits, and the history of attempts."""
    return {
        machine.names.models[model]: (
            [c.document for c in published if c.key in (loop.name, shadow_key(loop.name))],
            dict(loop.results),
            [attempt.report() for attempt in loop.history],
        )
        for model, loop in machine.loops.items()
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("rules", "weights", "mode"),
    [(BOTH, False, "auto"), (BOTH, True, "auto"), (AT_MATURITY, False, "auto"), (MIXED, False, "shadow")],
    ids=["both", "weighted from the middle on", "at maturity", "mixed, in shadow"],
)
def test_refits_do_not_depend_on_batches_and_on_which_log_is_ahead(
    rules: Rules, weights: bool, mode: str, order: str
) -> None:
    events = over_confident(3, hours=30, per_hour=60, partitions=2, models=("m1", "m2", "m3"), weights=weights)
    options: dict[str, Any] = {"refit": {"mode": mode}, "loops": {"m3": {"every_ms": 7 * 600_000}}}
    straight = engine(rules, (0, 1), **options)
    expected = decisions(straight, run(straight, events))
    assert sum(len(documents) for documents, *_ in expected.values()) >= 2
    arrived = ORDERS[order](events)
    other = engine(rules, (0, 1), **options)
    assert decisions(other, run(other, arrived, some_cuts(len(arrived), 5))) == expected


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("rules", "weights"), [(BOTH, False), (BOTH, True), (AT_MATURITY, False)], ids=["both", "weighted", "at maturity"]
)
def test_corrections_per_segment_do_not_depend_on_batches_and_on_which_log_is_ahead(
    rules: Rules, weights: bool, order: str
) -> None:
    events = over_confident(5, hours=60, per_hour=90, partitions=2, weights=weights, gap=0.6)
    options: dict[str, Any] = {"refit": {"dimensions": ("country",), "every_ms": 1_800_000}, "cuts": ((), ("country",))}
    straight = engine(rules, (0, 1), **options)
    expected = decisions(straight, run(straight, events))
    documents = [decode(document) for document in expected["default"][0]]
    assert sum(len(document.segments) >= 3 for document in documents) >= 2
    other = engine(rules, (0, 1), **options)
    assert decisions(other, run(other, ORDERS[order](events), some_cuts(len(events), 5))) == expected


def test_raw_scores_are_served_again_with_the_entry_of_their_segment() -> None:
    table = {"country=c0": {"offset": 1.0}, "country=c1": {"offset": -0.5, "slope": 1.2}}
    events = over_confident(6, hours=8, per_hour=60)
    refit = {"mode": "off", "prior_segments": table}
    prior = {"default": Platt(0.9, 0.2)}
    machine = engine(BOTH, priors=prior, refit=refit, apply_maps=True, keep_everything=True)
    run(machine, events)
    compiled = CompiledMap(Platt(0.9, 0.2), table)
    (counts,) = [held for held in machine.published.counts() if held.window == EVERYTHING]
    scored = {value["id"]: value for topic, _, value, _ in events if topic == "p"}
    known = {value["id"] for topic, _, value, _ in events if topic == "o"}
    for country in ("c0", "c1", "c2"):
        mine = [v["score"] for i, v in scored.items() if v["segments"]["country"] == country and i in known]
        expected = compiled.apply(np.array(mine), {"country": country})
        at = list(counts.series).index(Series("country", f"country={country}"))
        held = counts.counts[at, KINDS.index("served")]
        assert held[:, Column.N].sum() > 0.7 * len(mine)
        assert (held[:, Column.N] <= np.bincount(bin_index(expected), minlength=N_BINS)).all()


def event_times(events: Sequence[Event], rules: Rules, logs: Iterable[Log]) -> list[float]:
    """Event time just before each record: the lowest watermark over all logs."""
    watermarks = dict.fromkeys(logs, -math.inf)
    before = []
    for topic, partition, value, _ in events:
        before.append(min(watermarks.values()))
        log = topic, partition
        watermarks[log] = max(watermarks[log], value["ts"] - rules.out_of_order_ms)
    return before


@pytest.mark.parametrize("partitions", [(0,), (0, 1)], ids=["alone", "beside one that has ended"])
@pytest.mark.parametrize("batches", ["one", "every record by itself", "some"])
def test_a_map_applies_from_the_record_after_the_one_with_which_time_passes_its_moment(
    batches: str, partitions: tuple[int, ...]
) -> None:
    events = over_confident(4, hours=20, per_hour=60)
    size = len(events)
    cuts = {"one": [], "every record by itself": range(1, size), "some": some_cuts(size, 6)}[batches]
    machine = engine(BOTH, partitions, apply_maps=True, keep_everything=True)
    for topic, partition in machine.logs:
        if partition == 1:
            machine.end(topic, partition)
    documents = [decode(command.document) for command in run(machine, events, cuts)]
    assert len(documents) >= 2
    served = []
    for event, time in zip(events, event_times(events, BOTH, [("p", 0), ("o", 0)]), strict=True):
        topic, partition, value, stamp = event
        in_force = [d for d in documents if d.at_ms < time]
        if topic == "p" and in_force:
            score = float(in_force[-1].to_map().apply(np.array([value["score"]]))[0])
            value = {**value, "raw_score": value["score"], "score": score, "map_version": in_force[-1].version}
        served.append((topic, partition, value, stamp))
    assert totals(machine, EVERYTHING) == expected_totals(served, BOTH)


def totals(machine: Engine, window: str) -> dict[tuple[str, ...], dict[int, list[int]]]:
    found = {}
    series = machine.aggregate.series
    for (model, labels), numbers in series.published(machine.aggregate.alive(window)).items():
        counts = machine.aggregate.by_series(window, np.array(numbers)).sum(axis=0)
        for kind, name in enumerate(KINDS):
            bins = {int(b): counts[kind, b].tolist() for b in np.flatnonzero(counts[kind].any(axis=1))}
            found[machine.names.models[model], labels.cut, labels.segment, name] = bins
    return found


def expected_totals(events: Sequence[Event], rules: Rules) -> dict[tuple[str, ...], dict[int, list[int]]]:
    truth = recount(events, rules)
    return {(*key, name): bins for name in KINDS for key, bins in truth.totals([("country",)], name).items()}


def test_time_far_ahead_passes_without_work_and_every_multiple_with_new_rows_gets_its_attempt() -> None:
    events = over_confident(5, hours=6, per_hour=60)
    century = [e for shift in (0, 40 * 365 * DAY_MS) for e in shifted(events, shift)]
    machine = engine(BOTH)
    run(machine, century, [len(events)])
    steps = engine(BOTH)
    run(steps, century, range(1, len(century)))
    assert machine.event_time_ms == steps.event_time_ms
    attempts = [loop.history for loop in (machine.loop(0), steps.loop(0))]
    assert list(map(repr, attempts[0])) == list(map(repr, attempts[1]))
    # Rows in six hours of labels (and those known later) twice: not one attempt per hour of forty years.
    assert 10 <= sum(machine.loop(0).results.values()) <= 20


def shifted(events: Sequence[Event], by_ms: int) -> list[Event]:
    return [(t, p, {**value, "ts": value["ts"] + by_ms}, stamp) for t, p, value, stamp in events]


def test_history_is_asked_for_at_each_full_hour_with_windows_that_end_there() -> None:
    seen: list[tuple[int, int]] = []
    machine = engine(BOTH, on_history=lambda hour: seen.append((hour, int(machine.aggregate.totals("6h")[:, 0].sum()))))
    events = over_confident(6, hours=10, per_hour=20)
    run(machine, events)
    assert [hour for hour, _ in seen] == [START_MS + (i + 1) * HOUR_MS for i in range(len(seen))]
    assert len(seen) >= 9
    # At each hour, by prediction time: the rows labelled by the records read until event time passed it.
    before = event_times(events, BOTH, [("p", 0), ("o", 0)])
    for hour, rows in seen:
        read = sum(time <= hour for time in before)
        counts = recount(events[:read], BOTH).counts([("country",)], "prediction", "raw")
        inside = range(hour // BOTH.pane_ms - 36, hour // BOTH.pane_ms)
        n = sum(c[0] for (*_, pane), bins in counts.items() if pane in inside for c in bins.values())
        assert rows == 2 * n  # raw and served


def test_a_snapshot_does_not_change_with_what_follows() -> None:
    events = over_confident(7, hours=12, per_hour=60, models=("m1", "m2"), weights=True)
    machine = engine(BOTH)
    run(machine, events[: len(events) // 3])
    taken = machine.snapshot(lag={("predictions", 0): 5})
    kept = copy.deepcopy(taken)
    run(machine, events[len(events) // 3 :])
    machine.drain()
    assert_equal(taken, kept)
    later = machine.snapshot()
    assert later.sequence == taken.sequence + 1
    assert later.counters["matched"] > taken.counters["matched"]


def assert_equal(one: Snapshot, other: Snapshot) -> None:
    for model, twin in zip(one.models, other.models, strict=True):
        for window, same in zip(model.windows, twin.windows, strict=True):
            for kind in ("raw", "served"):
                arrays, twins = getattr(window, kind), getattr(same, kind)
                assert arrays.keys() == twins.keys()
                for name, values in arrays.items():
                    np.testing.assert_array_equal(values, twins[name])
            assert (window.window, window.series, window.raw_bins) == (same.window, same.series, same.raw_bins)
        for name in ("counters", "pending", "labels", "early", "score_shift", "champion", "refits", "last_outcome_ms"):
            assert getattr(model, name) == getattr(twin, name)
    assert (one.counters, one.watermarks, one.lag, one.pending) == (
        other.counters, other.watermarks, other.lag, other.pending
    )  # fmt: skip


def test_event_time_waits_for_a_partition_without_data_until_it_is_called_idle() -> None:
    machine = engine(BOTH, (0, 1))
    events = over_confident(8, hours=4, per_hour=60)
    run(machine, events)
    assert machine.event_time_ms is None
    assert machine.snapshot().models[0].counters["matched"] > 100
    for topic in ("predictions", "outcomes"):
        reached = machine.watermark(topic, 0)
        assert reached is not None
        machine.advance_idle(topic, 1, reached)
    assert machine.event_time_ms == min(machine.watermark(t, 0) or 0 for t in ("predictions", "outcomes"))
    assert machine.snapshot().models[0].windows[0].raw["n"][0] > 100


def test_what_a_dropped_partition_left_pending_is_pending_no_more() -> None:
    machine = engine(BOTH, (0, 1))
    events = over_confident(9, hours=3, per_hour=60, partitions=2)[:300]
    run(machine, events)
    alone = engine(BOTH, (0,))
    run(alone, [event for event in events if event[1] == 0])
    assert machine.tally.pending() > alone.tally.pending() > 0
    machine.assign([0])
    assert machine.tally.pending() == machine.tally.pending(0) == alone.tally.pending()
    assert machine.logs == [("predictions", 0), ("outcomes", 0)]
    machine.assign([0, 1])
    assert machine.watermark("predictions", 1) is None
    assert machine.tally.pending() == alone.tally.pending()


def test_a_partition_that_joins_late_and_behind_corrects_windows_but_not_what_was_fitted_on() -> None:
    events = over_confident(10, hours=10, per_hour=60, partitions=2)
    machine = engine(BOTH, (0,))
    run(machine, [event for event in events if event[1] == 0])
    fits = machine.aggregate.fits(0)
    read = fits.split(0)[1]
    rows = fits.rows.copy()
    time = machine.event_time_ms
    machine.assign([0, 1])
    run(machine, [event for event in events if event[1] == 1])
    assert machine.event_time_ms is not None
    assert time is not None
    assert machine.event_time_ms >= time
    older, newer = machine.aggregate.fits(0).split(0)
    assert not older.any()
    assert (newer[:, 0] >= read[:, 0]).all()
    assert machine.aggregate.fits(0).rows[: len(rows)].tolist() == rows.tolist()
    in_windows = machine.aggregate.by_series("24h", np.array([machine.aggregate.series.whole(0)]))
    expected = recount(events, BOTH).counts([], "prediction", "raw")
    inside = sum(c[0] for (*_, pane), bins in expected.items() for c in bins.values() if pane < time_pane(machine))
    assert in_windows[0, 0, :, 0].sum() == inside


def time_pane(machine: Engine) -> int:
    assert machine.event_time_ms is not None
    return -(-machine.event_time_ms // BOTH.pane_ms)


def test_a_day_0_map_is_in_force_for_the_first_event_and_published_once() -> None:
    prior = Prior(negative_sampling_rate=0.1)
    machine = engine(BOTH, priors={"default": prior}, apply_maps=True, keep_everything=True)
    commands = machine.handle([])
    assert [(c.key, decode(c.document).version, decode(c.document).family) for c in commands] == [
        ("default", 1, "prior")
    ]
    events = over_confident(11, hours=1, per_hour=20)
    assert run(machine, events) == []
    served = [
        (
            t,
            p,
            {**v, "raw_score": v["score"], "score": float(prior.apply(np.array([v["score"]]))[0])} if t == "p" else v,
            s,
        )
        for t, p, v, s in events
    ]
    assert totals(machine, EVERYTHING) == expected_totals(served, BOTH)


def test_what_was_published_before_stays_in_force_and_is_not_published_again() -> None:
    events = over_confident(12, hours=12, per_hour=60, models=("a#1",))
    first = engine(BOTH, priors={"a#1": Prior(negative_sampling_rate=0.5)})
    published = run(first, events)
    champion = first.loop(0).state()
    assert champion is not None
    assert champion.version == len(published) > 1
    again = engine(BOTH, priors={"a#1": Prior(negative_sampling_rate=0.5)})
    again.adopt({"a#1": [command.document for command in published]})
    assert again.handle([]) == []
    assert again.loop(0).state() == champion
    assert list(again.loop(0).history) == []
    on = run(again, shifted(events, 30 * DAY_MS))
    assert [decode(c.document).version for c in on] == [champion.version + 1 + i for i in range(len(on))]


def test_draining_settles_everything_and_leaves_windows_and_refits_alone() -> None:
    events = over_confident(13, hours=8, per_hour=60)
    machine = engine(AT_MATURITY, keep_everything=True)
    run(machine, events)
    time, refits = machine.event_time_ms, dict(machine.loop(0).results)
    whole = np.array([machine.aggregate.series.whole(0)])
    before = machine.aggregate.by_series("24h", whole)
    assert machine.tally.pending() > 0
    machine.drain()
    truth = recount(events, AT_MATURITY, drain=True)
    assert machine.tally.pending() == truth.pending == 0
    assert {name: machine.tally.total()[name] for name in truth.counters} == dict(truth.counters)
    assert (machine.event_time_ms, dict(machine.loop(0).results)) == (time, refits)
    assert (machine.aggregate.by_series("24h", whole)[0, 0, :, 0] >= before[0, 0, :, 0]).all()
    inside = truth.counts([], "prediction", "raw")
    n = sum(c[0] for (*_, pane), bins in inside.items() for c in bins.values() if pane < time_pane(machine))
    assert machine.aggregate.by_series("24h", whole)[0, 0, :, 0].sum() == n


def test_a_thousand_models_cost_what_they_hold() -> None:
    """Fit windows by model: tables over all models for each of them would be twenty gigabytes."""
    machine = engine(BOTH, cuts=((),))
    for turn in range(2):
        t = START_MS + turn * 2 * HOUR_MS
        events: list[Event] = []
        for i in range(1000):
            events.append(("p", 0, {"id": f"{turn}.{i}", "ts": t + i, "score": 0.3, "model": f"m{i}"}, None))
            events.append(("o", 0, {"id": f"{turn}.{i}", "ts": t + 1000 + i, "label": i % 2}, None))
        run(machine, events)
    assert len(machine.loops) == 1000
    assert machine.aggregate.nbytes < 250e6
    assert len(machine.snapshot().models) == 1000
