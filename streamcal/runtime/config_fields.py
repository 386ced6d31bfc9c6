"""What the sections of the configuration are made of: their base class and the kinds of value.

Validators here never stop at the first problem. One that sees several, or one that belongs to a key below its own,
raises `problems_below`; `streamcal.runtime.config_problems` unfolds it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamcal.runtime.durations import Duration, parse_duration

__all__ = [
    "PROBLEMS_BELOW",
    "ClassNames",
    "FieldPath",
    "InputFile",
    "NamedDuration",
    "PositiveSpan",
    "Scalar",
    "Section",
    "ServiceFile",
    "Span",
    "Text",
    "can_be_read",
    "empty_if_null",
    "field_path",
    "problems_below",
]

PROBLEMS_BELOW: Final = "problems_below"


def problems_below(problems: Iterable[tuple[str, str]]) -> PydanticCustomError:
    """The error for (key below the validated one, what is wrong); an empty key is the validated one itself."""
    return PydanticCustomError(PROBLEMS_BELOW, "several problems", {"problems": tuple(problems)})


def empty_if_null(value: Any) -> Any:
    """A section whose keys are all commented out reads as null; it means the defaults."""
    return {} if value is None else value


class Section(BaseModel):
    """One mapping of the configuration: immutable, no unknown key, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_means_defaults(cls, value: Any) -> Any:
        return empty_if_null(value)


def _duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a duration with its unit, like 90s or 24h")  # noqa: TRY004 - pydantic collects ValueError
    return parse_duration(value)


def _positive(value: Duration) -> Duration:
    if value.ms == 0:
        raise ValueError("must be longer than 0")
    return value


def _scalar(value: Any) -> str | int | float | bool:
    # JSON has neither infinity nor NaN, so no field can equal one.
    if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("must be text, a finite number, true or false")
    return value


_HEADER: Final = "$header."


def can_be_read(name: str) -> bool:
    """Whether a member of this name can be read from an event; the decoder takes none that JSON would escape."""
    return not any(character in '"\\' or character < " " for character in name)


def field_path(value: str) -> str:
    """Check the place of a field in an event: ``a.b.c`` in the value, ``$key``, or ``$header.NAME``.

    Raises
    ------
    ValueError
        Anything else.
    """
    if value == "$key" or (value.startswith(_HEADER) and len(value) > len(_HEADER)):
        return value
    if value.startswith("$"):
        raise ValueError("must be $key, $header.NAME or a path like payload.id")
    if not all(value.split(".")):
        raise ValueError("must be a path like payload.id, without empty parts")
    if not can_be_read(value):
        raise ValueError("must not hold quotation marks, backslashes or control characters: such names are not read")
    return value


def _path(value: Any) -> Any:
    return Path(value) if isinstance(value, str) and value else value


def _readable(value: Path, info: ValidationInfo, *, show: bool) -> Path:
    context = info.context if isinstance(info.context, Mapping) else {}
    if not context.get("check_input_files" if show else "check_service_files"):
        return value
    try:
        with value.open("rb"):
            return value
    except OSError as error:
        # A secret pasted in place of its file must not end up in a log.
        name = f" {str(value)!r}" if show else ""
        raise ValueError(f"the file{name} cannot be read: {error.strerror}") from error


def _readable_input(value: Path, info: ValidationInfo) -> Path:
    return _readable(value, info, show=True)


def _readable_service(value: Path, info: ValidationInfo) -> Path:
    return _readable(value, info, show=False)


Text = Annotated[str, StringConstraints(min_length=1, max_length=1000, strip_whitespace=True)]


def _class_names(value: Any) -> tuple[str, ...]:
    """Names of classes: none at all (one score), or two and more."""
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of classes")  # noqa: TRY004 - pydantic collects ValueError
    names = [str(name) if type(name) is int else name for name in value]
    problems = [(str(i), text) for i, name in enumerate(names) if (text := _class_problem(name, names[:i]))]
    if problems:
        raise problems_below(problems)
    if len(names) == 1:
        raise ValueError("must hold two classes or more; a model with one score needs no `classes`")
    return tuple(names)


def _class_problem(name: Any, before: list[Any]) -> str | None:
    if not isinstance(name, str) or not name or len(name) > _CLASS_CHARACTERS:
        return f"must be text of up to {_CLASS_CHARACTERS} characters, or a whole number"
    if not can_be_read(name):
        return "must not hold quotation marks, backslashes or control characters: such names are not read"
    if "/" in name:
        return "must not hold a slash, which stands between model and class in <model>/<class>"
    return f"{name!r} is named twice" if name in before else None


_CLASS_CHARACTERS: Final = 64

ClassNames = Annotated[tuple[str, ...], BeforeValidator(_class_names)]
"""Names of classes in their order; empty for one score."""

Span = Annotated[Duration, PlainValidator(_duration), PlainSerializer(lambda span: span.ms, return_type=int)]
"""A duration >= 0; two ways to write one length are the same content."""

PositiveSpan = Annotated[Span, AfterValidator(_positive)]

NamedDuration = Annotated[
    Duration,
    PlainValidator(_duration),
    AfterValidator(_positive),
    PlainSerializer(lambda span: span.text, return_type=str),
]
"""A duration > 0 whose text is a name, and so part of the content."""

Scalar = Annotated[str | int | float | bool, PlainValidator(_scalar)]

FieldPath = Annotated[Text, AfterValidator(field_path)]

InputFile = Annotated[Path, BeforeValidator(_path), AfterValidator(_readable_input)]
"""A file that must be readable when the configuration is loaded."""

ServiceFile = Annotated[Path, BeforeValidator(_path), AfterValidator(_readable_service)]
"""A file beside the daemon, often a secret: checked where the daemon runs, and never repeated in a message."""
