"""`streamcal demo`: a year of flights through the whole loop, in one process."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamcal.cli.options import ConfigOption, configuration
from streamcal.cli.stopping import StopRequest
from streamcal.errors import ServeError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from streamcal.runtime.config import Config
    from streamcal.runtime.demo import Demo
    from streamcal.serve.http import HttpServer
    from streamcal.snapshot import ModelSnapshot, Snapshot

__all__ = ["demo"]

_PORTS: Final = 20
"""Ports tried, from the configured one on."""

_LOOK_S: Final = 0.1
"""Between looks at whether a stop was asked for."""


def demo(
    config: ConfigOption = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port of the status page and /metrics. Default: serve.port or the next free one."
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0.001, help="Days of flights per second. Default: full speed."),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="At the end keep serving, as in a terminal, until Ctrl-C.")
    ] = False,
) -> None:
    """Stream real flights through the whole loop; show it live.

    Producer, monitor, hourly refits and transformer run in this process; no Kafka is needed. Ctrl-C ends it at any
    moment with what was seen so far (exit code 0).
    """
    with StopRequest() as stop:
        # The imports take a second; an interrupt then is a wish like any other.
        from streamcal.cli.quiet import log_warnings_only
        from streamcal.runtime.demo import Demo
        from streamcal.runtime.flights import flights_folder, read_flights

        log_warnings_only()
        folder = flights_folder()
        settings = configuration(config or folder / "config.yaml", kafka=False)
        running = Demo(settings, read_flights(folder), days_per_second=speed)
        with _server(running.app, settings, port) as server:
            last = _show(running, settings, server.url, stop)
            _print_summary(last, running.maps_published)
            if not stop.made and (serve or sys.stdout.isatty()):
                typer.echo(f"still serving {server.url}; Ctrl-C ends it")
                while not stop.made:
                    time.sleep(_LOOK_S)


def _show(running: Demo, config: Config, url: str, stop: StopRequest) -> ModelSnapshot | None:
    """Run with the table on screen; the model as last seen, None if nothing was."""
    from streamcal.runtime.config import DEFAULT_MODEL
    from streamcal.runtime.months import month_rows
    from streamcal.serve.table import MonthTable, Progress

    horizon_ms = config.model(DEFAULT_MODEL).horizon_ms
    last: ModelSnapshot | None = None

    with MonthTable(title=f"flights of 2013; status page {url}") as table:

        def picture(snapshot: Snapshot) -> None:
            nonlocal last
            if snapshot.models:
                last = snapshot.models[0]
                day = _day(last.event_time_ms)
                table.update(month_rows(last, horizon_ms=horizon_ms), Progress(running.read, running.events, day))

        complete = running.run(lambda: stop.made, picture)
        if last is not None and complete:
            table.update(month_rows(last, horizon_ms=horizon_ms, ended=True), None)
    return last


def _print_summary(model: ModelSnapshot | None, maps: int) -> None:
    """What it came to, in one line."""
    from streamcal.runtime.months import everything_row, month_rows

    whole = None if model is None else everything_row(model)
    if model is None or whole is None:
        return
    months = month_rows(model, horizon_ms=0)
    means = [_mean([row.ece_raw for row in months]), _mean([row.ece_served for row in months])]
    typer.echo(
        f"mean monthly ECE {means[0]} raw, {means[1]} served; "
        f"slope {_figure(whole.slope_raw)} raw, {_figure(whole.slope_served)} served; maps published: {maps}"
    )


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _figure(sum(known) / len(known) if known else None)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _day(time_ms: int | None) -> str:
    return "" if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d")


def _server(app: ASGIApp, config: Config, port: int | None) -> HttpServer:
    """Serve on `port`, or on the configured one, or on the first free one after it."""
    from streamcal.runtime.serving import http_server

    host, first = config.serve.host, config.serve.port
    if port is not None:
        return http_server(app, config.serve, port)
    for number in range(first, min(first + _PORTS, 65536)):
        try:
            server = http_server(app, config.serve, number)
        except ServeError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
        else:
            if number != first:
                typer.echo(f"port {first} is in use; serving on {server.port}", err=True)
            return server
    raise ServeError(
        f"ports {first} to {number} are all in use", where=host, hint="choose one with --port; 0 takes any free one"
    )
