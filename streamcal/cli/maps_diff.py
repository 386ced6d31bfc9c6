"""`streamcal maps diff`: two maps side by side, and what going from one to the other would do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from streamcal.cli.maps_daemon import CaFileOption, Daemon, UrlOption, daemon_of
from streamcal.cli.maps_known import MAP_NAMES, map_named, models_of, one_model
from streamcal.cli.maps_preview import Present, present_of_daemon, present_of_report, print_comparison
from streamcal.cli.options import ConfigOption, configuration
from streamcal.errors import DaemonError

__all__ = ["CutOffOption", "ModelOption", "WindowOption", "checked", "diff"]

ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The model; may be left out where there is one alone.")
]
CutOffOption = Annotated[
    list[float] | None,
    typer.Option("--cut-off", metavar="P", help="Served score at which a decision falls. Default: maps.cut_offs."),
]
WindowOption = Annotated[
    str | None, typer.Option("--window", metavar="NAME", help="Window whose scores are shown. Default: the fullest.")
]


def diff(  # noqa: PLR0913, PLR0917 -- one option each
    before: Annotated[str, typer.Argument(metavar="A", help=f"A map: {MAP_NAMES}.")],
    after: Annotated[
        str | None, typer.Argument(metavar="B", help="Another. Without it, A is compared with what is in force.")
    ] = None,
    config: ConfigOption = None,
    model: ModelOption = None,
    cut_off: CutOffOption = None,
    window: WindowOption = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Scores of a replay's report instead of the daemon's.")
    ] = None,
    url: UrlOption = None,
    ca_file: CaFileOption = None,
) -> None:
    """Compare two maps: parameters, scores through both, mean and share at or above cut-offs.

    Asks the daemon for maps and for the present scores; without one, versions come from the maps topic, and scores are
    a fixed grid.
    """
    settings = configuration(config, kafka=False)
    cut_offs = checked(cut_off, settings.maps.cut_offs)
    first, second = (before, after) if after is not None else ("current", before)
    daemon = daemon_of(settings.serve, url, ca_file)
    name, told, silent = _told(daemon, model)
    maps = [map_named(each, name, told, config) for each in (first, second)]
    if report is not None:
        present = present_of_report(report, name, window)
    elif silent is None:
        present = present_of_daemon(daemon, name, window)
    else:
        present = Present(None, f"{silent.where}: {silent.what}")
    print_comparison(maps[0], maps[1], present, cut_offs)


def checked(given: list[float] | None, configured: tuple[float, ...]) -> tuple[float, ...]:
    """The cut-offs of the command line, or else of the configuration."""
    for value in given or ():
        if not 0.0 < value < 1.0:
            raise typer.BadParameter(f"{value} is not between 0 and 1", param_hint="--cut-off")
    return tuple(dict.fromkeys(given or configured))


def _told(daemon: Daemon, model: str | None) -> tuple[str, Mapping[str, Any] | None, DaemonError | None]:
    """Which model is meant and what the daemon says of its maps, or why it says nothing."""
    try:
        name = one_model(models_of(daemon), model, daemon.url)
        return name, daemon.get("/maps", model=name), None
    except DaemonError as error:
        return model or "default", None, error
