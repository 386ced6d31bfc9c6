"""Environment variables over the configuration file: ``STREAMCAL_JOIN__HORIZON=12h`` sets ``join.horizon``.

A variable that names a section alone (``STREAMCAL_JOIN={horizon: 12h}``) replaces the whole section. Variables
without ``__`` that name no section are none of ours to judge and are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from streamcal.runtime.yaml_reader import KeyPath, Problem, YamlMapping, parse_value

__all__ = ["PREFIX", "SEPARATOR", "Values", "override", "variable_name"]

PREFIX: Final = "STREAMCAL_"
SEPARATOR: Final = "__"


class Values:
    """The configuration as written, with the origin of each key.

    Attributes
    ----------
    tree : dict
        Nested values; the document they came from stays as it was.
    problems : list of (str, str)
    """

    def __init__(self, document: YamlMapping) -> None:
        self.tree: dict[str, Any] = dict(document.values)
        self.problems: list[Problem] = list(document.problems)
        self._origins: dict[KeyPath, str] = {path: f"line {line}" for path, line in document.lines.items()}

    def origin(self, path: KeyPath) -> str:
        """Where `path` or the nearest key above it was set: ``line 12``, a variable's name, or nothing."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._origins:
                return self._origins[path[:length]]
        return ""

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        """Set `value` at `path`, making the mappings above it where they are missing.

        Raises
        ------
        ValueError
            Something above `path` is not a mapping.
        """
        mapping = self.tree
        for depth, name in enumerate(path[:-1], start=1):
            below = mapping.get(name)
            if below is not None and not isinstance(below, Mapping):
                raise ValueError(f"cannot be set, {'.'.join(path[:depth])} is not a mapping")
            mapping[name] = mapping = dict(below or {})
            self._origins.setdefault(path[:depth], origin)
        mapping[path[-1]] = value
        self._origins = {known: at for known, at in self._origins.items() if known[: len(path)] != path}
        self._origins[path] = origin

    def refuse_unless_from(self, path: KeyPath, name: str) -> None:
        """Make `path` a problem, and forget its value, unless it is absent, null or from the variable `name`."""
        mapping: Any = self.tree
        for part in path[:-1]:
            mapping = mapping.get(part) if isinstance(mapping, Mapping) else None
        held = mapping.get(path[-1]) if isinstance(mapping, Mapping) else None
        if held is None or self.origin(path) == name:
            return
        text = f"is a secret; set {name}, or name a file in {path[-1]}_file ({self.origin(path)})"
        self.problems.append((".".join(path), text))
        self.put(path, None, self.origin(path))


def override(
    document: YamlMapping,
    environ: Mapping[str, str],
    sections: Collection[str],
    secrets: Collection[KeyPath] = (),
) -> Values:
    """The values of `document` with those of `environ` over them, shorter paths first.

    The keys `secrets` are taken from a variable of their own, as they are and not as YAML; anywhere else they are a
    problem, which does not repeat them.
    """
    values = Values(document)
    found = []
    for name, text in environ.items():
        path = tuple(name.removeprefix(PREFIX).lower().split(SEPARATOR))
        if name.startswith(PREFIX) and (len(path) > 1 or path[0] in sections):
            found.append((_as_written(path, values.tree), name, text))
    for path, name, text in sorted(found, key=lambda one: (len(one[0]), one)):
        try:
            values.put(path, text if path in secrets else parse_value(text), name)
        except ValueError as error:
            values.problems.append((".".join(path), f"{error} ({name})"))
    for path in secrets:
        values.refuse_unless_from(path, variable_name(path))
    return values


def variable_name(path: KeyPath) -> str:
    """Name of the variable that sets `path`.

    >>> variable_name(("kafka", "group_id"))
    'STREAMCAL_KAFKA__GROUP_ID'
    """
    return PREFIX + SEPARATOR.join(path).upper()


def _as_written(path: KeyPath, tree: Mapping[str, Any]) -> KeyPath:
    """`path` with the letters of keys that stand in the file: ``FRAUD`` finds the model ``Fraud``."""
    mapping: Any = tree
    written = []
    for name in path:
        keys = mapping if isinstance(mapping, Mapping) else {}
        key = name if name in keys else next((key for key in keys if key.lower() == name), name)
        written.append(key)
        mapping = keys.get(key)
    return tuple(written)
