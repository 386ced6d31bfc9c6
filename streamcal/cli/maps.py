"""`streamcal maps show`: the map documents that were published, or one in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamcal.cli.options import ConfigOption, configuration
from streamcal.errors import InputFileError, MapDocumentError, StreamcalError

if TYPE_CHECKING:
    from rich.table import Table

    from streamcal.maps.document import MapDocument

__all__ = ["app"]

app = typer.Typer(help="Look at calibration maps.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Look at calibration maps."""


@app.command("show")
def show(
    config: ConfigOption = None,
    model: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key of the maps topic: the model's name. Default: every key.")
    ] = None,
    version: Annotated[str, typer.Option(metavar="V", help="Version to show, or latest.")] = "latest",
    as_json: Annotated[
        bool, typer.Option("--json", help="The document as published, one per line and key; no history.")
    ] = False,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="A document instead of the maps topic.")] = None,
) -> None:
    """Show a map and the versions before it."""
    number = _version(version)
    where, published = _in_file(file) if file is not None else _in_topic(config)
    keys = _keys(published, model, where)
    for key in keys:
        documents = _readable(key, published[key])
        chosen = _chosen(documents, number, f"{where}, key {key}")
        if as_json:
            _print_json(chosen)
        else:
            _print(key, chosen, documents)


def _version(text: str) -> int | None:
    if text == "latest":
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is neither a number above 0 nor latest", param_hint="--version")
    return int(text)


def _in_topic(config: Path | None) -> tuple[str, Mapping[str, Sequence[bytes]]]:
    settings = configuration(config, kafka=True)

    from streamcal.cli.quiet import log_warnings_only
    from streamcal.runtime.logs.kafka_clients import KafkaClients
    from streamcal.runtime.logs.kafka_topics import read_maps

    log_warnings_only()
    clients = KafkaClients(settings.kafka)
    return f"topic {settings.topics.maps}", read_maps(clients, settings.topics.maps)


def _in_file(path: Path) -> tuple[str, Mapping[str, Sequence[bytes]]]:
    from streamcal.maps.document import decode

    try:
        data = path.read_bytes()
    except OSError as error:
        what = error.strerror or str(error)
        raise InputFileError(what, where=str(path), hint="check the path and its permissions") from error
    try:
        return str(path), {decode(data).model: [data]}
    except MapDocumentError as error:
        raise MapDocumentError(error.what, where=str(path), hint=error.hint) from error


def _keys(published: Mapping[str, Sequence[bytes]], model: str | None, where: str) -> list[str]:
    if not published:
        hint = "the first refit or a map of day 0 (models.<name>.prior) publishes one"
        raise StreamcalError("holds no map yet", where=where, hint=hint)
    if model is not None and model not in published:
        raise StreamcalError(f"holds no map under key {model!r}", where=where, hint=f"keys: {', '.join(published)}")
    return sorted(published) if model is None else [model]


def _readable(key: str, published: Sequence[bytes]) -> list[MapDocument]:
    """Documents by version, ascending; those that cannot be read are said to be so and left out."""
    from streamcal.maps.document import decode

    documents = {}
    for data in published:
        try:
            document = decode(data)
        except MapDocumentError as error:
            typer.echo(f"key {key}: a document cannot be read: {error.what}", err=True)
        else:
            documents[document.version] = document
    return [documents[version] for version in sorted(documents)]


def _chosen(documents: Sequence[MapDocument], version: int | None, where: str) -> MapDocument:
    if not documents:
        raise MapDocumentError("holds no document that can be read", where=where)
    if version is None:
        return documents[-1]  # the highest version wins, whatever the order of arrival
    for document in documents:
        if document.version == version:
            return document
    known = ", ".join(str(document.version) for document in documents)
    raise StreamcalError(f"there is no version {version}", where=where, hint=f"versions kept there: {known}")


def _print_json(document: MapDocument) -> None:
    from streamcal.maps.document import encode

    typer.echo(encode(document).decode())


def _print(key: str, document: MapDocument, documents: Sequence[MapDocument]) -> None:
    fit = document.fit_window
    lines = {
        "key": key if key == document.model else f"{key} (model {document.model})",
        "version": str(document.version) + ("" if document is documents[-1] else f", of {documents[-1].version}"),
        "map": f"{document.family}({_parameters(document)})",
        "decided": f"{_time(document.at_ms)} of event time",
        "fitted on": "nothing: a map of day 0" if fit is None else f"{_time(fit.from_ms)} to {_time(fit.to_ms)}",
        "rows": f"{document.counts.n:,}, {document.counts.positives:,} positive",
        "evidence": ", ".join(f"{name} {value:g}" for name, value in sorted(document.evidence.items())) or "none",
        "parent": "none" if document.parent is None else str(document.parent),
        "written by": f"streamcal {document.product_version}",
        "hash": document.hash,
    }
    for name, text in lines.items():
        typer.echo(f"{name:<10}  {text}")
    if len(documents) > 1:
        from rich.console import Console

        Console().print(_history(documents))


def _history(documents: Sequence[MapDocument]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("version", "decided", "map", "n", "parent", box=box.SIMPLE)
    for document in reversed(documents):
        parent = "-" if document.parent is None else str(document.parent)
        map_ = f"{document.family}({_parameters(document)})"
        cells = (str(document.version), _time(document.at_ms), map_, f"{document.counts.n:,}", parent)
        table.add_row(*map(Text, cells))
    return table


def _parameters(document: MapDocument) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in sorted(document.parameters.items()))


def _number(value: float | list[float]) -> str:
    return f"{len(value)} knots" if isinstance(value, list) else f"{value:.6g}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
