"""The recount itself: held to cases worked by hand, and to a second simulation that forgets."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import join_cases
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from join_cases import Expectation, events_of, expectations, observed, rules_of
from recount import Recount, recount
from recount_by_record import simulate
from recount_events import Event, Rules

TESTS = Path(__file__).parent
INDEPENDENT = (*sorted(path.name for path in TESTS.glob("recount*.py")), "join_cases.py", "strategies.py")


def p(t: int, score: float = 0.3, *, key: str = "a", partition: int = 0, **more: Any) -> Event:
    return ("p", partition, {"id": key, "ts": t, "score": score, **more}, None)


def o(t: int, label: int = 1, *, key: str = "a", partition: int = 0, **more: Any) -> Event:
    return ("o", partition, {"id": key, "ts": t, "label": label, **more}, None)


def seen(result: Recount) -> dict[str, int]:
    """Counters that are not zero, without the accepted ones, and what is pending."""
    counts = {name: n for name, n in result.counters.items() if n and not name.startswith("accepted")}
    return counts | ({"pending": result.pending} if result.pending else {})


def state(result: Recount, *, weighted: bool | None = None) -> tuple[Any, ...]:
    """Everything that must not depend on interleaving or batching."""
    counts = [
        result.counts(strategies.CUTS, family, kind, weighted=weighted)
        for family in ("prediction", "outcome")
        for kind in ("raw", "served")
    ]
    return result.counters, result.model_counters, result.pending, result.watermarks, counts


# --- independence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INDEPENDENT)
def test_imports_nothing_of_the_product(name: str) -> None:
    for node in ast.walk(ast.parse((TESTS / name).read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [module for module in modules if module.split(".")[0] == "streamcal"]
        assert not (isinstance(node, ast.Name) and node.id in ("__import__", "import_module"))


# --- shared cases ------------------------------------------------------------------------------------------

CASE_EXPECTATIONS = [
    pytest.param(case, expectation, id=f"{case['id']}: {expectation.figure} {expectation.model or ''}")
    for case in join_cases.load_cases()
    if case["id"] not in join_cases.DECODE_CASES
    for expectation in expectations(case)
]


@pytest.mark.parametrize(("case", "expectation"), CASE_EXPECTATIONS)
def test_a_shared_join_case_holds(case: dict[str, Any], expectation: Expectation) -> None:
    result = recount(events_of(case), rules_of(case), drain=expectation.drained)
    assert observed(result, expectation) == pytest.approx(expectation.value, abs=1e-9)


# --- hand-made cases: horizon 10 unless said ------------------------------------------------------------------

SKEWED = Rules(10, skew_ms=3)
BOTH = Rules(10)
POSITIVES = Rules(10, labels="positives_only")
HAND_CASES: dict[str, tuple[Rules, list[Event], dict[str, int]]] = {
    "an outcome at minus skew matches": (SKEWED, [p(100), o(97)], {"matched": 1}),
    "one ms before minus skew is unrelated": (SKEWED, [p(100), o(96)], {"orphan_outcome": 1, "pending": 1}),
    "and no orphan before predictions pass it": (
        Rules(10, skew_ms=3, out_of_order_ms=1),
        [p(100), o(96)],
        {"pending": 1},
    ),
    "prediction watermark equal to t_o + skew settles nothing": (SKEWED, [o(97), p(100, key="b")], {"pending": 1}),
    "one ms more does": (SKEWED, [o(97), p(101, key="b")], {"orphan_outcome": 1, "pending": 1}),
    "W equal to t_p is not late": (BOTH, [p(100), p(100, key="b")], {"pending": 2}),
    "W above t_p is late": (BOTH, [p(101), p(100, key="b")], {"late_prediction": 1, "pending": 1}),
    "out of order moves the bound": (Rules(10, out_of_order_ms=1), [p(101), p(100, key="b")], {"pending": 2}),
    "late goes before duplicate": (BOTH, [p(100), p(101, key="b"), p(100)], {"late_prediction": 1, "pending": 2}),
    "W at t_p + horizon is still a duplicate": (
        BOTH,
        [p(100), p(110, key="b"), p(120)],
        {"duplicate_prediction": 1, "pending": 2},
    ),
    "W past t_p + horizon is a new prediction": (BOTH, [p(100), p(111, key="b"), p(120)], {"pending": 3}),
    "a duplicate counts by the watermark before it": (
        BOTH,
        [p(100), p(120)],
        {"duplicate_prediction": 1, "pending": 1},
    ),
    "a late or duplicate prediction moves the watermark": (
        BOTH,
        [p(100), p(105), p(104, key="b")],
        {"duplicate_prediction": 1, "late_prediction": 1, "pending": 1},
    ),
    "outcome watermark at t_p + horizon expires nothing": (BOTH, [p(100), o(110, key="z")], {"pending": 1}),
    "one ms more expires": (BOTH, [p(100), o(111, key="z")], {"expired": 1}),
    "an outcome in time behind a W past the horizon is late": (
        BOTH,
        [p(100), o(111, key="z"), o(105), p(106, key="b")],
        {"expired": 1, "late_outcome": 1, "pending": 1},
    ),
    "W_o at two horizons is late, one more is an orphan": (
        BOTH,
        [p(100), o(120, key="z"), o(105), o(121, key="z"), o(105), p(112, key="b")],
        {"expired": 1, "late_outcome": 1, "orphan_outcome": 1, "pending": 1},
    ),
    "an outcome after the horizon is late however much later": (
        BOTH,
        [p(100), o(5000), p(5001, key="b")],
        {"expired": 1, "late_outcome": 1, "pending": 1},
    ),
    "an outcome matched once is neither late nor orphan": (
        BOTH,
        [p(100), p(111, key="b"), p(112), o(112), p(113, key="b")],
        {"duplicate_prediction": 1, "matched": 1, "expired": 1, "pending": 1},
    ),
    "a tie goes to label 1": (BOTH, [p(100), o(105, 0), o(105, 1)], {"matched": 1, "revised_outcome": 1}),
    "and label 0 loses a tie": (BOTH, [p(100), o(105, 1), o(105, 0)], {"matched": 1, "duplicate_outcome": 1}),
    "the same label renews the time": (
        BOTH,
        [p(100), o(104, 1), o(106, 1), o(105, 0)],
        {"matched": 1, "duplicate_outcome": 2},
    ),
    "duplicates count per prediction and outcome": (
        BOTH,
        [p(100, model="m1"), p(100, model="m2"), o(101), o(102)],
        {"matched": 2, "duplicate_outcome": 2},
    ),
    "an outcome naming default serves only it": (
        BOTH,
        [p(100), p(100, model="m1"), o(101, model="default"), o(102, model="m3"), p(103, key="b")],
        {"matched": 1, "orphan_outcome": 1, "pending": 2},
    ),
    "partitions do not meet": (
        BOTH,
        [p(100), o(101, partition=1), p(102, key="b", partition=1)],
        {"orphan_outcome": 1, "pending": 2},
    ),
    "a zero is a label with positives only": (POSITIVES, [p(100), o(101, 0), o(111, key="z")], {"matched": 1}),
    "a positive is not released before maturity": (POSITIVES, [p(100), o(101), o(110, key="z")], {"pending": 1}),
    "an absent label is a positive with positives only": (
        POSITIVES,
        [p(100), ("o", 0, {"id": "a", "ts": 101}, None), o(102, 1), o(111, key="z")],
        {"matched": 1, "duplicate_outcome": 1},
    ),
    "each model has its own horizon and mode": (
        Rules(10, models={"m1": ("positives_only", 20)}),
        [p(100), p(100, model="m1"), o(115), o(120, key="z")],
        {"expired": 1, "pending": 1},
    ),
    "a served score without its raw one is counted once accepted": (
        BOTH,
        [p(100, map_version=1), p(100, map_version=1), p(100, key="b", map_version=1, raw_score=0.2)],
        {"without_raw": 1, "duplicate_prediction": 1, "pending": 2},
    ),
    "extreme rows": (
        BOTH,
        [p(100, 1.0), p(100, 1e-8, key="b"), p(100, 1 - 1e-7, key="c"), o(101), o(102), o(101, key="c")],
        {"extreme": 1, "matched": 2, "duplicate_outcome": 1, "pending": 1},
    ),
    "a recorded advance is a watermark": (
        BOTH,
        [p(100), ("o", 0, {"advance": 111}, None), ("o", 0, {"advance": 50}, None), o(105), p(106, key="b")],
        {"expired": 1, "late_outcome": 1, "pending": 1},
    ),
}


@pytest.mark.parametrize(("rules", "events", "expected"), HAND_CASES.values(), ids=HAND_CASES)
def test_a_hand_made_case_holds(rules: Rules, events: list[Event], expected: dict[str, int]) -> None:
    assert seen(recount(events, rules)) == expected


def test_a_future_record_moves_nothing() -> None:
    rules = Rules(10, max_future_ms=5)
    events: list[Event] = [
        ("p", 0, {"id": "a", "ts": 106, "score": 0.5}, 100),
        ("p", 0, {"id": "b", "ts": 105, "score": 0.5}, 100),
    ]
    result = recount(events, rules)
    assert (result.future, result.watermarks, result.pending) == ({"p": 1}, {("p", 0): 105}, 1)


def test_draining_releases_and_settles_everything() -> None:
    events = [p(100), o(300, key="z"), p(200, key="b"), o(100, partition=1)]
    assert seen(recount(events, BOTH, drain=True)) == {"expired": 2, "orphan_outcome": 2}
    assert recount(events, BOTH, drain=True).watermarks == {("p", 0): 200, ("o", 0): 300, ("o", 1): 100}


def test_the_row_follows_the_winner_and_its_time() -> None:
    (row,) = recount([p(100), o(103, 0), o(109, 1), o(104, 0)], BOTH).rows
    assert (row.label, row.t_p, row.t_o) == (1, 100, 109)


@pytest.mark.parametrize("label", [0, 1])
def test_with_positives_only_the_outcome_time_is_the_horizon(label: int) -> None:
    (row,) = recount([p(100), o(103, label), o(111, key="z")], POSITIVES).rows
    assert (row.label, row.t_o) == (label, 110)


# --- properties ----------------------------------------------------------------------------------------------


def row_key(row: Any) -> tuple[Any, ...]:
    return (row.partition, row.id, row.model, row.t_p, row.t_o, row.label, row.served)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_simulation_that_forgets_agrees_under_every_interleaving(data: st.DataObject) -> None:
    pair = data.draw(strategies.log_pairs())
    events = data.draw(strategies.interleavings(pair.logs))
    for drain in (False, True):
        result = recount(events, pair.rules, drain=drain)
        counters, pending, rows = simulate(events, pair.rules, drain=drain)
        for name in ("without_raw", "extreme"):
            counters[name] = result.counters[name]
        assert counters == result.counters
        assert pending == result.pending
        assert sorted(map(row_key, rows)) == sorted(map(row_key, result.rows))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_two_interleavings_recount_alike(data: st.DataObject) -> None:
    pair = data.draw(strategies.log_pairs())
    one = recount(data.draw(strategies.interleavings(pair.logs)), pair.rules)
    two = recount(data.draw(strategies.interleavings(pair.logs)), pair.rules)
    assert state(one) == state(two)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_accepted_event_ends_once(data: st.DataObject) -> None:
    pair = data.draw(strategies.log_pairs())
    events = data.draw(strategies.interleavings(pair.logs))
    for drain in (False, True):
        result = recount(events, pair.rules, drain=drain)
        ends = Counter(result.counters)
        released = ends["matched"] + ends["expired"] + ends["negative_at_maturity"]
        assert ends["accepted_prediction"] == released + result.pending
        assert len(result.rows) == ends["matched"] + ends["negative_at_maturity"]
        if drain:
            assert result.pending == 0
            repeated = ends["duplicate_outcome"] + ends["revised_outcome"]
            assert result.matches == ends["matched"] + repeated


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_outcomes_shuffled_within_out_of_order_change_no_count(data: st.DataObject) -> None:
    pair = data.draw(strategies.log_pairs())
    logs = dict(pair.logs)
    for log in [log for log in logs if log[0] == "o"]:
        logs[log] = sorted(logs[log], key=lambda event: event[2]["ts"])
    before = recount(data.draw(strategies.interleavings(logs)), pair.rules)
    for log in [log for log in logs if log[0] == "o"]:
        logs[log] = data.draw(strategies.shuffled_within(logs[log], pair.rules.out_of_order_ms))
    after = recount(data.draw(strategies.interleavings(logs)), pair.rules)
    assert state(before)[2:] == state(after)[2:]
    for one, other in (("duplicate_outcome", "revised_outcome"), ("late_outcome", "orphan_outcome")):
        assert before.counters[one] + before.counters[other] == after.counters[one] + after.counters[other]


@given(st.data())
def test_batches_concatenate_to_the_whole(data: st.DataObject) -> None:
    items = list(range(data.draw(st.integers(0, 8))))
    batches = strategies.split(items, data.draw(strategies.batchings(len(items))))
    assert [item for batch in batches for item in batch] == items
    assert all(batches) or not items
