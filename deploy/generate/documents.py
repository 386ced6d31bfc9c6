"""YAML and JSON as committed: stable order, expressions as readable blocks, a first line that says what made it."""

from __future__ import annotations

import json
from typing import Any

import yaml

__all__ = ["to_json", "to_yaml"]

_MADE: str = "# Made by `python deploy/generate`; change the sources there and run it again.\n"


class _Dumper(yaml.SafeDumper):
    """Writes strings of several lines as literal blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Repeat what occurs twice: a reader should not have to look elsewhere."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def to_yaml(content: Any) -> str:
    """`content` in block style, keys in their order."""
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)
    return _MADE + body


def to_json(content: Any) -> str:
    """`content` indented by two, as Grafana exports it."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
