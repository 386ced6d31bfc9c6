"""`streamcal maps list`: which map is in force for each model, since when, by whom, and whether it is pinned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streamcal.cli.maps_daemon import CaFileOption, Daemon, UrlOption, daemon_of
from streamcal.cli.maps_known import models_of
from streamcal.cli.maps_published import in_topic, readable
from streamcal.cli.maps_text import plain, time_text
from streamcal.cli.options import ConfigOption, configuration
from streamcal.errors import DaemonError

__all__ = ["list_maps"]

_COLUMNS = ("model", "version", "family", "since", "by", "pinned")


def list_maps(
    config: ConfigOption = None,
    url: UrlOption = None,
    ca_file: CaFileOption = None,
    topic: Annotated[
        bool,
        typer.Option(
            "--topic", help="Read the maps topic without asking a daemon: who and why, and pins, are not in it."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line and model.")] = False,
) -> None:
    """List the map in force of every model.

    Asks the daemon; where none answers, reads the maps topic.
    """
    settings = configuration(config, kafka=False)
    if topic:
        _print(list(_published(config)), as_json=as_json)
        return
    daemon = daemon_of(settings.serve, url, ca_file)
    try:
        rows = [_row(daemon, model) for model in models_of(daemon)]
    except DaemonError as error:
        if settings.kafka.bootstrap_servers is None:
            raise
        typer.echo(f"{error.where}: {error.what}; this is what the maps topic holds", err=True)
        rows = list(_published(config))
    _print(rows, as_json=as_json)


def _row(daemon: Daemon, model: Mapping[str, Any]) -> Sequence[str]:
    name, champion = str(model["name"]), model["champion"]
    told = daemon.get("/maps", model=name)
    pin = next((entry for entry in told["maps"] if entry["reason"] in ("pin", "unpin")), None)
    pinned = "" if not told["pinned"] else "yes" if pin is None else f"yes, by {pin['who']}: {pin['why']}"
    if champion is None:
        return name, "-", "raw scores", "-", "-", pinned
    since = time_text(champion["promoted_ms"]) if champion["promoted_ms"] > 0 else "the beginning"
    return name, str(champion["version"]), champion["family"], since, _by(told), pinned


def _by(told: Mapping[str, Any]) -> str:
    """Who or what put the map in force; a tracking filter's publications go on from a promotion."""
    in_force = (entry for entry in told["maps"] if entry["promoted"] and entry["action"] != "published")
    entry = next(in_force, None)
    if entry is None:
        return "longer ago than the history goes back"
    if entry["trigger"] == "manual":
        why = f": {entry['why']}" if entry["why"] else ""
        return f"{entry['who']} ({entry['action'].replace('_', ' ')}){why}"
    if entry["reason"] == "day_0":
        return "the configuration"
    if entry["action"] == "rolled_back":
        return "a roll-back: worse than its parent"
    gain = (entry.get("evidence") or {}).get("gain")
    return f"{entry['trigger']}" + ("" if gain is None else f": gained {gain:.3g} nats")


def _published(config: Path | None) -> Iterator[Sequence[str]]:
    _, published = in_topic(config)
    for key in sorted(published):
        for document in readable(key, published[key])[-1:]:
            yield key, str(document.version), document.family, time_text(document.at_ms), "not in the topic", "?"


def _print(rows: Sequence[Sequence[str]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(json.dumps(dict(zip(_COLUMNS, row, strict=True))))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        typer.echo("No model has predicted yet, and no map was published.")
        return
    table = Table(*_COLUMNS, box=box.SIMPLE)
    for column in table.columns[1:4]:
        column.no_wrap = True
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console(highlight=False).print(table)
