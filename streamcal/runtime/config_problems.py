"""What pydantic found, in the words of the configuration: dotted key, what is wrong, what was meant, where it is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from streamcal.runtime.config_fields import PROBLEMS_BELOW
from streamcal.runtime.yaml_reader import KeyPath, Problem

__all__ = ["problems_of", "schema_at"]

_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of `key: value` lines",
    "mapping_type": "must be a mapping of `key: value` lines",
    "model_type": "must be a mapping of `key: value` lines",
    "path_type": "must be the path of a file",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
}
_WITHOUT_INPUT: Final = frozenset({"too_short", "string_too_short", "string_too_long"})

# Enough to recognise what was written, short enough for one line of a terminal.
_INPUT_WIDTH: Final = 60


def problems_of(error: ValidationError, model: type[BaseModel], origin: Callable[[KeyPath], str]) -> list[Problem]:
    """Every problem in `error` as (dotted key, text with the origin of the key).

    Parameters
    ----------
    error : ValidationError
        Raised by `model`.
    model : type
        Its keys are what an unknown key is compared with.
    origin : callable
        Where a key was set: ``line 12`` or the name of a variable; empty when unknown.
    """
    problems = []
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and detail["input"]:
            continue  # not empty as written: each of its items was refused, and is told by itself
        path = tuple(str(part) for part in detail["loc"] if part != "[key]")
        for where, text in _unfolded(detail, path, model):
            origin_text = origin(where)
            problems.append((".".join(where), f"{text} ({origin_text})" if origin_text else text))
    return problems


def _unfolded(detail: ErrorDetails, path: KeyPath, model: type[BaseModel]) -> Iterator[tuple[KeyPath, str]]:
    if detail["type"] == PROBLEMS_BELOW:
        for key, text in detail["ctx"]["problems"]:
            yield (*path, *(part for part in key.split(".") if part)), text
    elif detail["type"] == "extra_forbidden":
        yield path, _unknown_key(path, model)
    else:
        yield path, _wrong_value(detail)


def _wrong_value(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is required"
    if detail["input"] is None:
        return "must not be empty; leave the key out for its default"
    if kind == "value_error":
        text = str(context["error"])
        return text if not text.startswith("must be") else f"{text}, not {_shown(detail['input'])}"
    text = _EXPECTED[kind].format(**context) if kind in _EXPECTED else detail["msg"]
    if kind in _WITHOUT_INPUT:
        return text
    quotes = "; put it in quotes" if kind == "string_type" and isinstance(detail["input"], (int, float)) else ""
    return f"{text}, not {_shown(detail['input'])}{quotes}"


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _INPUT_WIDTH else f"{text[: _INPUT_WIDTH - 1]}…"


def _unknown_key(path: KeyPath, model: type[BaseModel]) -> str:
    section = schema_at(model, path[:-1])
    known = list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
    close = difflib.get_close_matches(path[-1].lower(), known, n=1)
    if close:
        return f"is not a known key; did you mean {close[0]!r}?"
    return f"is not a known key; known here: {', '.join(known)}"


def schema_at(annotation: Any, path: KeyPath) -> Any:
    """The type of the value at `path`, through optional values and mappings by name; None where nothing can be."""
    annotation = _plain(annotation)
    if not path:
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(path[0])
        return None if field is None else schema_at(field.annotation, path[1:])
    if get_origin(annotation) is Mapping:
        return schema_at(get_args(annotation)[1], path[1:])
    return None


def _plain(annotation: Any) -> Any:
    """`annotation` without `Annotated` and without an alternative of None."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _plain(kinds[0]) if len(kinds) == 1 else annotation
    return annotation
