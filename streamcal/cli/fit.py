"""`streamcal fit`: an initial map from a file of labelled scores, and a report of what it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamcal.errors import InputFileError, StreamcalError

if TYPE_CHECKING:  # scipy and the rest are loaded when the command runs
    from rich.table import Table

    from streamcal.maps.document import MapDocument
    from streamcal.runtime.initial_map import FitOptions, InitialMap, Judged
    from streamcal.runtime.labelled_rows import Columns, LabelledRows

__all__ = ["fit"]


class Family(StrEnum):
    """Every kind of map there is; typer needs them by name before the fits are loaded."""

    identity = "identity"
    prior = "prior"
    intercept = "intercept"
    temperature = "temperature"
    platt = "platt"
    beta = "beta"
    isotonic = "isotonic"
    girb = "girb"
    cir = "cir"
    tracking = "tracking"


class TimeUnit(StrEnum):
    """Units of a time, as in the configuration."""

    ms = "ms"
    s = "s"
    us = "us"
    ns = "ns"
    rfc3339 = "rfc3339"


class Form(StrEnum):
    """Kinds of file."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


def fit(  # noqa: PLR0913, PLR0917 -- one option each
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows: JSON lines, CSV (gzip too) or Parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the map document goes.")],
    family: Annotated[Family, typer.Option(help="Kind of map.")] = Family.platt,
    model: Annotated[str, typer.Option(metavar="NAME", help="Model the map is for.")] = "default",
    score: Annotated[str, typer.Option(metavar="COLUMN", help="Raw score: a column, or a path like a.b.")] = "score",
    label: Annotated[str, typer.Option(metavar="COLUMN", help="Label of the row.")] = "label",
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Time of the prediction. Default: the order of the file.")
    ] = None,
    time_unit: Annotated[TimeUnit, typer.Option(help="Unit of the time; Parquet timestamps are ms.")] = TimeUnit.ms,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Weight of the row. Default: 1.")] = None,
    segment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]COLUMN", help="Correct by this dimension too; several make a chain, the coarsest first."
        ),
    ] = None,
    positive: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="Labels that mean yes, in place of 1 and true.")
    ] = None,
    negative: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="Labels that mean no, in place of 0 and false.")
    ] = None,
    negative_sampling_rate: Annotated[
        float | None, typer.Option(metavar="R", help="For --family prior: share of negatives kept in training.")
    ] = None,
    positive_weight: Annotated[
        float | None, typer.Option(metavar="W", help="For --family prior: weight of positives in training.")
    ] = None,
    holdout: Annotated[
        float, typer.Option(metavar="SHARE", help="Newest share of the rows that judges a map of the others.")
    ] = 0.2,
    min_count: Annotated[int, typer.Option(metavar="N", min=1, help="Rows of either class that a fit needs.")] = 50,
    version: Annotated[int, typer.Option(metavar="V", min=1, help="Version of the document.")] = 1,
    signing_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sign the document with the key in this file.")
    ] = None,
    form: Annotated[Form | None, typer.Option("--format", help="Kind of file. Default: by its name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")] = False,
) -> None:
    """Fit an initial map to labelled scores; write its document and report what it does."""
    if not 0.0 < holdout < 1.0:
        raise typer.BadParameter(f"{holdout} is not between 0 and 1", param_hint="--holdout")
    if family != "prior" and (negative_sampling_rate is not None or positive_weight is not None):
        raise typer.BadParameter("--negative-sampling-rate and --positive-weight belong to --family prior")
    if not model or model.endswith("#shadow"):
        raise typer.BadParameter(f"{model!r} names no model", param_hint="--model")
    if output.exists() and not force:
        raise StreamcalError("is there already", where=str(output), hint="--force replaces it")

    from streamcal.maps.signing import sign
    from streamcal.runtime.initial_map import FitOptions, fit_initial
    from streamcal.runtime.labelled_rows import Columns
    from streamcal.transform.keys import read_signing_key

    key = None if signing_key is None else read_signing_key(signing_key)
    columns = Columns(
        score=score,
        label=label,
        time=time,
        time_unit=time_unit.value,
        weight=weight,
        segments=_segments(segment or []),
        positive=tuple(positive or ()),
        negative=tuple(negative or ()),
    )
    options = FitOptions(
        model=model,
        version=version,
        family=family.value,
        holdout=holdout,
        min_count=min_count,
        negative_sampling_rate=negative_sampling_rate,
        positive_weight=positive_weight,
    )
    rows = _read(file, columns, None if form is None else form.value)
    found = fit_initial(rows, options)
    _write(output, found.document if key is None else sign(found.document, key))
    _report(rows, found, options)
    typer.echo(f"map: {output}")


def _segments(given: Sequence[str]) -> dict[str, str]:
    """Dimension to its column, from ``country`` or ``country=payload.geo.country``."""
    pairs = [text.partition("=") for text in given]
    named = {name: place or name for name, _, place in pairs}
    if len(named) < len(pairs) or not all(named):
        raise typer.BadParameter("names a dimension twice or not at all", param_hint="--segment")
    return named


def _read(file: Path, columns: Columns, form: str | None) -> LabelledRows:
    from rich.console import Console

    from streamcal.runtime.labelled_rows import read_rows

    console = Console(stderr=True)
    if not console.is_terminal:
        return read_rows(file, columns, form=form)
    with console.status("reading") as status:
        return read_rows(file, columns, form=form, on_rows=_said(status.update))


def _said(show: Callable[[str], None]) -> Callable[[int], None]:
    return lambda rows: show(f"reading: {rows:,} rows")


def _write(output: Path, document: MapDocument) -> None:
    from streamcal.maps.document import encode

    unfinished = output.with_name(f".{output.name}.tmp")
    try:
        unfinished.write_bytes(encode(document))
        unfinished.replace(output)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        hint = "check the path and its permissions"
        raise InputFileError(error.strerror or str(error), where=str(output), hint=hint) from error


def _report(rows: LabelledRows, found: InitialMap, options: FitOptions) -> None:
    from rich.console import Console

    document = found.document
    parameters = ", ".join(
        f"{name} {len(value)} knots" if isinstance(value, list) else f"{name} {value:.6g}"
        for name, value in sorted(document.parameters.items())
    )
    segments = f", {len(document.segments):,} segments" if document.segments else ""
    typer.echo(f"{document.family}({parameters}){segments} for model {document.model}, version {document.version}")
    judged = {"every row": found.whole}
    if isinstance(found.held_out, str):
        typer.echo(f"held out: {found.held_out}")
    else:
        order = "as the file has them" if rows.time_ms is None else "by time"
        typer.echo(f"held out: the newest {options.holdout:.0%} {order}, through a map of the others")
        judged = {"held out": found.held_out, **judged}
    Console().print(_table(judged))
    if not isinstance(found.held_out, str) and not found.held_out.after["log_loss"] < found.held_out.before["log_loss"]:
        typer.echo("the map does not lower the log loss of the rows held out", err=True)


def _table(judged: Mapping[str, Judged]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table("", box=box.SIMPLE)
    for name in judged:
        table.add_column(f"{name}: before", justify="right")
        table.add_column("after", justify="right")
    for figure in next(iter(judged.values())).before:
        sides = (side[figure] for pair in judged.values() for side in (pair.before, pair.after))
        table.add_row(figure, *(_cell(figure, value) for value in sides))
    return table


def _cell(figure: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if figure in ("n", "positives") else f"{value:.5f}"
