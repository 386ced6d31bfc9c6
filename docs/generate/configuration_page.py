"""The page of configuration keys, from config.yaml, which documents each where it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from tables import escaped, joined, table

__all__ = ["configuration_page"]

_KEY: Final = re.compile(r"^( *)([\w-]+):(?: (.*))?$")
_COMMENT: Final = re.compile(r"^ *# ?(.*)$")
_EXAMPLE: Final = re.compile(r"^( *)#: ?(.*)$")
_MODEL: Final = re.compile(r"^models\.[^.]+")

_INTRODUCTION: Final = """\
Every key with its default and effect, as [config.yaml](../../config.yaml) has them; that file is valid and
equals an empty one. `streamcal check-config --config FILE` lists every problem at once.

Any key can be set from the environment, which wins over the file: `kafka.bootstrap_servers` is
`STREAMCAL_KAFKA__BOOTSTRAP_SERVERS`. Durations are a whole number and a unit: `500ms`, `90s`, `15m`, `24h`, `14d`. An
unknown key is an error, and one that is written twice.
"""


@dataclass
class _Entry:
    """A key as the file documents it."""

    path: str
    default: str
    says: str
    examples: list[str] = field(default_factory=list)


def configuration_page(text: str) -> str:
    """Markdown of all keys, a table for each section."""
    entries = _entries(text)
    sections = list(dict.fromkeys(entry.path.split(".")[0] for entry in entries))
    parts = ["# Configuration\n", _INTRODUCTION]
    for section in sections:
        own = [entry for entry in entries if entry.path.split(".")[0] == section]
        head = own[0] if own[0].path == section else None
        parts.append(f"## `{section}`\n")
        if head is not None:
            parts.append(head.says + "\n")
        rows = [_row(entry) for entry in own if entry is not head]
        parts.append(table(("key", "default", "effect"), rows))
    return "\n".join(parts)


def _row(entry: _Entry) -> tuple[str, str, str]:
    says = escaped(entry.says)
    if entry.examples:
        says += f" Example: {', '.join(f'`{escaped(one)}`' for one in entry.examples)}"
    return f"`{entry.path}`", f"`{escaped(entry.default)}`" if entry.default else "", says


def _entries(text: str) -> list[_Entry]:
    """Keys in order; those only in examples (lines that begin with ``#:``) have no default."""
    entries: dict[str, _Entry] = {}
    stack: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        example = _EXAMPLE.match(line)
        plain = example[1] + example[2] if example else line
        if comment := _COMMENT.match(plain):
            words.append(comment[1])
            continue
        if key := _KEY.match(plain):
            stack = [*((at, above) for at, above in stack if at < len(key[1])), (len(key[1]), key[2])]
            path = _MODEL.sub("models.<name>", ".".join(above for _, above in stack))
            value = "" if example else (key[3] or "").partition(" #")[0].strip()
            entry = entries.setdefault(path, _Entry(path, value, ""))
            entry.says = joined(f"{entry.says} {' '.join(words)}")
            if example and key[3]:
                entry.examples.append(plain.strip())
        words = []
    return [entry for entry in entries.values() if entry.path != "models.<name>"]
