"""The table of rows by id, against a dict of lists."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamcal.stream.keyed_rows import NO_ROW, KeyedRows, first_of_each

# Few low halves, so that ids crowd one run of index places; equal low halves of different ids among them.
IDS = [(hi, lo) for hi in range(3) for lo in (0, 1, 2, 4096, 1 << 63)]


def columns(ids: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(ids, dtype=np.uint64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


class AgainstADict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = KeyedRows({"value": np.int64})
        self.truth: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.row_of: dict[int, int] = {}
        self.count = 0

    @rule(ids=st.lists(st.sampled_from(IDS), max_size=12))
    def add(self, ids: list[tuple[int, int]]) -> None:
        self.put(ids)

    @rule(size=st.integers(500, 1500))
    def add_many_others(self, size: int) -> None:
        self.put([(99, self.count + i) for i in range(size)])

    def put(self, ids: list[tuple[int, int]]) -> None:
        hi, lo = columns(ids)
        rows = self.table.add(hi, lo, self.table.find(hi, lo))
        values = np.arange(self.count, self.count + len(ids))
        self.table.columns["value"][rows] = values
        self.count += len(ids)
        for key, value, row in zip(ids, values.tolist(), rows.tolist(), strict=True):
            self.truth[key].append(value)
            self.row_of[value] = row

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        shared = [value for key in IDS for value in self.truth[key]]
        if shared:
            self.take(data.draw(st.lists(st.sampled_from(shared), unique=True)))

    @rule(share=st.integers(2, 5))
    def remove_a_share_of_all(self, share: int) -> None:
        self.take([value for value in self.row_of if value % share == 0])

    def take(self, values: list[int]) -> None:
        self.table.remove(np.array([self.row_of.pop(value) for value in values], dtype=np.int32))
        gone = set(values)
        for key, held in list(self.truth.items()):
            self.truth[key] = [value for value in held if value not in gone]

    @invariant()
    def every_id_leads_to_its_rows_and_to_no_other(self) -> None:
        hi, lo = columns(IDS)
        heads = self.table.find(hi, lo)
        owner, rows = self.table.chains(heads)
        assert (np.diff(owner) >= 0).all()
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place, value in zip(owner.tolist(), self.table.columns["value"][rows].tolist(), strict=True):
            found[IDS[place]].append(value)
        assert {key: sorted(found[key]) for key in IDS} == {key: self.truth[key] for key in IDS}
        assert ((heads == NO_ROW) == [not self.truth[key] for key in IDS]).all()

    @invariant()
    def counts_and_live_rows_agree(self) -> None:
        assert len(self.table) == len(self.row_of)
        assert sorted(self.row_of.values()) == self.table.live().tolist()


AgainstADict.TestCase.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestAgainstADict = AgainstADict.TestCase


def test_ids_come_back_as_they_went_in() -> None:
    table = KeyedRows({})
    hi, lo = columns([(7, 8), (1 << 63, 3)])
    found = table.ids(table.add(hi, lo, table.find(hi, lo)))
    assert [half.tolist() for half in found] == [[7, 1 << 63], [8, 3]]


def test_a_row_keeps_its_number_while_the_table_grows() -> None:
    table = KeyedRows({"value": np.int64})
    hi, lo = columns([(1, 1)])
    row = table.add(hi, lo, table.find(hi, lo))
    table.columns["value"][row] = 42
    many = columns([(2, i) for i in range(5000)])
    table.add(*many, table.find(*many))
    assert table.find(hi, lo).tolist() == row.tolist()
    assert table.columns["value"][row] == 42


def test_rows_are_used_again_and_the_table_does_not_grow_with_what_left() -> None:
    table = KeyedRows({"value": np.int64})
    for i in range(50):
        ids = columns([(i, k) for k in range(1000)])
        table.remove(table.add(*ids, table.find(*ids)))
    assert len(table) == 0
    assert table.nbytes < 120 * 1024 + 4 * 16384


def test_a_table_that_was_large_once_gives_its_memory_back_and_finds_what_is_left() -> None:
    table = KeyedRows({"value": np.int64})
    small = table.nbytes
    hi, lo = np.zeros(100_000, dtype=np.uint64), np.arange(100_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    rows = table.add(hi, lo, table.find(hi, lo))
    table.columns["value"][rows] = np.arange(100_000)
    large = table.nbytes
    table.remove(rows[:99_000:2])  # what stays lies behind
    table.remove(rows[1:99_000:2])
    assert (table.columns["value"][table.find(hi[99_000:], lo[99_000:])] == np.arange(99_000, 100_000)).all()
    assert (table.find(hi[:99_000], lo[:99_000]) == NO_ROW).all()
    for turn in range(1, 120):  # a steady stream of a thousand
        live = np.sort(table.live())
        assert len(live) == 1000
        hi, lo = np.full(500, turn, dtype=np.uint64), np.arange(500, dtype=np.uint64)
        table.remove(live[-500:])
        table.add(hi, lo, table.find(hi, lo))
        assert len(table.chains(table.find(hi, lo))[1]) == 500
    assert large > 20 * small
    assert table.nbytes < 4 * small


def test_one_id_a_hundred_thousand_times_is_no_slower_than_as_many_ids() -> None:
    """A chain is never walked to add to it or to remove from it: each step here would walk up to 100,000 rows."""
    table = KeyedRows({})
    rows = []
    for _ in range(100):
        ids = columns([(1, 1)] * 1000)
        rows.append(table.add(*ids, table.find(*ids)))
    waiting = np.concatenate(rows)
    for i in range(1000):
        table.remove(waiting[i::1000])
    assert table.find(*columns([(1, 1)])).tolist() == [NO_ROW]


def test_the_first_of_each_value_is_told() -> None:
    rng = np.random.default_rng(5)
    key = rng.integers(0, 30, 200).astype(np.uint64)
    seen: set[int] = set()
    expected = [not (k in seen or seen.add(k)) for k in key.tolist()]  # type: ignore[func-returns-value]
    assert first_of_each(key).tolist() == expected
    assert first_of_each(key[:0]).tolist() == []
