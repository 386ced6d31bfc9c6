"""Objects whose state is told by name: written down as plain trees, taken up again in place.

A class lists in `STATE` the attributes that are its state; everything else comes from its constructor. `dump` makes a
tree of numbers, strings, bytes, arrays, lists and dicts of them; `load` fills an object made by the same constructor.
An attribute that has a `STATE` of its own is filled in place, so that whoever else holds it keeps it. A dict of such
objects is filled through `state_child(attribute, key)`, which makes or finds the one under a key.

A class may instead define `dump_state` and `load_state`, where what it keeps is not what is worth writing; one that has
`state_loaded` is told when all of it is there.

What a release adds to the state of a class is named in `ADDED` too: releases before did not write it, and it stays as
the constructor made it. What the configuration leaves no place for any more (None, as an attribute or from
`state_child`) is left out, and what there was no place for when the state was written stays as it was made.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np

from streamcal.errors import StateFormatError

__all__ = ["Tree", "dump", "dump_fields", "foreign", "load", "load_fields", "recorded"]

Tree = Any
"""Nested dicts with string keys, lists, numbers, strings, bytes, None and arrays."""

_RECORDS: Final[dict[str, type]] = {}
_FOREIGN: Final[dict[type, tuple[str, Callable[[Any], Tree]]]] = {}
_READERS: Final[dict[str, Callable[[Tree], Any]]] = {}
_TAG: Final = "$"


def recorded(cls: type) -> type:
    """Let instances of a dataclass or named tuple be values in states, by their fields. A class decorator."""
    _RECORDS[cls.__name__] = cls
    return cls


def foreign(cls: type, tag: str, write: Callable[[Any], Tree], read: Callable[[Tree], Any]) -> None:
    """Let instances of a class that knows nothing of states be values in them: `read` makes what `write` wrote."""
    _FOREIGN[cls] = (tag, write)
    _READERS[tag] = read


def dump(part: Any) -> dict[str, Tree]:
    """The state of an object as a tree."""
    if hasattr(part, "dump_state"):
        own: dict[str, Tree] = part.dump_state()
        return own
    return dump_fields(part, part.STATE)


def dump_fields(part: Any, names: Sequence[str]) -> dict[str, Tree]:
    """Some attributes of an object as a tree."""
    return {name: _written(getattr(part, name)) for name in names}


def load(part: Any, state: Mapping[str, Tree]) -> None:
    """Take up what `dump` wrote of an object made the same way.

    Raises
    ------
    StateFormatError
        The state is not one of this class.
    """
    if hasattr(part, "load_state"):
        part.load_state(state)
        return
    load_fields(part, part.STATE, state)
    if hasattr(part, "state_loaded"):
        part.state_loaded()


def load_fields(part: Any, names: Sequence[str], state: Mapping[str, Tree]) -> None:
    """Take up what `dump_fields` wrote; raises StateFormatError where one is missing."""
    if missing := set(names) - state.keys() - set(getattr(part, "ADDED", ())):
        message = f"the saved state of {type(part).__name__} lacks {', '.join(sorted(missing))}"
        raise StateFormatError(message)
    for name in names:
        if name in state:
            _fill(part, name, state[name])


def _has_state(value: Any) -> bool:
    return hasattr(value, "STATE") or hasattr(value, "dump_state")


def _fill(part: Any, name: str, tree: Tree) -> None:
    kind = tree.get(_TAG) if isinstance(tree, dict) else None
    if kind == "part":
        if (held := getattr(part, name)) is not None:
            load(held, tree["state"])
    elif tree is None and _has_state(getattr(part, name, None)):
        return
    elif kind == "parts":
        for key, state in tree["items"]:
            if (child := part.state_child(name, _read(key))) is not None:
                load(child, state)
    else:
        value = _read(tree)
        held = getattr(part, name, None)
        if isinstance(held, dict) and not held and isinstance(value, dict) and not value:
            return  # of parts by key there were none, nor are there now
        if isinstance(held, deque):
            value = deque(value, held.maxlen)
        setattr(part, name, value)


def _written(value: Any) -> Tree:
    if type(value) in _FOREIGN:
        tag, write = _FOREIGN[type(value)]
        return {_TAG: tag, "value": write(value)}
    if isinstance(value, np.generic):  # before float: a float64 is one
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.ndarray)):
        return value
    if _has_state(value):
        return {_TAG: "part", "state": dump(value)}
    if isinstance(value, dict):
        return _written_dict(value)
    if isinstance(value, (list, deque)):
        return [_written(item) for item in value]
    return _written_special(value)


def _written_dict(value: dict[Any, Any]) -> Tree:
    if value and all(_has_state(held) for held in value.values()):
        return {_TAG: "parts", "items": [[_written(key), dump(held)] for key, held in value.items()]}
    kind = "counter" if isinstance(value, Counter) else "dict"
    return {_TAG: kind, "items": [[_written(key), _written(held)] for key, held in value.items()]}


def _written_special(value: Any) -> Tree:
    if isinstance(value, tuple) and _RECORDS.get(type(value).__name__) is type(value):
        held = {name: _written(item) for name, item in zip(value._fields, value, strict=True)}  # type: ignore[attr-defined]
        return {_TAG: type(value).__name__, "fields": held}
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [_written(item) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {_TAG: "set", "items": [_written(item) for item in value]}
    if is_dataclass(value) and _RECORDS.get(type(value).__name__) is type(value):
        held = {field.name: _written(getattr(value, field.name)) for field in fields(value)}
        return {_TAG: type(value).__name__, "fields": held}
    message = f"{type(value).__name__} cannot be part of a saved state"
    raise TypeError(message)


def _read(tree: Tree) -> Any:
    if isinstance(tree, list):
        return [_read(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    kind = tree.get(_TAG)
    if kind == "tuple":
        return tuple(_read(item) for item in tree["items"])
    if kind == "set":
        return {_read(item) for item in tree["items"]}
    if kind in ("dict", "counter"):
        held = {_read(key): _read(value) for key, value in tree["items"]}
        return Counter(held) if kind == "counter" else held
    if kind in _READERS:
        return _READERS[kind](tree["value"])
    record = _RECORDS.get(str(kind))
    if record is None:
        message = f"the saved state has a part of unknown kind {kind!r}"
        raise StateFormatError(message)
    return record(**{name: _read(value) for name, value in tree["fields"].items()})
