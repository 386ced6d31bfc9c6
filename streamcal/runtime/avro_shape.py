"""What an Avro schema lets a value do: nest without end, or fill memory out of nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["SchemaShape", "schema_shape"]

_BYTES: Final = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """What values of a schema can be.

    Attributes
    ----------
    least : int
        Fewest bytes of a value; 1 of one that is inside itself.
    recursive : bool
        Whether a value may hold one of the same type.
    """

    least: int
    recursive: bool


def schema_shape(schema: Any, named: Mapping[str, Any], inside: frozenset[str] = frozenset()) -> SchemaShape:
    """The shape of a schema as fastavro parses it, `named` holding the types it names.

    Raises
    ------
    ValueError
        It has an array whose items take no bytes.

    Examples
    --------
    >>> schema_shape({"type": "array", "items": "long"}, {})
    SchemaShape(least=1, recursive=False)
    """
    if isinstance(schema, list):
        branches = [schema_shape(branch, named, inside) for branch in schema]
        return SchemaShape(1 + min((branch.least for branch in branches), default=0), _any(branches))
    if isinstance(schema, dict):
        return _complex(schema, named, inside)
    if schema in _BYTES:
        return SchemaShape(_BYTES[schema], recursive=False)
    return SchemaShape(1, recursive=True) if schema in inside else schema_shape(named[schema], named, inside)


def _complex(schema: Mapping[str, Any], named: Mapping[str, Any], inside: frozenset[str]) -> SchemaShape:
    match schema["type"]:
        case "record" | "error":
            within = inside | {schema["name"]}
            fields = [schema_shape(field["type"], named, within) for field in schema["fields"]]
            return SchemaShape(sum(field.least for field in fields), _any(fields))
        case "array":
            items = schema_shape(schema["items"], named, inside)
            if items.least == 0:
                raise ValueError("the schema has an array whose items take no bytes")
            return SchemaShape(1, items.recursive)
        case "map":
            return SchemaShape(1, schema_shape(schema["values"], named, inside).recursive)
        case "enum":
            return SchemaShape(1, recursive=False)
        case "fixed":
            return SchemaShape(int(schema["size"]), recursive=False)
        case other:
            return schema_shape(other, named, inside)


def _any(shapes: list[SchemaShape]) -> bool:
    return any(shape.recursive for shape in shapes)
