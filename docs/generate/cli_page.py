"""The page of commands, from the command tree itself."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from tables import escaped, joined, table

from streamcal import errors
from streamcal.cli.app import command

__all__ = ["cli_page"]


def cli_page() -> str:
    """Markdown of all commands, their options and the exit codes."""
    return "\n".join(
        [
            "# Commands\n",
            "Every command answers `--help`. What a user can mend is one message on standard error and an exit code.\n",
            *_commands("streamcal", command),
            "## Exit codes\n",
            table(("code", "meaning"), _codes()),
        ]
    )


def _commands(name: str, tree: Any) -> Iterator[str]:
    for child, below in sorted(getattr(tree, "commands", {}).items()):
        full = f"{name} {child}"
        if getattr(below, "commands", None):
            yield from _commands(full, below)
            continue
        options = [parameter for parameter in below.params if parameter.name != "help"]
        yield f"## `{full}`\n"
        yield "\n\n".join(joined(paragraph) for paragraph in (below.help or "").split("\n\n")) + "\n"
        yield table(("option", "default", "effect"), [_option(option) for option in options])


def _option(option: Any) -> tuple[str, str, str]:
    kind = option.type_descriptor.annotation
    if option.param_type_name == "argument":
        names = option.metavar or option.name.upper()
    elif kind is bool:
        names = "/".join([*option.opts, *option.secondary_opts])
    else:
        names = f"{', '.join(option.opts)} {option.metavar or _values(kind)}"
    default = "required" if option.required else _default(option)
    return f"`{escaped(names)}`", default, escaped(joined(getattr(option, "help", None) or ""))


def _values(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    return str(getattr(kind, "__name__", "text")).upper()


def _default(option: Any) -> str:
    value = option.default
    if value is None or value is False or callable(value) or value == ():
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _codes() -> Iterator[tuple[str, str]]:
    yield "0", "Done."
    yield "1", "A failure without a code of its own."
    yield "2", "Wrong usage, or: " + _first(errors.ConfigError)
    found = {kind.exit_code: kind for kind in map(vars(errors).get, errors.__all__) if kind is not None}
    for code, kind in sorted(found.items()):
        if code > 2:
            yield str(code), _first(kind)
    yield "130", "Interrupted."


def _first(kind: Any) -> str:
    return escaped(joined((kind.__doc__ or "").split("\n\n")[0]))
