from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from streamcal.serve.table import MonthRow, MonthTable, Progress

FEB = MonthRow("2013-02", 24_951, 0.04117, 0.0201, 0.5799, 0.97, finished=True)
MAR = MonthRow("2013-03", 28_834, 0.04326, None, 0.5468, None)


@pytest.fixture
def plain():
    return Console(file=StringIO(), force_terminal=False, width=40)


def lines(console: Console) -> list[list[str]]:
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_without_a_terminal_each_month_is_one_line_when_it_is_finished(plain):
    with MonthTable(plain, title="flights") as table:
        table.update([MonthRow("2013-02", 10, 0.1, 0.1, 1.0, 1.0)])
        assert len(lines(plain)) == 2
        table.update([FEB, MAR])
        table.update([FEB, MAR])
        assert lines(plain)[2:] == [["2013-02", "24,951", "0.0412", "0.0201", "0.5799", "0.9700"]]
    assert lines(plain)[:2] == [
        ["flights"],
        ["month", "n", "ECE", "raw", "ECE", "served", "slope", "raw", "slope", "served"],
    ]
    assert lines(plain)[3:] == [
        ["2013-03", "28,834", "0.0433", "-", "0.5468", "-"],
        ["mean", "53,785", "0.0422", "0.0201"],
    ]
    assert "\x1b" not in plain.file.getvalue()


def test_without_a_terminal_progress_is_a_line_at_every_tenth(plain):
    with MonthTable(plain) as table:
        for done in range(0, 1001, 7):
            table.update([], Progress(done, 1000, "2013-02-03"))
    shown = [line for line in plain.file.getvalue().splitlines() if "events" in line]
    assert shown[0] == "105 of 1,000 events (10 %), 2013-02-03"
    assert len(shown) == 9  # 994 is the last update: 99 %


def test_without_a_known_end_progress_is_a_line_at_every_50_000_events(plain):
    with MonthTable(plain) as table:
        for done in range(0, 160_000, 10_000):
            table.update([], Progress(done))
    assert [line for line in plain.file.getvalue().splitlines() if "events" in line] == [
        "50,000 events", "100,000 events", "150,000 events",
    ]  # fmt: skip


def test_an_interrupted_run_still_prints_the_month_it_was_in(plain):
    def interrupted() -> None:
        with MonthTable(plain) as table:
            table.update([FEB, MAR])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [line[0] for line in lines(plain)] == ["month", "2013-02", "2013-03"]


def test_in_a_terminal_the_table_shows_every_month_and_the_progress():
    console = Console(file=StringIO(), force_terminal=True, width=100, color_system=None)
    with MonthTable(console, title="flights [red]") as table:
        table.update([FEB], Progress(1, 4))
        table.update([FEB, MAR], Progress(2, 4))
    last = console.file.getvalue().rpartition("flights")[2]
    for text in (" [red]", "2013-02", "0.0412", "0.9700", "2013-03", "53,785", "2 of 4 events (50 %)"):
        assert text in last


def test_a_title_is_text_and_not_markup(plain):
    with MonthTable(plain, title="[red]x[/nope] http://127.0.0.1:9871/metrics"):
        pass
    assert plain.file.getvalue().splitlines()[0] == "[red]x[/nope] http://127.0.0.1:9871/metrics"
