"""What a change of maps would do, as `maps diff` and `maps promote` show it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from streamcal.cli.maps_daemon import Daemon
from streamcal.cli.maps_known import NamedMap
from streamcal.cli.maps_text import corrections_text, number, plain
from streamcal.errors import InputFileError, StreamcalError

if TYPE_CHECKING:
    from streamcal.maps.preview import Mass, Preview

__all__ = ["Present", "present_of_daemon", "present_of_report", "print_comparison"]


@dataclass(frozen=True, slots=True)
class Present:
    """The scores that a change is shown on; `mass` is None where none are known, and `says` why."""

    mass: Mass | None
    says: str


def present_of_daemon(daemon: Daemon, model: str, window: str | None) -> Present:
    """The raw scores of a window, the one with most rows where none is named.

    Raises
    ------
    StreamcalError
        There is no window of that name.
    """
    import numpy as np

    from streamcal.maps.preview import mass_of_counts
    from streamcal.stats.layout import N_BINS

    try:
        answer = daemon.get("/counts", model=model, segment="all")
    except StreamcalError as error:  # the maps can be compared all the same
        return Present(None, f"{error.where}: {plain(error.what)}")
    windows = answer.get(model, {}).get("segments", {}).get("all", {}).get("windows", {})
    found: dict[str, Any] = {}
    for name, kinds in windows.items():
        if kinds["raw"]:
            width = len(next(iter(kinds["raw"].values())))
            found[name] = counts = np.zeros((N_BINS, width), dtype=np.int64)
            for place, columns in kinds["raw"].items():
                counts[int(place)] = columns
    if window is not None and window not in found:
        held = ", ".join(found) or "none"
        raise StreamcalError(f"window {window!r} holds no labelled prediction", hint=f"windows that do: {held}")
    if not found:
        return Present(None, "no labelled prediction is in any window")
    name = window or max(found, key=lambda each: found[each][:, 0].sum())
    return Present(mass_of_counts(found[name]), f"labelled predictions of window {name}")


def present_of_report(path: Path, model: str, window: str | None) -> Present:
    """The same from the report of a replay, a file or its folder: as coarse as its reliability table.

    Raises
    ------
    InputFileError
        It is no such report, or has nothing of the model.
    """
    import numpy as np

    from streamcal.maps.preview import mass_of_bins

    file, name = path / "report.json" if path.is_dir() else path, window or "all"
    try:
        report = json.loads(file.read_bytes())
        windows: Mapping[str, Any] = report["models"][model]["segments"]["all"]["windows"]
        rows = [row for row in windows[name]["raw"]["bins"] if row["n"]]
        table = np.array([[row["n"], row["mean_score"], row["lo"], row["hi"]] for row in rows]).reshape(-1, 4)
    except OSError as error:
        raise InputFileError(error.strerror or str(error), where=str(file), hint="check the path") from error
    except (ValueError, KeyError, TypeError) as error:
        what = f"holds no bins of raw scores of model {model!r} in window {name!r}"
        raise InputFileError(what, where=str(file), hint="give a report of `streamcal replay`") from error
    return Present(mass_of_bins(*table.T.astype(float)), f"labelled predictions of {file.name}, window {name}, in bins")


def print_comparison(before: NamedMap, after: NamedMap, present: Present, cut_offs: Sequence[float]) -> None:
    """Both maps' parameters, and how scores move from one to the other."""
    from rich.console import Console

    from streamcal.maps.preview import preview

    told = preview(present.mass, before.map_, after.map_, cut_offs)
    console = Console(highlight=False)
    console.print(_parameters(before, after))
    console.print(_moves(told, before, after))
    for each in {before.title: before, after.title: after}.values():
        if each.corrections is not None:
            told_of = corrections_text(each.corrections)
            typer.echo(f"{plain(each.title)} corrects single segments besides, not in these figures: {told_of}.")
    if told.mean_before is None or told.mean_after is None:
        typer.echo(f"The scores are a fixed grid, and shares cannot be told: {present.says}.")
        return
    typer.echo(f"On {told.n:,.0f} {present.says}:")
    change = told.mean_after / told.mean_before - 1.0
    typer.echo(f"mean score  {told.mean_before:.6g} -> {told.mean_after:.6g} ({100.0 * change:+.3g} %)")
    for cut in told.cut_offs:
        change = 100.0 * (cut.after - cut.before)
        typer.echo(f"share at or above {cut.at:g}  {cut.before:.4%} -> {cut.after:.4%} ({change:+.3g} points)")
    if not told.cut_offs:
        typer.echo("No cut-offs: set maps.cut_offs, or give --cut-off, to see the share at or above each.")


def _parameters(before: NamedMap, after: NamedMap) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table("", plain(before.title), plain(after.title), box=box.SIMPLE)
    table.add_row("family", before.map_.family, after.map_.family)
    old, new = before.map_.parameters(), after.map_.parameters()
    for name in sorted(old.keys() | new.keys()):
        cells = ("-" if name not in held else number(held[name]) for held in (old, new))
        table.add_row(*map(Text, (name, *cells)))
    return table


def _moves(told: Preview, before: NamedMap, after: NamedMap) -> Any:
    from rich import box
    from rich.table import Table

    table = Table("lower scores", "raw", plain(before.title), plain(after.title), "logit moves", box=box.SIMPLE)
    for column in table.columns:
        column.justify = "right"
    for row in told.rows:
        below = "-" if row.below is None else f"{row.below:.0%}"
        table.add_row(below, *(f"{value:.4g}" for value in (row.raw, row.before, row.after)), f"{row.moved:+.3f}")
    return table
