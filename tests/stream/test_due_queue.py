"""Rows by due time, against a plain list."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamcal.stream.due_queue import DueQueue


def push(queue: DueQueue, due: list[int], rows: list[int]) -> None:
    queue.push(np.array(due, dtype=np.int64), np.array(rows, dtype=np.int32))


def test_a_row_leaves_once_the_watermark_is_past_its_time_and_not_when_it_reaches_it() -> None:
    queue = DueQueue()
    push(queue, [10], [1])
    assert queue.pop(10).tolist() == []
    assert queue.pop(11).tolist() == [1]
    assert queue.pop(1000).tolist() == []


@given(st.lists(st.one_of(st.lists(st.integers(-50, 50), max_size=30), st.integers(-60, 60)), max_size=120))
def test_pops_give_what_a_list_gives(steps: list[list[int] | int]) -> None:
    queue, waiting, count = DueQueue(), [], 0
    for step in steps:
        if isinstance(step, list):
            rows = list(range(count, count + len(step)))
            push(queue, step, rows)
            waiting += zip(step, rows, strict=True)
            count += len(step)
        else:
            popped = sorted(queue.pop(step).tolist())
            assert popped == sorted(row for due, row in waiting if due < step)
            waiting = [(due, row) for due, row in waiting if due >= step]
        assert len(queue) == len(waiting)


def test_pushing_row_by_row_leaves_few_runs() -> None:
    queue = DueQueue()
    for i in range(20_000):
        push(queue, [i * 7919 % 20_000], [i])
    assert len(queue._runs) < 80
    assert queue.nbytes == 20_000 * 12
    assert len(queue.pop(10_000)) == 10_000


def test_what_is_left_of_a_long_run_does_not_hold_the_rest_of_it() -> None:
    queue = DueQueue()
    for _ in range(20):
        push(queue, [*range(10_000), 10**9], list(range(10_001)))
        queue.pop(10**6)
    assert len(queue) == 20
    assert queue.nbytes < 20 * 100
