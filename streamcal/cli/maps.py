"""`streamcal maps`: look at calibration maps, and change which is in force."""

from __future__ import annotations

import typer

from streamcal.cli import maps_ask, maps_diff, maps_list, maps_show

__all__ = ["app"]

app = typer.Typer(
    help="Look at calibration maps, and change which is in force.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def root() -> None:
    """Look at calibration maps, and change which is in force."""


app.command("list")(maps_list.list_maps)
app.command("show")(maps_show.show)
app.command("diff")(maps_diff.diff)
app.command("refit")(maps_ask.refit)
app.command("promote")(maps_ask.promote)
app.command("rollback")(maps_ask.rollback)
app.command("pin")(maps_ask.pin)
app.command("unpin")(maps_ask.unpin)
