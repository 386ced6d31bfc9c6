"""Counts for other threads: answered by the loop after the question, and never waited for by it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamcal.published import WindowCounts
from streamcal.runtime.counts_desk import CountsDesk, counts_document
from streamcal.snapshot import Series


def one_bin(n: int) -> WindowCounts:
    counts = np.zeros((1, 2, 284, 9), dtype=np.int64)
    counts[0, 0, 7, :2] = (n, 1)
    return WindowCounts("ctr", "24h", [Series("country", "country=GB")], counts)


def test_only_bins_with_rows_are_written() -> None:
    columns = [3, 1, 0, 0, 0, 0, 0, 0, 0]
    windows = {"24h": {"raw": {7: columns}, "served": {}}}
    assert counts_document([one_bin(3)]) == {
        "ctr": {"segments": {"country=GB": {"cut": "country", "windows": windows}}}
    }


def test_nothing_is_taken_while_nobody_asks() -> None:
    def take() -> list[WindowCounts]:
        raise AssertionError("taken")

    CountsDesk().answer(take)


def test_everyone_who_asked_gets_counts_taken_afterwards() -> None:
    desk, asked = CountsDesk(patience_s=60), threading.Barrier(5)
    taken = 0

    def ask() -> int:
        asked.wait()
        bins: dict[int, list[int]] = desk.ask()["ctr"]["segments"]["country=GB"]["windows"]["24h"]["raw"]
        return bins[7][0]

    def take() -> list[WindowCounts]:
        nonlocal taken
        taken += 1
        return [one_bin(taken)]

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask) for _ in range(4)]
        asked.wait()
        while not all(answer.done() for answer in answers):
            desk.answer(take)
        found = [answer.result() for answer in answers]
    assert all(1 <= number <= taken for number in found)


def test_a_loop_that_does_not_come_by_is_not_waited_for_without_end() -> None:
    with pytest.raises(TimeoutError, match="did not answer"):
        CountsDesk(patience_s=0).ask()
