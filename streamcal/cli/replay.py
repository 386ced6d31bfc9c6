"""`streamcal replay`: recorded events through the engine of the daemon, and a report."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamcal.cli.options import RequiredConfigOption, configuration

if TYPE_CHECKING:  # the report's module loads its template engine
    from rich.table import Table

    from streamcal.serve.report import ModelReport, ReplayResult

__all__ = ["replay"]


class Period(StrEnum):
    """Calendar periods (UTC) a report can be split by."""

    day = "day"
    month = "month"


def replay(
    config: RequiredConfigOption,
    report: Annotated[Path, typer.Option(metavar="DIR", help="Where report.json and report.html go.")],
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Values of the predictions topic: JSON lines, gzip too.")
    ] = None,
    outcomes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Values of the outcomes topic: JSON lines, gzip too.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Instead: records of both topics in arrival order.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="At the end settle what is still open.")] = False,
    by: Annotated[Period | None, typer.Option(help="Report calendar periods (UTC) of the predictions too.")] = None,
    no_apply: Annotated[bool, typer.Option("--no-apply", help="Take scores as served then; refit in shadow.")] = False,
) -> None:
    """Run recorded events through the engine; write a report.

    Two files are read the earlier event first, each in its own order, predictions first on ties.
    """
    _check_inputs(predictions, outcomes, events)
    _check_directory(report)
    settings = configuration(config, kafka=False)

    from streamcal.cli.progress import ProgressDisplay
    from streamcal.cli.quiet import log_warnings_only
    from streamcal.runtime.replay import ReplayOptions
    from streamcal.runtime.replay import replay as run_replay
    from streamcal.serve.report import write_report

    log_warnings_only()
    options = ReplayOptions(
        predictions=predictions,
        outcomes=outcomes,
        events=events,
        drain=drain,
        by=None if by is None else by.value,
        apply=not no_apply,
    )
    with ProgressDisplay() as display:
        result = run_replay(settings, options, on_progress=display.update)
    written = write_report(result, report)
    _print_result(result, months=by is Period.month)
    typer.echo(f"report: {' '.join(map(str, written))}")


def _check_inputs(predictions: Path | None, outcomes: Path | None, events: Path | None) -> None:
    if events is not None and (predictions is not None or outcomes is not None):
        raise typer.BadParameter("--events holds both topics; leave out --predictions and --outcomes")
    if events is None and predictions is None and outcomes is None:
        raise typer.BadParameter("give --predictions and --outcomes, or --events")
    if events is None and (predictions is None or outcomes is None):
        missing = "--predictions" if predictions is None else "--outcomes"
        raise typer.BadParameter(f"{missing} is missing; a replay needs both topics")


def _check_directory(report: Path) -> None:
    """Say so before the work rather than after it."""
    from streamcal.errors import StreamcalError

    try:
        report.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made: {error.strerror or error}"
        raise StreamcalError(what, where=str(report), hint="give --report a directory") from error


def _print_result(result: ReplayResult, *, months: bool) -> None:
    from rich.console import Console

    if result.from_ms is None:
        typer.echo("no event was taken")
    for name, model in result.models.items():
        Console().print(_table(name, model, months=months))
    counters = result.counters
    typer.echo(
        f"{counters['accepted_prediction']:,} predictions, {counters['accepted_outcome']:,} outcomes accepted; "
        f"{counters['matched']:,} matched, {counters['expired']:,} expired, {result.pending:,} pending"
    )
    if result.rejected:
        typer.echo("rejected: " + ", ".join(f"{count:,} {reason}" for reason, count in sorted(result.rejected.items())))


def _table(name: str, model: ModelReport, *, months: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("", "n", "ECE raw", "ECE served", "slope raw", "slope served", box=box.SIMPLE)
    table.title = Text(f"model {name}")
    for column in table.columns[1:]:
        column.justify = "right"
    whole = model.segments.get("all", {"windows": {}, "periods": []})
    rows = {_window_title(window): pair for window, pair in whole["windows"].items()}
    if months:
        rows = {_month(period["from_ms"]): period for period in whole["periods"]} | rows
    for title, pair in rows.items():
        table.add_row(Text(title), f"{pair['raw'].get('n', 0):,}", *_cells(pair))
    return table


def _window_title(window: str) -> str:
    return "everything" if window == "all" else f"last {window}"


def _month(start_ms: int) -> str:
    return datetime.fromtimestamp(start_ms / 1000, UTC).strftime("%Y-%m")


def _cells(pair: dict[str, Any]) -> list[str]:
    return [
        f"{pair[kind][figure]:.4f}" if figure in pair[kind] else "-"
        for figure in ("ece", "platt_slope")
        for kind in ("raw", "served")
    ]
