"""A proposed configuration as the text of a file, with the reason above each key."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from streamcal.errors import ConfigError
from streamcal.inspect.findings import printable
from streamcal.inspect.proposal import Guess

__all__ = ["config_text", "flow"]

_WIDTH: Final = 118
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|\d+(?:ms|s|m|h|d)", re.ASCII)
_WORDS: Final = frozenset({"true", "false", "null"})


def flow(value: Any) -> str:
    """A value on one line, as the reader of configurations understands it.

    >>> flow(["true", "US", 1, True, None]), flow({"path": "a b", "equals": "click"})
    ('["true", US, 1, true, null]', '{path: "a b", equals: click}')
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(name)}: {flow(held)}" for name, held in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value not in _WORDS
        return value if plain else f'"{"".join(map(_escaped, value))}"'
    return json.dumps(value)


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def config_text(head: Sequence[str], guesses: Mapping[str, Guess]) -> str:
    """The file: `head` as comments, then every key under its sections in the order given.

    Raises
    ------
    ConfigError
        A key is given a value and is a section too.
    """
    tree: dict[str, Any] = {}
    for key, guess in guesses.items():
        node = tree
        *sections, name = key.split(".")
        for section in sections:
            node = node.setdefault(section, {})
            if isinstance(node, Guess):
                raise ConfigError([(key, f"cannot be set, since {section} is given a value")])
        if name in node:
            raise ConfigError([(key, "is a section and takes no value of its own")])
        node[name] = guess
    lines = [line for text in head for line in _comment(text, "")]
    return "\n".join([*lines, *_section(tree, "")]) + "\n"


def _section(tree: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, held in tree.items():
        if not isinstance(held, Guess):
            if not indent:
                yield ""
            yield f"{indent}{flow(name)}:"
            yield from _section(held, f"{indent}  ")
            continue
        if held.reason:
            yield from _comment(held.reason, indent)
        yield f"{indent}{flow(name)}: {flow(held.value)}"


def _comment(text: str, indent: str) -> Iterator[str]:
    # A value of a stream may hold anything; a line break would end the comment.
    for line in textwrap.wrap(printable(text), _WIDTH - len(indent)) or [""]:
        yield f"{indent}# {line}".rstrip()
