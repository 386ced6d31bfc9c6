"""`streamcal doctor`: what is in the topics, and what to change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamcal.cli.options import ConfigOption, configuration

if TYPE_CHECKING:
    from streamcal.inspect.doctor import Diagnosis

__all__ = ["doctor"]

_RECORDS: Final = 5_000
_SECONDS: Final = 30.0


def doctor(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one JSON object.")] = False,
    records: Annotated[int, typer.Option(min=1, help="Records of each topic to look at, from its end.")] = _RECORDS,
    seconds: Annotated[float, typer.Option(min=1, help="Longest time to read.")] = _SECONDS,
) -> None:
    """Look at broker and topics as this configuration reads them; exit 1 on a problem.

    Reads the end of both topics without a group and commits nothing. More of the predictions is read while too few
    outcomes find theirs.
    """
    settings = configuration(config, kafka=True)

    from streamcal.cli.quiet import log_warnings_only
    from streamcal.inspect.doctor import diagnose

    log_warnings_only()
    found = diagnose(settings, records=records, seconds=seconds)
    if as_json:
        typer.echo(json.dumps(found.document(), indent=1, ensure_ascii=False))
    else:
        _print(found)
    if found.problems:
        raise typer.Exit(1)


def _print(found: Diagnosis) -> None:
    from streamcal.inspect.findings import printable

    for title, rows in found.sections.items():
        typer.echo(title)
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            typer.echo(f"  {name:<{width}}  {printable(text)}")
    if not found.findings:
        typer.echo("nothing to change")
    for level in ("problem", "warning"):
        chosen = [finding for finding in found.findings if finding.level == level]
        if chosen:
            typer.echo(f"{len(chosen)} {level}{'s' * (len(chosen) != 1)}")
        for number, finding in enumerate(chosen, start=1):
            typer.echo(f"  {number}. {printable(finding.what)}\n     -> {printable(finding.change)}")
