"""`streamcal maps show`: the map documents that were published, or one in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamcal.cli.maps_published import chosen, in_file, in_topic, readable
from streamcal.cli.maps_text import corrections_text, parameters, time_text
from streamcal.cli.options import ConfigOption
from streamcal.errors import StreamcalError

if TYPE_CHECKING:
    from rich.table import Table

    from streamcal.maps.document import MapDocument

__all__ = ["show"]


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
    where, published = in_file(file) if file is not None else in_topic(config)
    keys = _keys(published, model, where)
    for key in keys:
        documents = readable(key, published[key])
        document = chosen(documents, number, f"{where}, key {key}")
        if as_json:
            _print_json(document)
        else:
            _print(key, document, documents)


def _version(text: str) -> int | None:
    if text == "latest":
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is neither a number above 0 nor latest", param_hint="--version")
    return int(text)


def _keys(published: Mapping[str, Sequence[bytes]], model: str | None, where: str) -> list[str]:
    if not published:
        hint = "the first refit or a map of day 0 (models.<name>.prior) publishes one"
        raise StreamcalError("holds no map yet", where=where, hint=hint)
    if model is not None and model not in published:
        raise StreamcalError(f"holds no map under key {model!r}", where=where, hint=f"keys: {', '.join(published)}")
    return sorted(published) if model is None else [model]


def _print_json(document: MapDocument) -> None:
    from streamcal.maps.document import encode

    typer.echo(encode(document).decode())


def _print(key: str, document: MapDocument, documents: Sequence[MapDocument]) -> None:
    from streamcal.serve.corrections import corrections

    fit = document.fit_window
    lines = {
        "key": key if key == document.model else f"{key} (model {document.model})",
        "version": str(document.version) + ("" if document is documents[-1] else f", of {documents[-1].version}"),
        "map": parameters(document.family, document.parameters),
        "segments": corrections_text(corrections(document.segments)),
        "decided": f"{time_text(document.at_ms)} of event time",
        "fitted on": "nothing: a map of day 0"
        if fit is None
        else f"{time_text(fit.from_ms)} to {time_text(fit.to_ms)}",
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

    table = Table("version", "decided", "map", "segments", "n", "parent", box=box.SIMPLE)
    for document in reversed(documents):
        parent = "-" if document.parent is None else str(document.parent)
        map_ = parameters(document.family, document.parameters)
        cells = (
            str(document.version),
            time_text(document.at_ms),
            map_,
            f"{len(document.segments):,}",
            f"{document.counts.n:,}",
            parent,
        )
        table.add_row(*map(Text, cells))
    return table
