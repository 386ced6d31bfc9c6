from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from flights_year import CONFIG, ReplayedYear
from rich.console import Console

from streamcal.cli.progress import ProgressDisplay
from streamcal.serve.table import Progress

T = 1_700_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    predictions, outcomes = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    rows = range(40)
    predictions.write_text(
        "".join(json.dumps({"id": i, "score": 0.2 + i % 2 / 2, "ts": T + i}) + "\n" for i in rows), encoding="utf-8"
    )
    outcomes.write_text(
        "".join(json.dumps({"id": i, "label": i % 3 % 2, "ts": T + 50 + i}) + "\n" for i in rows), encoding="utf-8"
    )
    return predictions, outcomes


def arguments(files: tuple[Path, Path], report: Path, *more: object) -> tuple[object, ...]:
    predictions, outcomes = files
    return (
        "replay", "--config", CONFIG, "--predictions", predictions, "--outcomes", outcomes, "--report", report, *more
    )  # fmt: skip


def test_it_writes_the_report_and_says_where(streamcal, files: tuple[Path, Path], tmp_path: Path) -> None:
    report = tmp_path / "deep" / "report"
    said = streamcal(*arguments(files, report, "--by", "day"))
    assert said.code == 0
    assert said.out.splitlines()[-1] == f"report: {report}/report.json {report}/report.html"
    assert "40 predictions, 40 outcomes accepted; 40 matched, 0 expired, 0 pending" in said.out
    written = json.loads((report / "report.json").read_text(encoding="utf-8"))
    assert len(written["models"]["default"]["segments"]["all"]["periods"]) == 1


def test_rejected_lines_are_counted_by_reason(streamcal, files: tuple[Path, Path], tmp_path: Path) -> None:
    with files[0].open("a", encoding="utf-8") as file:
        file.write('{"id": "x", "score": 7, "ts": 1700000000100}\nnonsense\n')
    said = streamcal(*arguments(files, tmp_path / "r"))
    assert said.code == 0
    assert "rejected: 1 bad_score, 1 malformed" in said.out.splitlines()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "give --predictions and --outcomes, or --events"),
        (["--predictions", "p"], "--outcomes is missing"),
        (["--outcomes", "o"], "--predictions is missing"),
        (["--events", "e", "--outcomes", "o"], "--events holds both topics"),
    ],
)
def test_inputs_that_do_not_go_together_are_wrong_usage(streamcal, tmp_path: Path, given: list[str], says: str) -> None:
    said = streamcal("replay", "--config", CONFIG, "--report", tmp_path / "r", *given)
    assert said.code == 2
    assert says in said.err
    assert not (tmp_path / "r").exists()


def test_an_unknown_period_is_wrong_usage(streamcal, files: tuple[Path, Path], tmp_path: Path) -> None:
    assert streamcal(*arguments(files, tmp_path / "r", "--by", "week")).code == 2


def test_a_report_that_cannot_be_written_is_said_before_the_work(
    streamcal, files: tuple[Path, Path], tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file", encoding="utf-8")
    said = streamcal(*arguments(files, taken))
    assert said.code == 1
    assert said.err == f"streamcal: {taken}: cannot be made: File exists; give --report a directory\n"


def test_a_missing_input_is_one_line(streamcal, files: tuple[Path, Path], tmp_path: Path) -> None:
    files[0].unlink()
    said = streamcal(*arguments(files, tmp_path / "r"))
    assert (said.code, said.out) == (3, "")
    assert said.err == f"streamcal: {files[0]}: No such file or directory; check the path and its permissions\n"


def test_no_event_at_all_is_said(streamcal, files: tuple[Path, Path], tmp_path: Path) -> None:
    for path in files:
        path.write_text("", encoding="utf-8")
    said = streamcal(*arguments(files, tmp_path / "r"))
    assert said.code == 0
    assert said.out.splitlines()[0] == "no event was taken"


@pytest.mark.slow
def test_the_year_is_shown_month_by_month(flights_year: ReplayedYear) -> None:
    rows = [line.split() for line in flights_year.stdout.splitlines()]
    months = {row[0]: row[1:] for row in rows if row and row[0].startswith("2013-")}
    assert len(months) == 11
    for period in flights_year.report["models"]["default"]["segments"]["all"]["periods"]:
        shown = months.pop(next(iter(months)))
        raw, served = period["raw"], period["served"]
        assert shown == [
            f"{raw['n']:,}",
            *(f"{figures[name]:.4f}" for name in ("ece", "platt_slope") for figures in (raw, served)),
        ]


@pytest.mark.slow
def test_progress_of_the_year_is_plain_lines(flights_year: ReplayedYear) -> None:
    lines = flights_year.stderr.splitlines()
    assert 5 <= len(lines) <= 10
    assert lines[-1] == "601,896 of 601,896 events (100 %), 2013-12-31"
    assert "\x1b" not in flights_year.stderr


def test_in_a_terminal_progress_is_a_bar_that_goes_away() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100, color_system=None)
    with ProgressDisplay(console) as display:
        display.update(Progress(1, 4, "2013-02-01"))
        display.update(Progress(2, 4, "2013-03-01"))
    text = console.file.getvalue()
    assert "2 of 4 events (50 %), 2013-03-01" in text
    assert "━" in text
    assert "2 of 4" not in text.rsplit("\x1b[2K", 1)[-1]
