"""YAML read so that what looks like a word stays a word, and nothing is lost in silence.

The usual loader turns ``off``, ``no`` and ``NO`` (Norway) into false, ``1:30`` into 90, ``010`` into 8 and a
date into an object, and keeps the last of two equal keys. Here only ``true`` and ``false`` are booleans, numbers
are decimal, ``null``, ``~`` and nothing are null, keys are always text, and a key written twice is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from streamcal.errors import ConfigError

__all__ = ["KeyPath", "Problem", "YamlMapping", "parse_value", "read_yaml"]

KeyPath = tuple[str, ...]
Problem = tuple[str, str]
"""Dotted key and what is wrong with it, as `ConfigError` takes them."""

_DIGITS: Final = list("+-.0123456789")


class _PlainLoader(yaml.SafeLoader):
    """`yaml.SafeLoader` with the resolvers below in place of YAML 1.1's, and keys that are text."""

    # Fresh tables: the inherited ones are shared with every other user of pyyaml in the process. Of the types only
    # those a configuration holds are left; an explicit `!!timestamp` or `!!binary` is an error with its line.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - declared so by pyyaml's types
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: build
        for tag, build in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in {"null", "bool", "str", "seq", "map"}
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping whose plain keys are their text, so that ``NO:`` or ``1:`` can name a model."""
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep=deep)


def _resolve(tag: str, pattern: str, first: list[str]) -> None:
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), first)


# The core schema of YAML 1.2 without octal and hexadecimal numbers: in a configuration `010` is a code, not eight.
_resolve("bool", r"^(?:true|false)$", list("tf"))
_resolve("null", r"^(?:null|~|)$", ["n", "~", ""])
_resolve("int", r"^[-+]?(?:0|[1-9][0-9]*)$", _DIGITS)
_resolve("float", r"^[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", _DIGITS)
_resolve("float", r"^[-+]?\.(?:inf|nan)$", _DIGITS)
_resolve("merge", r"^<<$", ["<"])


def _construct_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    # pyyaml's own reads ':' as base 60 and a leading 0 as octal, which an explicit !!int would bring back.
    text = str(loader.construct_scalar(node))
    try:
        return int(text) if node.tag.endswith(":int") else float(text.replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError as error:
        raise yaml.constructor.ConstructorError(None, None, f"{text!r} is not a number", node.start_mark) from error


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _construct_number)
_PlainLoader.add_constructor("tag:yaml.org,2002:float", _construct_number)


@dataclass(frozen=True, slots=True)
class YamlMapping:
    """What a document says, and where it says it.

    Attributes
    ----------
    values : mapping (None for an empty document)
        Keys to strings, numbers, booleans, None, lists and mappings.
    lines : mapping
        Path of each key to its line, from 1.
    problems : list of (str, str)
        Keys written twice, with their lines.
    """

    values: Any
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(path: Path) -> YamlMapping:
    """Read the mapping in the file `path`; an empty file is an empty mapping.

    Raises
    ------
    ConfigError
        The file cannot be read, is not YAML (with the line), or holds something else than a mapping.
    """
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError([("file", f"cannot be read: {error.strerror or error}")], where=str(path)) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError([(f"line {line}", "is not UTF-8 text")], where=str(path)) from error
    try:
        found = _load(content)
    except yaml.YAMLError as error:
        raise ConfigError([_yaml_problem(error, content)], where=str(path)) from error
    except RecursionError as error:
        raise ConfigError([("file", "is nested too deeply")], where=str(path)) from error
    if found.values is None:
        return YamlMapping({})
    if not isinstance(found.values, dict):
        raise ConfigError([("file", "must hold `key: value` lines, not a list or a single value")], where=str(path))
    return found


def parse_value(text: str) -> Any:
    """Read `text` as one YAML value (``5``, ``90s``, ``[1h, 24h]``, ``{path: kind, equals: click}``).

    Raises
    ------
    ValueError
        `text` is not YAML, or writes a key twice.
    """
    try:
        found = _load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("is not a YAML value; put text with special characters in quotes") from error
    if found.problems:
        raise ValueError("; ".join(f"{key} {problem}" for key, problem in found.problems))
    return found.values


def _load(content: str) -> YamlMapping:
    loader = _PlainLoader(content)
    lines: dict[KeyPath, int] = {}
    try:
        node = loader.get_single_node()
        # Walked first: building the values folds `<<` merges into the nodes.
        problems = list(_walk(node, (), lines, set()))
        return YamlMapping(None if node is None else loader.construct_document(node), lines, problems)
    finally:
        loader.dispose()


def _yaml_problem(error: yaml.YAMLError, content: str) -> Problem:
    text = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}", f"is not valid YAML: {text}"
    line = content.count("\n", 0, getattr(error, "position", 0)) + 1
    return f"line {line}", f"is not valid YAML: {text}"


def _walk(node: yaml.Node | None, path: KeyPath, lines: dict[KeyPath, int], seen: set[int]) -> Iterator[Problem]:
    """Note the line of every key below `node`; yield each key that its mapping holds twice."""
    if node is None or id(node) in seen:  # an alias: its anchor was walked, and it may lead back to itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _walk(item, path, lines, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a single word", key.start_mark)
        line = key.start_mark.line + 1
        here = (*path, key.value)
        if key.value in first:
            yield ".".join(here), f"is written twice, on lines {first[key.value]} and {line}"
            continue
        first[key.value] = lines[here] = line
        yield from _walk(value, here, lines, seen)
