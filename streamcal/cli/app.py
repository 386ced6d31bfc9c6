"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from streamcal import __version__
from streamcal.cli import check_config, demo, doctor, fit, init, maps, replay, run, state, transform

__all__ = ["command"]

# Plain text instead of boxes: an error stays one line that can be searched for, however narrow the terminal.
app = typer.Typer(
    help="Live calibration monitoring of model scores, and the maps that correct them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamcal {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Live calibration monitoring of model scores, and the maps that correct them."""


app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("replay")(replay.replay)
app.command("fit")(fit.fit)
app.command("transform")(transform.transform)
app.command("check-config")(check_config.check_config)
app.command("doctor")(doctor.doctor)
app.command("init")(init.init)
app.add_typer(maps.app, name="maps")
app.add_typer(state.app, name="state")

command = typer.main.get_command(app)
"""The whole tree, callable with a list of arguments."""
