"""Options that several commands have, and the configuration they lead to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # pydantic takes a tenth of a second to load, which --help need not wait for
    from streamcal.runtime.config import Config

__all__ = ["ConfigOption", "RequiredConfigOption", "configuration"]

_HELP = "Configuration file (YAML); STREAMCAL_* variables win over it."

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help=_HELP)]
RequiredConfigOption = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help=_HELP)]


def configuration(path: Path | None, *, kafka: bool) -> Config:
    """The configuration of a command; `kafka` says whether it needs a broker.

    Raises
    ------
    ConfigError
        It cannot be used; every problem is listed.
    """
    from streamcal.runtime.config import load_config

    return load_config(path, environ=os.environ, require_kafka=kafka)
